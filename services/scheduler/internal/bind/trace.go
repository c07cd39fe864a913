package bind

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"trireme.dev/client/tracing"
)

type tracedKey struct{}

// traced are pods whose traces are recorded, by uid, and since when they wait.
type traced struct {
	pods  map[string]trace.SpanContext
	since time.Time
}

// Traced gives ctx the traces of those pods, by uid, whose traces are recorded: Bind then tells them of the wait for the
// call, which began at since, and of the call.
func Traced(ctx context.Context, pods map[string]trace.SpanContext, since time.Time) context.Context {
	return context.WithValue(ctx, tracedKey{}, traced{pods, since})
}

// call is what the traces of its pods are told about one call. A nil one tells nothing.
type call struct {
	begun time.Time
	// carrier is the span that the call itself runs under: one trace has it, the others are linked to it.
	carrier     trace.Span
	carriersPod string
}

// begin starts the span that carries the call, in the trace of the first pod that has one.
func begin(ctx context.Context, batch []*job) (context.Context, *call) {
	for _, j := range batch {
		t, _ := j.ctx.Value(tracedKey{}).(traced)
		for _, binding := range j.group {
			if sc, ok := t.pods[binding.GetPodUid()]; ok {
				c := &call{begun: time.Now(), carriersPod: binding.GetPodUid()}
				var carried context.Context
				carried, c.carrier = tracing.StartAt(trace.ContextWithRemoteSpanContext(ctx, sc), "Bind", c.begun,
					tracing.KeyNode.String(binding.GetNodeName()))
				return carried, c
			}
		}
	}
	return ctx, nil
}

// end tells the pods of a group how the call ended for it.
func (c *call) end(j *job, err error) {
	if c == nil {
		return
	}
	now := time.Now()
	t, _ := j.ctx.Value(tracedKey{}).(traced)
	for _, binding := range j.group {
		sc, ok := t.pods[binding.GetPodUid()]
		if !ok {
			continue
		}
		ctx := trace.ContextWithRemoteSpanContext(context.Background(), sc)
		tracing.Record(ctx, "bind wait", t.since, c.begun)
		span := c.carrier
		if binding.GetPodUid() != c.carriersPod {
			_, span = tracing.StartAt(ctx, "Bind", c.begun, tracing.KeyNode.String(binding.GetNodeName()))
			span.AddLink(trace.Link{SpanContext: c.carrier.SpanContext()})
		}
		tracing.Fail(span, err)
		span.End(trace.WithTimestamp(now))
	}
}
