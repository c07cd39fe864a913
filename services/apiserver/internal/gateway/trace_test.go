package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/tracing"
	"trireme.dev/kit/telemetry/telemetrytest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

const createPod = "trireme.core.v1.PodService/Create"

// fromOutside is a sampled trace that some caller began.
const fromOutside = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// served roots traces at the gateway only: the test's own client begins none.
func served(t *testing.T) (*telemetrytest.Spans, *client.Resource[*corev1.Pod], *apitest.Server) {
	t.Helper()
	spans := telemetrytest.RecordSpans(t, apitest.TraceRoot)
	s := apitest.New(t)
	return spans, client.For[*corev1.Pod](s.Conn()), s
}

func newPod(name string, edit func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "i:1"}}},
	}
	if edit != nil {
		edit(p)
	}
	return p
}

func controlled(p *corev1.Pod) {
	p.Metadata.OwnerReferences = []*metav1.OwnerReference{{
		ApiVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", Uid: "1", Controller: proto.Bool(true),
	}}
}

// under is a context with a caller's trace.
func under(t *testing.T, traceparent string) context.Context {
	t.Helper()
	sc := tracing.SpanContext(&metav1.ObjectMeta{TraceContext: traceparent})
	if !sc.IsValid() {
		t.Fatalf("no trace in %q", traceparent)
	}
	return trace.ContextWithRemoteSpanContext(t.Context(), sc)
}

func TestAPodMadeByHandContinuesItsRequest(t *testing.T) {
	spans, pods, _ := served(t)
	fake := &metav1.ObjectMeta{TraceContext: fromOutside}
	p, err := pods.Create(t.Context(), newPod("a", func(p *corev1.Pod) { p.Metadata.TraceContext = fake.TraceContext }))
	if err != nil {
		t.Fatal(err)
	}
	sc := tracing.SpanContext(p.GetMetadata())
	if !sc.IsSampled() || sc.TraceID() == tracing.SpanContext(fake).TraceID() || p.GetMetadata().GetTraceTime() == nil {
		t.Fatalf("a new pod carries %v", p.GetMetadata())
	}
	served := createPod + "/" + createPod
	want := []string{createPod, served, served + "/Admission", served + "/Authentication", served + "/Authorization", served + "/Txn"}
	if got := telemetrytest.Paths(telemetrytest.Of(spans.AllEnded(t), sc.TraceID().String())); !slices.Equal(got, want) {
		t.Errorf("spans %q, want %q", got, want)
	}

	other, err := pods.Create(under(t, fromOutside), newPod("b", nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := tracing.SpanContext(other.GetMetadata()); got.TraceID() != tracing.SpanContext(fake).TraceID() || got.SpanID() == tracing.SpanContext(fake).SpanID() {
		t.Errorf("a pod of a traced caller carries %s, the caller's is %s", other.GetMetadata().GetTraceContext(), fromOutside)
	}
}

func TestAPodOfAControllerHasATraceOfItsOwn(t *testing.T) {
	spans, pods, _ := served(t)
	p, err := pods.Create(under(t, fromOutside), newPod("a", controlled))
	if err != nil {
		t.Fatal(err)
	}
	sc := tracing.SpanContext(p.GetMetadata())
	mine := telemetrytest.Of(spans.AllEnded(t), sc.TraceID().String())
	if got, want := telemetrytest.Paths(mine), []string{"CreatePod", "CreatePod/Admission", "CreatePod/Txn"}; !slices.Equal(got, want) {
		t.Fatalf("spans %q, want %q", got, want)
	}
	caller, linked := tracing.SpanContext(&metav1.ObjectMeta{TraceContext: fromOutside}).TraceID(), false
	for _, s := range spans.AllEnded(t) {
		switch {
		case s.Name == "CreatePod":
			if len(s.Links) != 1 || s.Links[0].TraceID() != caller || s.Parent != "" || s.Attributes["k8s.pod.name"] != "a" {
				t.Errorf("root %+v", s)
			}
		case s.Name == createPod && len(s.Links) > 0 && s.Links[0].SpanID() == sc.SpanID():
			linked = true
		}
	}
	if !linked {
		t.Error("the request has no link to the pod's trace")
	}
}

func TestWhatApplyCreatesIsTraced(t *testing.T) {
	spans, pods, _ := served(t)
	pods = pods.With(&metav1.WriteOptions{FieldManager: "test"})
	apply := func(ctx context.Context, name, image string) *corev1.Pod {
		t.Helper()
		patch := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":%q}]}}`, name, image)
		p, err := pods.Patch(ctx, "default", name, metav1.PatchType_PATCH_TYPE_APPLY, []byte(patch), "")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := apply(t.Context(), "a", "x:1")
	sc := tracing.SpanContext(p.GetMetadata())
	mine := telemetrytest.Of(spans.AllEnded(t), sc.TraceID().String())
	if got, want := telemetrytest.Paths(mine), []string{"CreatePod", "CreatePod/Admission", "CreatePod/Txn"}; !slices.Equal(got, want) {
		t.Errorf("spans %q, want %q", got, want)
	}
	for _, s := range mine {
		if len(s.Links) > 0 {
			t.Errorf("%s is linked to %v, of a call that is not recorded", s.Name, s.Links)
		}
	}
	// An apply that changes something begins nothing and keeps what the object has.
	if again := apply(t.Context(), "a", "x:2"); again.GetMetadata().GetTraceContext() != p.GetMetadata().GetTraceContext() {
		t.Errorf("after a change the pod carries %s, before %s", again.GetMetadata().GetTraceContext(), p.GetMetadata().GetTraceContext())
	}
	if now := telemetrytest.Of(spans.AllEnded(t), sc.TraceID().String()); len(now) != len(mine) {
		t.Errorf("after a change %d spans, before %d", len(now), len(mine))
	}
	// A caller's trace goes on.
	other := tracing.SpanContext(apply(under(t, fromOutside), "b", "x:1").GetMetadata())
	if want := tracing.SpanContext(&metav1.ObjectMeta{TraceContext: fromOutside}).TraceID(); other.TraceID() != want {
		t.Errorf("what a traced caller applies is in trace %s, the caller's is %s", other.TraceID(), want)
	}
}

func TestWhatBeginsNoTrace(t *testing.T) {
	spans, pods, s := served(t)
	ctx := t.Context()
	events := client.For[*corev1.Event](s.Conn())
	if _, err := events.Create(ctx, &corev1.Event{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "e"}, InvolvedObject: &corev1.ObjectReference{Namespace: proto.String("default")},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.List(ctx, client.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Get(ctx, "default", "none"); err == nil {
		t.Fatal("there is a pod")
	}
	p, err := pods.With(&metav1.WriteOptions{DryRun: true}).Create(ctx, newPod("a", controlled))
	if err != nil {
		t.Fatal(err)
	}
	if p.GetMetadata().GetTraceContext() != "" {
		t.Errorf("a pod that was only tried carries %q", p.GetMetadata().GetTraceContext())
	}
	marked := false
	for _, span := range spans.AllEnded(t) {
		if !slices.Contains([]string{createPod, "Authentication", "Authorization", "Admission"}, span.Name) {
			t.Errorf("unexpected span %+v", span)
		}
		marked = marked || span.Attributes["trireme.reason"] == "dry run"
	}
	if !marked {
		t.Error("no span says that its request leaves nothing behind")
	}
}

func TestTracesOfUpdatesAndBindings(t *testing.T) {
	spans, pods, s := served(t)
	p, err := pods.Create(t.Context(), newPod("a", controlled))
	if err != nil {
		t.Fatal(err)
	}
	created := p.GetMetadata()
	// No client changes it, by whatever verb.
	changed := proto.CloneOf(p)
	changed.Metadata.TraceContext, changed.Metadata.TraceTime = fromOutside, nil
	changed.Metadata.Labels = map[string]string{"a": "b"}
	if p, err = pods.Update(under(t, fromOutside), changed); err != nil {
		t.Fatal(err)
	}
	if m := p.GetMetadata(); m.GetTraceContext() != created.GetTraceContext() || !proto.Equal(m.GetTraceTime(), created.GetTraceTime()) {
		t.Errorf("an update changed %v to %v", created, m)
	}
	changed = proto.CloneOf(p)
	changed.Metadata.TraceContext, changed.Metadata.TraceTime, changed.Status.Message = fromOutside, nil, "x"
	if p, err = pods.UpdateStatus(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if m := p.GetMetadata(); m.GetTraceContext() != created.GetTraceContext() || !proto.Equal(m.GetTraceTime(), created.GetTraceTime()) {
		t.Errorf("a write of status changed %v to %v", created, m)
	}
	if _, err := corev1.NewPodServiceClient(s.Conn()).Bind(under(t, fromOutside), &corev1.BindRequest{Groups: []*corev1.BindGroup{{
		Bindings: []*corev1.Binding{{Namespace: "default", PodName: "a", NodeName: "n"}},
	}}}); err != nil {
		t.Fatal(err)
	}
	if p, err = pods.Get(t.Context(), "default", "a"); err != nil {
		t.Fatal(err)
	}
	m := p.GetMetadata()
	if m.GetTraceContext() != created.GetTraceContext() || !m.GetTraceTime().AsTime().After(created.GetTraceTime().AsTime()) {
		t.Errorf("the binding made %v of %v", m, created)
	}
	// The call belongs to another trace; the pod's says when it was committed all the same.
	commits := 0
	for _, span := range telemetrytest.Of(spans.AllEnded(t), tracing.SpanContext(m).TraceID().String()) {
		if span.Name == "Txn" {
			commits++
		}
	}
	if commits != 2 {
		t.Errorf("%d commits in the pod's trace, want those of creation and binding", commits)
	}
}

func TestUnsampledObjectsSaySo(t *testing.T) {
	spans := telemetrytest.RecordSpans(t, func(string) bool { return false })
	s := apitest.New(t)
	p, err := client.For[*corev1.Pod](s.Conn()).Create(t.Context(), newPod("a", controlled))
	if err != nil {
		t.Fatal(err)
	}
	if m := p.GetMetadata(); tracing.Sampled(m) || m.GetTraceTime() != nil || !tracing.SpanContext(m).IsValid() || len(spans.AllEnded(t)) > 0 {
		t.Errorf("carries %v, spans %v", m, spans.AllEnded(t))
	}
}

func TestRequestMetrics(t *testing.T) {
	m := telemetrytest.RecordMetrics(t)
	s := apitest.New(t)
	pods := client.For[*corev1.Pod](s.Conn())
	watch, err := pods.Watch(t.Context(), client.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for initial := true; initial; {
		r, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		initial = !r.InitialEventsEnd
	}
	for range 2 {
		_, _ = pods.Create(t.Context(), newPod("a", nil)) // the second is refused
	}
	if _, err := pods.Get(t.Context(), "default", "a"); err != nil {
		t.Fatal(err)
	}
	for added := false; !added; {
		r, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		added = len(r.Events) > 0
	}
	of := func(verb, rest string) string {
		return "group=,resource=pods,subresource=,verb=" + verb + ",version=v1" + rest
	}
	all := map[string]map[string]float64{
		"apiserver_request_total": {
			"code=200," + of("POST", ""): 1, "code=409," + of("POST", ""): 1, "code=200," + of("GET", ""): 1,
		},
		"apiserver_request_duration_seconds":            {of("POST", ""): 2, of("GET", ""): 1},
		"apiserver_response_sizes":                      {of("GET", ""): 1},
		"apiserver_longrunning_requests":                {of("WATCH", ""): 1},
		"apiserver_current_inflight_requests":           {"request_kind=mutating": 0, "request_kind=readOnly": 0},
		"apiserver_watch_events_total":                  {"group=,resource=pods,version=v1": 1},
		"apiserver_watch_events_sizes":                  {"group=,resource=pods,version=v1": 1},
		"apiserver_storage_objects":                     {"resource=pods": 1, "resource=namespaces": 4, "resource=deployments.apps": 0, "resource=leases.coordination.k8s.io": 0},
		"etcd_request_duration_seconds":                 {"operation=create,type=pods": 2},
		"apiserver_watch_cache_events_received_total":   {"group=,resource=pods": 1},
		"apiserver_watch_cache_events_dispatched_total": {"group=,resource=pods": 1},
		"apiserver_terminated_watchers_total":           {"group=,resource=pods": 0},
	}
	// What is counted at a call's end may come after its caller has the answer.
	wrong := func() (wrong []string) {
		for name, want := range all {
			got := m.Values(t, name)
			for labels, value := range want {
				if have, ok := got[labels]; !ok || have != value {
					wrong = append(wrong, fmt.Sprintf("%s{%s} is %v, want %v; there are %v", name, labels, have, value, got))
				}
			}
		}
		return wrong
	}
	deadline := time.Now().Add(10 * time.Second)
	for len(wrong()) > 0 && time.Now().Before(deadline) {
		<-time.After(time.Millisecond)
	}
	for _, w := range wrong() {
		t.Error(w)
	}
}
