package cycle

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"trireme.dev/client/tracing"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/bind"
	"trireme.dev/services/scheduler/internal/queue"
	"trireme.dev/services/scheduler/internal/runtime"
)

// receiver is who hears of pods.
const receiver = "scheduler"

// attempt is one attempt at one pod or gang, as it is told of afterwards.
type attempt struct {
	*framework.Queued

	begun, ended time.Time
	// rest is from when on what remains of it waits again, or what was decided waits for its binding.
	rest time.Time
	// histories of the pods whose traces are recorded; empty for none, and then nothing below is filled.
	histories []queue.History
	// pods is what was noted about them, in the same order.
	pods []podWatch
}

// begin takes note of what is to be told of an attempt.
func (c *Cycle) begin(q *framework.Queued) *attempt {
	a := &attempt{Queued: q, begun: time.Now(), histories: c.Queue.Histories(q)}
	c.watch.reset()
	c.count++
	c.watch.Measure = nil
	switch {
	case c.count%measuredAttempts == 1:
		c.watch.Measure = func(*framework.PodInfo) bool { return true }
	case len(a.histories) > 0:
		c.watch.Measure = func(p *framework.PodInfo) bool { return tracing.Sampled(p.Pod.GetMetadata()) }
	}
	return a
}

// over ends the part of the attempt that is done one after the other: what was noted is counted, and kept where it is
// to be told.
func (c *Cycle) over(a *attempt) {
	a.ended = time.Now()
	a.rest = a.ended
	c.counters.watched(&c.watch)
	if len(a.histories) == 0 {
		return
	}
	a.pods = make([]podWatch, len(a.histories))
	noted := make(map[string]*podWatch, len(c.watch.pods))
	for i := range c.watch.pods {
		noted[c.watch.pods[i].pod.UID()] = &c.watch.pods[i]
	}
	for i, h := range a.histories {
		if w := noted[h.Pod.UID()]; w != nil {
			a.pods[i] = *w
		}
	}
}

// traced gives ctx what the binder needs to tell the traces of a group's pods of their binding.
func (a *attempt) traced(ctx context.Context) context.Context {
	if len(a.histories) == 0 {
		return ctx
	}
	pods := make(map[string]trace.SpanContext, len(a.histories))
	for _, h := range a.histories {
		pods[h.Pod.UID()] = tracing.SpanContext(h.Pod.Pod.GetMetadata())
	}
	return bind.Traced(ctx, pods, a.rest)
}

// shortWait is below what a wait after the decision is worth a span.
const shortWait = time.Millisecond

// waited tells of a wait between decision and binding, which all pods of a gang share.
func (a *attempt) waited(name string, begun time.Time) {
	now := time.Now()
	if len(a.histories) == 0 || now.Sub(begun) < shortWait {
		return
	}
	begun, a.rest = a.rest, now
	for _, h := range a.histories {
		tracing.Record(tracing.Context(context.Background(), h.Pod.Pod.GetMetadata()), name, begun, now)
	}
}

// tell writes the attempt into the traces of its pods: how they came here, what they waited for, and what was tried. It
// is never called on the cycle's goroutine: a gang of a thousand has ten thousand spans.
func (a *attempt) tell(failed []Failure, err error) {
	if len(a.histories) == 0 {
		return
	}
	reasons := make(map[string]string, len(failed))
	for _, f := range failed {
		reasons[f.Pod.UID()] = f.Message
	}
	whole := a.tellGroup(len(failed), err)
	for i, h := range a.histories {
		meta := h.Pod.Pod.GetMetadata()
		ctx := tracing.Context(context.Background(), meta)
		if !h.Seen.IsZero() {
			tracing.Received(ctx, meta, h.Seen, receiver)
		}
		for _, s := range h.Stays {
			tracing.Record(ctx, "queue wait", s.From, s.To,
				tracing.KeyQueue.String(s.Part), tracing.KeyReason.String(s.Reason), tracing.KeyEvent.String(s.Event))
		}
		w := &a.pods[i]
		attributes := append(tracing.Pod(meta), tracing.KeyAttempt.Int(a.Attempts))
		reason, refused := reasons[h.Pod.UID()]
		switch {
		case refused:
			attributes = append(attributes, tracing.KeyReason.String(reason))
		case w.node != "" && err == nil:
			attributes = append(attributes, tracing.KeyNode.String(w.node))
		}
		if a.IsGroup() {
			attributes = append(attributes, tracing.KeyPodGroup.String(a.GroupKey.String()))
		}
		ctx, span := tracing.StartAt(ctx, "scheduleOne", a.begun, attributes...)
		if whole.IsValid() {
			span.AddLink(trace.Link{SpanContext: whole})
		} else if a.IsGroup() {
			whole = span.SpanContext() // the first member's stands for the gang's
		}
		w.tell(ctx)
		tracing.Fail(span, err)
		span.End(trace.WithTimestamp(a.ended))
	}
}

// tellGroup writes a gang's attempt into the trace of its group, if that is recorded.
func (a *attempt) tellGroup(failed int, err error) trace.SpanContext {
	meta := a.Group.GetMetadata()
	if !a.IsGroup() || !tracing.Sampled(meta) {
		return trace.SpanContext{}
	}
	_, span := tracing.StartAt(tracing.Context(context.Background(), meta), "scheduleOne", a.begun,
		tracing.KeyPodGroup.String(a.GroupKey.String()), tracing.KeyAttempt.Int(a.Attempts),
		tracing.KeyCount.Int(len(a.Pods)), tracing.KeyFailed.Int(failed))
	tracing.Fail(span, err)
	span.End(trace.WithTimestamp(a.ended))
	return span.SpanContext()
}

// tell writes what was noted about a pod under the span of its attempt.
func (p *podWatch) tell(ctx context.Context) {
	plugins := map[string][]string{} // by point
	for _, t := range p.state.Measured() {
		text := t.Plugin + " " + t.Took.Round(100*time.Nanosecond).String()
		if t.Point == runtime.Filter {
			text = fmt.Sprintf("%s %s/node", t.Plugin, (t.Took / time.Duration(t.Calls)).Round(10*time.Nanosecond))
		}
		plugins[t.Point] = append(plugins[t.Point], text)
	}
	for at := range points {
		s := &p.points[at]
		if s.begun.IsZero() {
			continue
		}
		var attributes []attribute.KeyValue
		switch at {
		case filter:
			attributes = append(attributes, tracing.KeyNodes.Int(p.nodes), tracing.KeyFeasible.Int(p.feasible))
			if len(p.rejections) > 0 {
				attributes = append(attributes, tracing.KeyRejections.StringSlice(p.rejectionList()))
			}
		case preScore, score:
			attributes = append(attributes, tracing.KeyNodes.Int(p.feasible))
		}
		if list := plugins[at.String()]; list != nil {
			attributes = append(attributes, tracing.KeyPlugins.StringSlice(list))
		}
		tracing.Record(ctx, at.span(), s.begun, s.begun.Add(s.took), attributes...)
	}
}

// span is the name of an extension point's span: of those that run for a pod before it has a node, Kubernetes' functions.
func (p point) span() string {
	if p >= reserve {
		return p.String()
	}
	return "Run" + p.String() + "Plugins"
}

// rejectionList says how many nodes each plugin rejected, most first.
func (p *podWatch) rejectionList() []string {
	names := slices.SortedFunc(maps.Keys(p.rejections), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.rejections[b], p.rejections[a]), strings.Compare(a, b))
	})
	for i, n := range names {
		who := n
		if who == "" {
			who = runtime.PreFilter // it narrowed the nodes to some
		}
		names[i] = fmt.Sprintf("%s %d", who, p.rejections[n])
	}
	return names
}
