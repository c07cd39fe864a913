package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"trireme.dev/client"
	"trireme.dev/client/tracing"
	"trireme.dev/kit/telemetry/telemetrytest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// createdPods has creations of pods and groups begin traces.
func createdPods(span string) bool {
	return span == "trireme.core.v1.PodService/Create" || span == "trireme.scheduling.v1.PodGroupService/Create"
}

// traceOf is the id of an object's trace.
func traceOf(meta *metav1.ObjectMeta) string { return tracing.SpanContext(meta).TraceID().String() }

// awaitSpans waits until the trace has n spans of that name, and returns all its spans.
func awaitSpans(t *testing.T, r *telemetrytest.Spans, trace, name string, n int) []telemetrytest.Span {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		spans := telemetrytest.Of(r.Ended(), trace)
		if len(named(spans, name)) >= n {
			return telemetrytest.Of(r.AllEnded(t), trace)
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("no %d spans %q; have:\n%s", n, name, tree(spans, ""))
		}
	}
}

func named(spans []telemetrytest.Span, name string) []telemetrytest.Span {
	return slices.DeleteFunc(slices.Clone(spans), func(s telemetrytest.Span) bool { return s.Name != name })
}

// tree writes spans below a parent, indented, with the attributes named.
func tree(spans []telemetrytest.Span, parent string, attributes ...string) string {
	var b strings.Builder
	var write func(parent, indent string)
	write = func(parent, indent string) {
		for _, s := range spans {
			if s.Parent != parent {
				continue
			}
			b.WriteString(indent + s.Name)
			for _, a := range attributes {
				if v, ok := s.Attributes[a]; ok {
					fmt.Fprintf(&b, " %s=%s", a, v)
				}
			}
			b.WriteByte('\n')
			write(s.ID, indent+"  ")
		}
	}
	write(parent, "")
	return b.String()
}

// TestTraceOfOnePod: the whole way of a pod, in the order in which it happened.
func TestTraceOfOnePod(t *testing.T) {
	r := telemetrytest.RecordSpans(t, createdPods)
	c := newCluster(t)
	c.node("small", nil)
	c.node("big", map[string]string{"nvidia.com/gpu": "4"})
	c.node("bigger", map[string]string{"nvidia.com/gpu": "8"})
	c.schedule(nil)
	p := c.create(pod("a", gpus(2)))
	spans := awaitSpans(t, r, traceOf(p.GetMetadata()), "scheduleOne", 1)
	spans = slices.DeleteFunc(spans, func(s telemetrytest.Span) bool {
		// What is the gateway's own is not this test's business.
		return slices.Contains([]string{"Authentication", "Authorization", "Admission", "Txn", "wait for storage"}, s.Name)
	})
	creation := slices.IndexFunc(spans, func(s telemetrytest.Span) bool { return s.Parent == "" })
	if creation < 0 {
		t.Fatalf("no root:\n%+v", spans)
	}
	parent := tracing.SpanContext(p.GetMetadata()).SpanID().String()
	got := tree(spans, parent, "trireme.queue", "trireme.event", "trireme.attempt", "trireme.nodes", "trireme.feasible_nodes",
		"trireme.rejections", "trireme.receiver", "trireme.reason")
	want := `watch delivery trireme.receiver=scheduler
queue wait trireme.queue=active trireme.event=Pop trireme.reason=PodAdd
scheduleOne trireme.attempt=1
  RunPreFilterPlugins
  RunFilterPlugins trireme.nodes=3 trireme.feasible_nodes=2 trireme.rejections=["NodeResourcesFit 1"]
  RunPreScorePlugins trireme.nodes=2
  RunScorePlugins trireme.nodes=2
  Reserve
  Permit
bind wait
Bind
  trireme.core.v1.PodService/Bind
    trireme.core.v1.PodService/Bind
`
	if got != want {
		t.Errorf("trace:\n%s\nwant:\n%s", got, want)
	}
	score := named(spans, "RunScorePlugins")[0].Attributes["trireme.plugins"]
	if !strings.Contains(score, "NodeResourcesFit ") || !strings.Contains(score, "TaintToleration ") && !strings.Contains(score, "NodeAffinity ") {
		t.Errorf("score tells of plugins %q", score)
	}
	node := c.awaitBound("a")["a"].GetSpec().GetNodeName()
	if got := named(spans, "scheduleOne")[0].Attributes["k8s.node.name"]; got != node {
		t.Errorf("scheduleOne says node %q, the pod is on %q", got, node)
	}
	noGap(t, spans, parent)
}

func linked(from, to telemetrytest.Span) bool {
	return slices.ContainsFunc(from.Links, func(sc trace.SpanContext) bool { return sc.SpanID().String() == to.ID })
}

// noGap holds that what lies flat in a pod's trace leaves no time unexplained, but for what a busy machine takes from
// anybody at any moment.
func noGap(t *testing.T, spans []telemetrytest.Span, parent string) {
	t.Helper()
	var end time.Time
	for _, s := range spans {
		if s.Parent != parent {
			continue
		}
		if gap := s.Start.Sub(end); !end.IsZero() && gap > 200*time.Millisecond {
			t.Errorf("%s of nothing before %s", gap, s.Name)
		}
		if s.End.After(end) {
			end = s.End
		}
	}
}

// TestTraceOfWaits: attempts that fail are spans, and each wait says where, why, and what ended it.
func TestTraceOfWaits(t *testing.T) {
	r := telemetrytest.RecordSpans(t, createdPods)
	c := newCluster(t)
	c.node("small", nil)
	c.schedule(nil)
	p := c.create(pod("a", gpus(2)))
	c.awaitCondition("a", "1 Insufficient nvidia.com/gpu")
	c.node("big", map[string]string{"nvidia.com/gpu": "4"})
	awaitSpans(t, r, traceOf(p.GetMetadata()), "Bind", 1)
	spans := awaitSpans(t, r, traceOf(p.GetMetadata()), "scheduleOne", 2)
	attempts := named(spans, "scheduleOne")
	first := attempts[0]
	if !strings.HasPrefix(first.Attributes["trireme.reason"], "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.") || first.Err != "" {
		t.Errorf("first attempt: %+v", first)
	}
	if n := attempts[len(attempts)-1].Attributes["trireme.attempt"]; n == "1" {
		t.Errorf("last attempt is number %s", n)
	}
	waits := named(spans, "queue wait")
	i := slices.IndexFunc(waits, func(s telemetrytest.Span) bool { return s.Attributes["trireme.queue"] == "unschedulable" })
	if i < 0 {
		t.Fatalf("no wait for an event:\n%s", tree(spans, ""))
	}
	if got := waits[i].Attributes["trireme.reason"]; got != "rejected by NodeResourcesFit" {
		t.Errorf("the wait's reason is %q", got)
	}
	if got := waits[i].Attributes["trireme.event"]; !strings.HasPrefix(got, "Node") {
		t.Errorf("the wait ended by %q, want an event of the node", got)
	}
	if n := len(named(spans, "watch delivery")); n != 1 {
		t.Errorf("%d deliveries, want one", n)
	}
	noGap(t, spans, tracing.SpanContext(p.GetMetadata()).SpanID().String())
}

// TestTraceOfGang: each member has its own attempt, linked to the gang's, and one call binds all.
func TestTraceOfGang(t *testing.T) {
	r := telemetrytest.RecordSpans(t, createdPods)
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "4"})
	c.node("n2", map[string]string{"nvidia.com/gpu": "4"})
	c.schedule(nil)
	c.gang("g", 3)
	group, err := client.For[*schedulingv1.PodGroup](c.conn).Get(c.ctx, "default", "g")
	if err != nil {
		t.Fatal(err)
	}
	var pods []*corev1.Pod
	for i := range 3 {
		pods = append(pods, c.create(pod(fmt.Sprintf("g-%d", i), inGroup("g", 2))))
	}
	whole := named(awaitSpans(t, r, traceOf(group.GetMetadata()), "scheduleOne", 1), "scheduleOne")[0]
	if whole.Attributes["trireme.pod_group"] != "default/g" || whole.Attributes["trireme.count"] != "3" {
		t.Errorf("the gang's attempt: %v", whole.Attributes)
	}
	var binds []telemetrytest.Span
	for i, p := range pods {
		spans := awaitSpans(t, r, traceOf(p.GetMetadata()), "scheduleOne", 1)
		attempt := named(spans, "scheduleOne")[0]
		if !linked(attempt, whole) {
			t.Errorf("pod %d: attempt is linked to %v, want %s", i, attempt.Links, whole.ID)
		}
		if n := len(named(spans, "RunFilterPlugins")); n != 1 {
			t.Errorf("pod %d: %d filter spans", i, n)
		}
		if i < 2 && !slices.ContainsFunc(named(spans, "queue wait"), func(s telemetrytest.Span) bool {
			return s.Attributes["trireme.queue"] == "gated" && strings.HasPrefix(s.Attributes["trireme.reason"], "waiting for ")
		}) {
			t.Errorf("pod %d: no wait at the gate:\n%s", i, tree(spans, tracing.SpanContext(p.GetMetadata()).SpanID().String(), "trireme.queue", "trireme.reason"))
		}
		binds = append(binds, named(spans, "Bind")...)
	}
	carriers := slices.DeleteFunc(slices.Clone(binds), func(s telemetrytest.Span) bool { return len(s.Links) > 0 })
	if len(binds) != 3 || len(carriers) != 1 {
		t.Fatalf("%d binds of which %d carry the call, want 3 and 1", len(binds), len(carriers))
	}
	for _, s := range binds {
		if s.ID != carriers[0].ID && !linked(s, carriers[0]) {
			t.Errorf("a bind is linked to %v, want %s", s.Links, carriers[0].ID)
		}
	}
}

// TestNothingIsTracedUnasked: pods whose creation is not sampled leave no span.
func TestNothingIsTracedUnasked(t *testing.T) {
	r := telemetrytest.RecordSpans(t, nil)
	c := newCluster(t)
	c.node("n1", nil)
	stop := c.schedule(nil)
	c.create(pod("a", nil))
	c.awaitBound("a")
	stop()
	if spans := r.Ended(); len(spans) > 0 {
		t.Errorf("spans of nothing:\n%+v", spans)
	}
}

// TestMetrics reads what Prometheus would.
func TestMetrics(t *testing.T) {
	r := telemetrytest.RecordMetrics(t)
	c := newCluster(t)
	c.node("n1", nil)
	c.schedule(func(cfg *Config) { cfg.LeaderElect, cfg.Identity = true, "test" })
	c.create(pod("a", nil))
	c.create(pod("stuck", gpus(1)))
	c.awaitBound("a")
	c.awaitCondition("stuck", "Insufficient")
	for _, want := range []struct {
		name, labels string
		value        float64
	}{
		{"scheduler_pending_pods", "queue=unschedulable", 1},
		{"scheduler_pending_pods", "queue=active", 0},
		{"scheduler_schedule_attempts_total", "profile=default-scheduler,result=scheduled", 1},
		{"scheduler_schedule_attempts_total", "profile=default-scheduler,result=unschedulable", 1},
		{"scheduler_scheduling_attempt_duration_seconds", "profile=default-scheduler,result=scheduled", 1},
		{"scheduler_pod_scheduling_sli_duration_seconds", "attempts=1", 1},
		{"scheduler_pod_scheduling_attempts", "", 1},
		{"scheduler_framework_extension_point_duration_seconds", "extension_point=Filter,profile=default-scheduler,status=Success", 1},
		{"scheduler_framework_extension_point_duration_seconds", "extension_point=Filter,profile=default-scheduler,status=Unschedulable", 1},
		{"scheduler_framework_extension_point_duration_seconds", "extension_point=Bind,profile=default-scheduler,status=Success", 1},
		{"scheduler_plugin_execution_duration_seconds", "extension_point=Filter,plugin=NodeResourcesFit,status=Success", 1},
		{"scheduler_queue_incoming_pods_total", "event=PodAdd,queue=active", 2},
		{"scheduler_queue_incoming_pods_total", "event=ScheduleAttemptFailure,queue=unschedulable", 1},
		{"scheduler_unschedulable_pods", "plugin=NodeResourcesFit,profile=default-scheduler", 1},
		{"scheduler_cache_size", "type=nodes", 1},
		{"scheduler_cache_size", "type=pods", 1},
		{"scheduler_goroutines", "operation=binding", 0},
		{"leader_election_master_status", "name=trireme-scheduler", 1},
		{"trireme_informer_objects", "kind=Pod,selector=", 2},
		{"trireme_informer_relists_total", "kind=Pod,reason=start,selector=", 1},
	} {
		c.awaitMetric(r, want.name, want.labels, want.value)
	}
}

// awaitMetric waits until a metric has the value: conditions are written before the pod is put aside.
func (c *cluster) awaitMetric(r *telemetrytest.Metrics, name, labels string, want float64) {
	c.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	for {
		all := r.Values(c.t, name)
		if got, ok := all[labels]; ok && got == want {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			c.t.Errorf("%s{%s} is never %v; have %v", name, labels, want, all)
			return
		}
	}
}
