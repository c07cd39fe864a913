package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"trireme.dev/client/tracing"
	"trireme.dev/kit/telemetry/telemetrytest"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func createdDeployments(span string) bool {
	return span == "trireme.apps.v1.DeploymentService/Create" || span == "CreatePod"
}

func ofTrace(r *telemetrytest.Spans, meta *metav1.ObjectMeta) []telemetrytest.Span {
	id := tracing.SpanContext(meta).TraceID().String()
	return slices.DeleteFunc(r.Ended(), func(s telemetrytest.Span) bool { return s.Trace != id })
}

func called(spans []telemetrytest.Span, name string) []telemetrytest.Span {
	return slices.DeleteFunc(slices.Clone(spans), func(s telemetrytest.Span) bool { return s.Name != name })
}

// below reports whether a span has one of that name below it.
func below(spans []telemetrytest.Span, parent, name string) bool {
	return slices.ContainsFunc(spans, func(s telemetrytest.Span) bool {
		return s.Parent == parent && (s.Name == name || below(spans, s.ID, name))
	})
}

// quiet waits until the queues of the controllers that matter here have been empty for a moment.
func quiet(t *testing.T, m *telemetrytest.Metrics) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	worked := func() (n float64) {
		for _, name := range []string{"deployment", "replicaset"} {
			adds := m.Values(t, "workqueue_adds_total")["name="+name]
			if done := m.Values(t, "workqueue_work_duration_seconds")["name="+name]; done != adds {
				return -1
			}
			n += adds
		}
		return n
	}
	for last, same := 0.0, 0; same < 10; {
		if n := worked(); n >= 0 && n == last {
			same++
		} else {
			last, same = n, 0
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("the controllers do not come to rest")
		}
	}
}

func TestTraceFromDeploymentToPods(t *testing.T) {
	r, m := telemetrytest.RecordSpans(t, createdDeployments), telemetrytest.RecordMetrics(t)
	c := start(t)
	c.kubelet(t)
	d := must[*appsv1.Deployment](t)(c.deployments.Create(t.Context(), web(2, "v1")))
	until(t, c.deployments, "default", "the rollout", settled(2, "1"))
	quiet(t, m)

	spans := ofTrace(r, d.GetMetadata())
	sync := called(spans, "syncDeployment")
	if len(sync) == 0 || !below(spans, sync[0].ID, "trireme.apps.v1.ReplicaSetService/Create") {
		t.Fatalf("no syncDeployment that makes the set:\n%+v", spans)
	}
	if n := len(called(spans, "watch delivery")); n != 2 {
		t.Errorf("%d deliveries, want that of the Deployment and that of its set", n)
	}
	var makes []telemetrytest.Span
	for _, s := range called(spans, "syncReplicaSet") {
		if below(spans, s.ID, "trireme.core.v1.PodService/Create") {
			makes = append(makes, s)
		}
	}
	if len(makes) != 1 {
		t.Fatalf("%d syncReplicaSet that make pods, want 1:\n%+v", len(makes), spans)
	}
	if waits := called(spans, "queue wait"); len(waits) == 0 || waits[0].End.After(sync[0].Start) {
		t.Errorf("waits before the reconciliations: %+v", waits)
	}
	pods := until(t, c.pods, "default", "two pods", func(l []*corev1.Pod) bool { return len(l) == 2 })
	for _, p := range pods {
		own := ofTrace(r, p.GetMetadata())
		made := called(own, "syncReplicaSet")
		if len(made) != 1 {
			t.Errorf("the pod's trace tells of %d syncReplicaSet, want 1: %+v", len(made), own)
			continue
		}
		if !slices.ContainsFunc(made[0].Links, func(l trace.SpanContext) bool { return l.SpanID().String() == makes[0].ID }) {
			t.Errorf("it is linked to %v, want %s", made[0].Links, makes[0].ID)
		}
		if made[0].Start.After(makes[0].Start) || !strings.HasPrefix(made[0].Attributes["trireme.name"], "default/web-") {
			t.Errorf("it tells %+v", made[0])
		}
	}

	// A change that asks for nothing leaves nothing.
	before := len(r.Ended())
	adds := m.Values(t, "workqueue_adds_total")["name=replicaset"]
	pod := must[*corev1.Pod](t)(c.pods.Get(t.Context(), "default", pods[0].GetMetadata().GetName()))
	pod.Metadata.Annotations = map[string]string{"seen": "yes"}
	must[*corev1.Pod](t)(c.pods.Update(t.Context(), pod))
	quiet(t, m)
	if now := m.Values(t, "workqueue_adds_total")["name=replicaset"]; now <= adds {
		t.Fatalf("the set was not looked at again: %v keys added, before it %v", now, adds)
	}
	if after := r.Ended(); len(after) != before {
		t.Errorf("a reconciliation that wrote nothing left spans: %+v", after[before:])
	}
}

func TestQueuesAreMeasured(t *testing.T) {
	m := telemetrytest.RecordMetrics(t)
	c := start(t)
	c.kubelet(t)
	must[*appsv1.Deployment](t)(c.deployments.Create(t.Context(), web(1, "v1")))
	until(t, c.deployments, "default", "the rollout", settled(1, "1"))
	quiet(t, m)
	for _, name := range []string{
		"workqueue_adds_total", "workqueue_queue_duration_seconds", "workqueue_work_duration_seconds",
	} {
		if n := m.Values(t, name)["name=deployment"]; n < 1 {
			t.Errorf("%s = %v, want some", name, n)
		}
	}
	for _, name := range []string{
		"workqueue_depth", "workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds",
	} {
		if n, ok := m.Values(t, name)["name=deployment"]; !ok || n != 0 {
			t.Errorf("%s = %v (there: %v), want 0", name, n, ok)
		}
	}
	if n := m.Values(t, "leader_election_master_status")["name=trireme-controller"]; n != 1 {
		t.Errorf("leads: %v", n)
	}
	if n := m.Values(t, "trireme_informer_objects")["kind=ReplicaSet,selector="]; n != 1 {
		t.Errorf("%v sets in the copy", n)
	}
	if at := m.Values(t, "trireme_informer_last_event_timestamp")["kind=Pod,selector="]; time.Since(time.Unix(int64(at), 0)) > time.Minute {
		t.Errorf("last heard of pods at %v", at)
	}
}
