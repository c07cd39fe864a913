package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"trireme.dev/client"
	"trireme.dev/client/tracing"
	"trireme.dev/cmd/trireme/internal/cli/trace"
	"trireme.dev/cmd/trireme/internal/cli/waterfall"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

const (
	// atOnce is how many traces are asked for at a time.
	atOnce = 4
	// slowest is how many pods are named.
	slowest = 5
)

// started is a pod with its trace.
type started struct {
	pod   *corev1.Pod
	trace *trace.Trace
}

// took is from the first span to Ready.
func (s started) took() time.Duration { return s.trace.End.Sub(s.trace.Start) }

// Comparison is what --last -o json prints, in milliseconds.
type Comparison struct {
	Pods []ComparedPod `json:"pods"`
	// Total is over the pods that are Ready.
	Total ComparedStep   `json:"total"`
	Steps []ComparedStep `json:"steps"`
	// NotSampled and NotKept are pods that were left out: without a recorded trace, or with one that is gone.
	NotSampled int `json:"notSampled"`
	NotKept    int `json:"notKept"`
	NotReady   int `json:"notReady"`
}

// ComparedPod is one start, slowest first.
type ComparedPod struct {
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Node      string  `json:"node,omitempty"`
	TraceID   string  `json:"traceId"`
	Ready     bool    `json:"ready"`
	TotalMs   float64 `json:"totalMs"`
}

// ComparedStep is what one kind of span took.
type ComparedStep struct {
	Name    string  `json:"name"`
	Service string  `json:"service,omitempty"`
	Traces  int     `json:"traces"`
	P50Ms   float64 `json:"p50Ms"`
	P95Ms   float64 `json:"p95Ms"`
	MaxMs   float64 `json:"maxMs"`
}

// compare shows the newest pods' starts side by side.
func (v *traceView) compare(ctx context.Context) error {
	namespace := v.ns()
	if v.flags.allNamespaces {
		namespace = ""
	}
	list, err := client.For[*corev1.Pod](v.conn).List(ctx, client.ListOptions{Namespace: namespace, LabelSelector: v.flags.labels})
	if err != nil {
		return err
	}
	pods := slices.Clone(list.Items)
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return b.GetMetadata().GetCreationTimestamp().AsTime().Compare(a.GetMetadata().GetCreationTimestamp().AsTime())
	})
	pods = pods[:min(v.flags.last, len(pods))]
	if len(pods) == 0 {
		return errors.New("no pods to compare")
	}
	found, out, err := v.starts(ctx, pods)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("none of the %d newest pods has a trace here: %d were not sampled, the traces of %d are not at %s (any more)",
			len(pods), out.NotSampled, out.NotKept, v.source.address)
	}
	v.fill(found, out)
	if v.flags.output == "json" {
		return v.printJSON(out)
	}
	return v.printComparison(found, out)
}

// starts fetches the traces of pods.
func (v *traceView) starts(ctx context.Context, pods []*corev1.Pod) ([]started, *Comparison, error) {
	out := &Comparison{Pods: []ComparedPod{}, Steps: []ComparedStep{}}
	var mu sync.Mutex
	var found []started
	var errs []error
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for _, p := range pods {
		if !tracing.Sampled(p.GetMetadata()) {
			out.NotSampled++
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			spans, err := v.source.get(ctx, tracing.SpanContext(p.GetMetadata()).TraceID().String())
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, errNoTrace):
				out.NotKept++
			case err != nil:
				errs = append(errs, err)
			default:
				found = append(found, started{p, trace.Analyze(spans)})
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		return nil, nil, errs[0]
	}
	slices.SortFunc(found, func(a, b started) int {
		return cmp.Or(cmp.Compare(b.took(), a.took()), cmp.Compare(a.pod.GetMetadata().GetName(), b.pod.GetMetadata().GetName()))
	})
	return found, out, nil
}

func (v *traceView) fill(found []started, out *Comparison) {
	var totals []time.Duration
	var traces []*trace.Trace
	for _, s := range found {
		meta := s.pod.GetMetadata()
		out.Pods = append(out.Pods, ComparedPod{
			Namespace: meta.GetNamespace(), Name: meta.GetName(), Node: s.pod.GetSpec().GetNodeName(),
			TraceID: tracing.SpanContext(meta).TraceID().String(), Ready: s.trace.Ready, TotalMs: inMs(s.took()),
		})
		traces = append(traces, s.trace)
		if s.trace.Ready {
			totals = append(totals, s.took())
		} else {
			out.NotReady++
		}
	}
	out.Total = ComparedStep{
		Name: "until Ready", Traces: len(totals), P50Ms: inMs(trace.Percentile(totals, 50)),
		P95Ms: inMs(trace.Percentile(totals, 95)), MaxMs: inMs(trace.Percentile(totals, 100)),
	}
	for _, s := range trace.Steps(traces) {
		out.Steps = append(out.Steps, ComparedStep{
			Name: s.Name, Service: s.Service, Traces: s.Traces, P50Ms: inMs(s.P50), P95Ms: inMs(s.P95), MaxMs: inMs(s.Max),
		})
	}
}

func (v *traceView) printComparison(found []started, out *Comparison) error {
	v.print("%d pods, the newest first created; %d not sampled, %d not kept any more, %d not Ready", len(found), out.NotSampled, out.NotKept, out.NotReady)
	lines := [][]string{{"STEP", "SERVICE", "PODS", "P50", "P95", "MAX"}}
	for _, s := range append(slices.Clone(out.Steps), out.Total) {
		lines = append(lines, []string{(&trace.Span{Name: s.Name}).Title(), s.Service, strconv.Itoa(s.Traces), fromMs(s.P50Ms), fromMs(s.P95Ms), fromMs(s.MaxMs)})
	}
	if err := (&rows{out: v.Out}).write(lines...); err != nil {
		return err
	}
	v.print("\nSlowest:")
	lines = [][]string{{"POD", "NODE", "TOOK", "MOST OF IT", "SEE"}}
	for _, s := range found[:min(slowest, len(found))] {
		meta := s.pod.GetMetadata()
		most := ""
		if shares := s.trace.Shares(); len(shares) > 0 {
			most = waterfall.Unrecorded
			if shares[0].Span != nil {
				most = shares[0].Span.Title()
			}
			most += " " + waterfall.Duration(shares[0].Time)
		}
		see := "trireme trace pod/" + meta.GetName() + v.inNamespace(meta.GetNamespace())
		lines = append(lines, []string{meta.GetName(), s.pod.GetSpec().GetNodeName(), waterfall.Duration(s.took()), most, see})
	}
	return (&rows{out: v.Out}).write(lines...)
}

func inMs(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func fromMs(ms float64) string {
	return waterfall.Duration(time.Duration(ms * float64(time.Millisecond)))
}
