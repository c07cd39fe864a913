package telemetrytest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"trireme.dev/client/tracing"
	"trireme.dev/kit/telemetry/telemetrytest"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// The tests of client/tracing are here because the SDK, by which one sees spans, is known in kit/telemetry only.

const sampledParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestSampled(t *testing.T) {
	for tc, want := range map[string]bool{
		"":            false,
		sampledParent: true,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0f": true,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0e": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0":  false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0z": false,
		"nonsense": false,
	} {
		if got := tracing.Sampled(&metav1.ObjectMeta{TraceContext: tc}); got != want {
			t.Errorf("Sampled(%q) = %v", tc, got)
		}
	}
	if tracing.Sampled(nil) {
		t.Error("Sampled(nil)")
	}
	meta := &metav1.ObjectMeta{TraceContext: sampledParent}
	if n := testing.AllocsPerRun(100, func() { tracing.Sampled(meta) }); n != 0 {
		t.Errorf("asking costs %v allocations", n)
	}
}

// TestObjectCarriesItsTrace follows an object from the gateway to one who hears of it later, in another process.
func TestObjectCarriesItsTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := telemetrytest.RecordSpans(t, func(name string) bool { return name == "CreatePod" })
		meta := &metav1.ObjectMeta{Name: "web", Namespace: "default", Uid: "u"}
		ctx, root := tracing.StartRoot(context.Background(), "CreatePod", time.Now())
		tracing.Set(ctx, meta, time.Now())
		root.End()
		if !tracing.Sampled(meta) || meta.GetTraceTime() == nil {
			t.Fatalf("the object carries %q, %v", meta.GetTraceContext(), meta.GetTraceTime())
		}

		time.Sleep(3 * time.Second)
		other := context.Background()
		tracing.Received(other, meta, time.Now(), "scheduler")
		from := time.Now()
		time.Sleep(time.Second)
		tracing.Record(tracing.Context(other, meta), "queue wait", from, time.Now(), tracing.KeyQueue.String("active"))
		_, attempt := tracing.Start(tracing.Context(other, meta), "scheduleOne", tracing.Pod(meta)...)
		tracing.Fail(attempt, errors.New("no room"))
		tracing.Fail(attempt, nil)
		attempt.End()
		_, later := tracing.StartLinkedAt(other, meta, "syncTerminatingPod", time.Now())
		later.End()

		got := spans.Ended()
		names := map[string]telemetrytest.Span{}
		for _, s := range got {
			names[s.Name] = s
		}
		if len(got) != 5 {
			t.Fatalf("spans: %+v", got)
		}
		first := names["CreatePod"]
		for name, took := range map[string]time.Duration{tracing.DeliverySpan: 3 * time.Second, "queue wait": time.Second, "scheduleOne": 0} {
			s := names[name]
			if s.Trace != first.Trace || s.Parent != first.ID || s.End.Sub(s.Start) != took {
				t.Errorf("%s: in %s below %s for %s, want in %s below %s for %s", name, s.Trace, s.Parent, s.End.Sub(s.Start), first.Trace, first.ID, took)
			}
		}
		if s := names["scheduleOne"]; s.Err != "no room" || s.Attributes["k8s.pod.name"] != "web" || s.Attributes["k8s.pod.uid"] != "u" {
			t.Errorf("scheduleOne: %+v", s)
		}
		if s := names[tracing.DeliverySpan]; s.Attributes["trireme.receiver"] != "scheduler" {
			t.Errorf("delivery: %+v", s)
		}
		if s := names["syncTerminatingPod"]; s.Trace == first.Trace || s.Parent != "" || len(s.Links) != 1 || s.Links[0].TraceID().String() != first.Trace {
			t.Errorf("later life: %+v", s)
		}
	})
}

func TestObjectsThatAreNotSampledLeaveNothing(t *testing.T) {
	sampled := false
	spans := telemetrytest.RecordSpans(t, func(string) bool { return sampled })
	ctx, root := tracing.StartRoot(t.Context(), "CreatePod", time.Now())
	meta := &metav1.ObjectMeta{}
	tracing.Set(ctx, meta, time.Now())
	root.End()
	if meta.GetTraceContext() == "" || tracing.Sampled(meta) || meta.GetTraceTime() != nil {
		t.Errorf("the object carries %q, %v", meta.GetTraceContext(), meta.GetTraceTime())
	}
	sampled = true // whatever others would decide: it is decided
	for _, m := range []*metav1.ObjectMeta{meta, nil, {TraceContext: "nonsense"}} {
		sampled = m == meta
		tracing.Received(t.Context(), m, time.Now(), "scheduler")
		tracing.Record(tracing.Context(t.Context(), m), "queue wait", time.Now(), time.Now())
		_, s := tracing.StartLinkedAt(t.Context(), meta, "later", time.Now())
		s.End()
		sampled = false
		_, s = tracing.Start(tracing.Context(t.Context(), m), "scheduleOne")
		s.End()
	}
	for _, s := range spans.Ended() {
		if s.Name != "later" { // a root that the sampler above would take: not what is tested
			t.Errorf("recorded: %+v", s)
		}
	}
}

// An object's spans never end up in the trace of whoever happens to handle it.
func TestContextOfAnObjectWithoutATrace(t *testing.T) {
	telemetrytest.RecordSpans(t, func(string) bool { return true })
	ctx, s := tracing.Start(t.Context(), "reconcile of another object")
	defer s.End()
	for _, tc := range []string{"", "nonsense", "00-00000000000000000000000000000000-0000000000000000-01"} {
		if sc := trace.SpanContextFromContext(tracing.Context(ctx, &metav1.ObjectMeta{TraceContext: tc})); sc.IsValid() {
			t.Errorf("%q continues %v", tc, sc)
		}
	}
	meta := &metav1.ObjectMeta{TraceContext: sampledParent}
	if got := tracing.Traceparent(tracing.Context(ctx, meta)); got != sampledParent {
		t.Errorf("%s became %s", sampledParent, got)
	}
}

// A clock that is ahead makes no span that ends before it begins.
func TestDeliveryBetweenClocks(t *testing.T) {
	spans := telemetrytest.RecordSpans(t, func(string) bool { return true })
	ctx, root := tracing.StartRoot(t.Context(), "CreatePod", time.Now())
	meta := &metav1.ObjectMeta{}
	tracing.Set(ctx, meta, time.Now().Add(time.Hour))
	root.End()
	tracing.Received(t.Context(), meta, time.Now(), "nodeagent")
	for _, s := range spans.Ended() {
		if s.End.Before(s.Start) || s.End.Sub(s.Start) > time.Minute {
			t.Errorf("%s from %s to %s", s.Name, s.Start, s.End)
		}
	}
	if n := len(spans.Ended()); n != 2 {
		t.Errorf("%d spans", n)
	}
}
