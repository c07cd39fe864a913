package registry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	autoscalingv1 "trireme.dev/proto/gen/trireme/autoscaling/v1"
	autoscalingv2 "trireme.dev/proto/gen/trireme/autoscaling/v2"
	coschedulingv1alpha1 "trireme.dev/proto/gen/trireme/coscheduling/v1alpha1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	schedulingv1alpha2 "trireme.dev/proto/gen/trireme/scheduling/v1alpha2"
)

// versions are the clients of two versions of one kind.
type versions struct {
	*env
	v1 *client.Resource[*autoscalingv1.HorizontalPodAutoscaler]
	v2 *client.Resource[*autoscalingv2.HorizontalPodAutoscaler]
}

func newVersions(t *testing.T) *versions {
	e := newEnv(t)
	return &versions{
		env: e, v1: client.For[*autoscalingv1.HorizontalPodAutoscaler](e.Conn()), v2: client.For[*autoscalingv2.HorizontalPodAutoscaler](e.Conn()),
	}
}

func autoscaler(name string) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: &autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: &autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web", ApiVersion: proto.String("apps/v1")},
			MaxReplicas:    5,
			Metrics: []*autoscalingv2.MetricSpec{
				{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{
					Name: "cpu", Target: &autoscalingv2.MetricTarget{Type: "Utilization", AverageUtilization: proto.Int32(70)}}},
				{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{
					Metric: &autoscalingv2.MetricIdentifier{Name: "queue"},
					Target: &autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: proto.String("30")}}},
			},
		},
	}
}

// TestVersionsAreOneObject: what is written in one version is read, changed and deleted in the other.
func TestVersionsAreOneObject(t *testing.T) {
	e, ctx := newVersions(t), t.Context()
	made := must[*autoscalingv2.HorizontalPodAutoscaler](t)(e.v2.Create(ctx, autoscaler("a")))
	seen := must[*autoscalingv1.HorizontalPodAutoscaler](t)(e.v1.Get(ctx, "default", "a"))
	if m, n := made.GetMetadata(), seen.GetMetadata(); m.GetUid() != n.GetUid() || m.GetResourceVersion() != n.GetResourceVersion() ||
		m.GetGeneration() != 1 || n.GetGeneration() != 1 {
		t.Errorf("identity %v and %v", m, n)
	}
	if seen.GetSpec().GetTargetCpuUtilizationPercentage() != 70 || seen.GetSpec().GetMinReplicas() != 1 {
		t.Errorf("v1 spec %v", seen.GetSpec())
	}

	// A change in v1 loses nothing that v1 does not know.
	seen.Spec.TargetCpuUtilizationPercentage = proto.Int32(90)
	changed := must[*autoscalingv1.HorizontalPodAutoscaler](t)(e.v1.Update(ctx, seen))
	want := clone(made)
	want.Spec.Metrics[0].Resource.Target.AverageUtilization = proto.Int32(90)
	want.Metadata.ResourceVersion, want.Metadata.Generation = changed.GetMetadata().GetResourceVersion(), 2
	got := must[*autoscalingv2.HorizontalPodAutoscaler](t)(e.v2.Get(ctx, "default", "a"))
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("after an update in v1 (-want +got):\n%s", diff)
	}
	// A stale version conflicts, whichever version it was read in.
	_, err := e.v1.Update(ctx, seen)
	wantError(t, err, apierr.ReasonConflict)
	// What changes nothing changes nothing.
	same := must[*autoscalingv1.HorizontalPodAutoscaler](t)(e.v1.Update(ctx, changed))
	if same.GetMetadata().GetResourceVersion() != changed.GetMetadata().GetResourceVersion() {
		t.Error("a write that changes nothing moved the revision")
	}

	// Status goes its own way.
	status := clone(changed)
	status.Spec.MaxReplicas = 99
	status.Status = &autoscalingv1.HorizontalPodAutoscalerStatus{CurrentReplicas: 3, DesiredReplicas: 4, CurrentCpuUtilizationPercentage: proto.Int32(50)}
	must[*autoscalingv1.HorizontalPodAutoscaler](t)(e.v1.UpdateStatus(ctx, status))
	got = must[*autoscalingv2.HorizontalPodAutoscaler](t)(e.v2.Get(ctx, "default", "a"))
	if s := got.GetStatus(); s.GetCurrentReplicas() != 3 || len(s.GetCurrentMetrics()) != 1 || got.GetSpec().GetMaxReplicas() != 5 ||
		s.GetCurrentMetrics()[0].GetResource().GetCurrent().GetAverageUtilization() != 50 || got.GetMetadata().GetGeneration() != 2 {
		t.Errorf("after a status in v1: %v", got)
	}
	main := must[*autoscalingv1.HorizontalPodAutoscaler](t)(e.v1.Get(ctx, "default", "a"))
	main.Status, main.Spec.MaxReplicas = nil, 6
	must[*autoscalingv1.HorizontalPodAutoscaler](t)(e.v1.Update(ctx, main))
	if got = must[*autoscalingv2.HorizontalPodAutoscaler](t)(e.v2.Get(ctx, "default", "a")); got.GetStatus().GetCurrentReplicas() != 3 {
		t.Errorf("an update in v1 took the status: %v", got.GetStatus())
	}

	// Patches are of the version's own JSON, and its rules name its own fields.
	_, err = e.v1.Patch(ctx, "default", "a", metav1.PatchType_PATCH_TYPE_MERGE, []byte(`{"spec":{"targetCPUUtilizationPercentage":0}}`), "")
	wantError(t, err, apierr.ReasonInvalid, "spec.targetCPUUtilizationPercentage")
	_, err = e.v1.Patch(ctx, "default", "a", metav1.PatchType_PATCH_TYPE_MERGE, []byte(`{"spec":{"metrics":[]}}`), "")
	wantError(t, err, apierr.ReasonInvalid, "metrics")
	must[*autoscalingv1.HorizontalPodAutoscaler](t)(e.v1.Patch(ctx, "default", "a", metav1.PatchType_PATCH_TYPE_STRATEGIC_MERGE,
		[]byte(`{"spec":{"targetCPUUtilizationPercentage":55}}`), ""))
	got = must[*autoscalingv2.HorizontalPodAutoscaler](t)(e.v2.Get(ctx, "default", "a"))
	if got.GetSpec().GetMetrics()[0].GetResource().GetTarget().GetAverageUtilization() != 55 || len(got.GetSpec().GetMetrics()) != 2 {
		t.Errorf("after a patch in v1: %v", got.GetSpec())
	}

	must[*autoscalingv1.HorizontalPodAutoscaler](t)(e.v1.Delete(ctx, "default", "a", nil))
	_, err = e.v2.Get(ctx, "default", "a")
	wantError(t, err, apierr.ReasonNotFound)
}

// TestVersionsListAndWatch: lists and watches of both versions tell the same story.
func TestVersionsListAndWatch(t *testing.T) {
	e, ctx := newVersions(t), t.Context()
	watch := must[*client.Watch[*autoscalingv1.HorizontalPodAutoscaler]](t)(e.v1.Watch(ctx, client.WatchOptions{Namespace: "default"}))
	defer watch.Close()
	// Annotations of some size, so that chunks must be split.
	const n, size = 12, 120 << 10
	for i := range n {
		a := autoscaler(fmt.Sprint("a", i))
		a.Metadata.Annotations = map[string]string{"filler": strings.Repeat("x", size)}
		a.Metadata.Labels = map[string]string{"odd": fmt.Sprint(i % 2)}
		must[*autoscalingv2.HorizontalPodAutoscaler](t)(e.v2.Create(ctx, a))
	}
	var names []string
	for len(names) < n {
		r := must[*client.Response[*autoscalingv1.HorizontalPodAutoscaler]](t)(watch.Recv())
		for _, event := range r.Events {
			o := event.Object
			if o.GetSpec().GetTargetCpuUtilizationPercentage() != 70 || !strings.Contains(o.GetMetadata().GetAnnotations()["autoscaling.alpha.kubernetes.io/metrics"], "queue") {
				t.Fatalf("watched %v", o)
			}
			names = append(names, o.GetMetadata().GetName())
		}
	}
	list := must[*client.List[*autoscalingv1.HorizontalPodAutoscaler]](t)(e.v1.List(ctx, client.ListOptions{Namespace: "default"}))
	stored := must[*client.List[*autoscalingv2.HorizontalPodAutoscaler]](t)(e.v2.List(ctx, client.ListOptions{Namespace: "default"}))
	if len(list.Items) != n || len(stored.Items) != n || list.ResourceVersion != stored.ResourceVersion {
		t.Fatalf("%d items at %s, and %d at %s", len(list.Items), list.ResourceVersion, len(stored.Items), stored.ResourceVersion)
	}
	for i, o := range list.Items {
		if o.GetMetadata().GetResourceVersion() != stored.Items[i].GetMetadata().GetResourceVersion() || !slices.Contains(names, o.GetMetadata().GetName()) {
			t.Errorf("item %v", o.GetMetadata())
		}
	}
	odd := must[*client.List[*autoscalingv1.HorizontalPodAutoscaler]](t)(e.v1.List(ctx, client.ListOptions{Namespace: "default", LabelSelector: "odd=1"}))
	if len(odd.Items) != n/2 {
		t.Errorf("%d items are odd", len(odd.Items))
	}
	deleted, err := e.v1.DeleteCollection(ctx, &metav1.DeleteCollectionRequest{Namespace: "default"})
	if err != nil || deleted != n {
		t.Errorf("deleted %d, %v", deleted, err)
	}
}

// TestApplyInSeveralVersions: each manager owns fields in the version it wrote, and conflicts reach across versions.
func TestApplyInSeveralVersions(t *testing.T) {
	e, ctx := newVersions(t), t.Context()
	v1 := func(manager string, max, cpu int, force bool) error {
		_, err := e.v1.With(&metav1.WriteOptions{FieldManager: manager, Force: force}).Patch(ctx, "default", "a", metav1.PatchType_PATCH_TYPE_APPLY, fmt.Appendf(nil,
			`{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"a","namespace":"default"},
			"spec":{"scaleTargetRef":{"kind":"Deployment","name":"web"},"maxReplicas":%d,"targetCPUUtilizationPercentage":%d}}`, max, cpu), "")
		return err
	}
	if err := v1("one", 5, 60, false); err != nil {
		t.Fatal(err)
	}
	got := must[*autoscalingv2.HorizontalPodAutoscaler](t)(e.v2.Get(ctx, "default", "a"))
	if len(got.GetSpec().GetMetrics()) != 1 || got.GetSpec().GetMetrics()[0].GetResource().GetTarget().GetAverageUtilization() != 60 {
		t.Errorf("applied %v", got.GetSpec())
	}
	if m := got.GetMetadata().GetManagedFields(); len(m) != 1 || m[0].GetApiVersion() != "autoscaling/v1" || m[0].GetManager() != "one" {
		t.Errorf("owners %v", m)
	}
	// The other version's field is the same field.
	v2 := func(manager string, max int, force bool) error {
		_, err := e.v2.With(&metav1.WriteOptions{FieldManager: manager, Force: force}).Patch(ctx, "default", "a", metav1.PatchType_PATCH_TYPE_APPLY, fmt.Appendf(nil,
			`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"a","namespace":"default"},
			"spec":{"scaleTargetRef":{"kind":"Deployment","name":"web"},"maxReplicas":%d,"behavior":{"scaleUp":{"stabilizationWindowSeconds":9}}}}`, max), "")
		return err
	}
	wantError(t, v2("two", 7, false), apierr.ReasonConflict, "spec.maxReplicas", `"one"`)
	if err := v2("two", 5, false); err != nil {
		t.Fatal(err)
	}
	if err := v2("two", 7, true); err != nil {
		t.Fatal(err)
	}
	wantError(t, v1("one", 5, 60, false), apierr.ReasonConflict, "spec.maxReplicas", `"two"`)
	if err := v1("one", 7, 65, false); err != nil {
		t.Fatal(err)
	}
	got = must[*autoscalingv2.HorizontalPodAutoscaler](t)(e.v2.Get(ctx, "default", "a"))
	if got.GetSpec().GetBehavior().GetScaleUp().GetStabilizationWindowSeconds() != 9 || got.GetSpec().GetMaxReplicas() != 7 ||
		got.GetSpec().GetMetrics()[0].GetResource().GetTarget().GetAverageUtilization() != 65 {
		t.Errorf("after both applied: %v", got.GetSpec())
	}
	owners := map[string]string{}
	for _, m := range got.GetMetadata().GetManagedFields() {
		owners[m.GetManager()] = m.GetApiVersion()
	}
	if diff := cmp.Diff(map[string]string{"one": "autoscaling/v1", "two": "autoscaling/v2"}, owners); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	_, err := e.v1.With(&metav1.WriteOptions{FieldManager: "x"}).Patch(ctx, "default", "a", metav1.PatchType_PATCH_TYPE_APPLY,
		[]byte(`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"a","namespace":"default"}}`), "")
	wantError(t, err, apierr.ReasonInvalid, "autoscaling/v2", "want autoscaling/v1")
}

// TestPodGroupVersions: scheduler-plugins' PodGroup is a gang, and its manifests' repetition does it no harm.
func TestPodGroupVersions(t *testing.T) {
	e, ctx := newEnv(t), t.Context()
	gangs := client.For[*coschedulingv1alpha1.PodGroup](e.Conn())
	groups := client.For[*schedulingv1.PodGroup](e.Conn())
	older := client.For[*schedulingv1alpha2.PodGroup](e.Conn())
	var warned []string
	made := must[*coschedulingv1alpha1.PodGroup](t)(gangs.OnWarning(func(w string) { warned = append(warned, w) }).Create(ctx, &coschedulingv1alpha1.PodGroup{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "gang"},
		Spec: &coschedulingv1alpha1.PodGroupSpec{
			MinMember: proto.Int32(3), MinResources: map[string]string{"cpu": "2"}, ScheduleTimeoutSeconds: proto.Int32(10),
		},
	}))
	if made.GetSpec().GetMinMember() != 3 || made.GetSpec().GetMinResources()["cpu"] != "2" || made.GetSpec().GetScheduleTimeoutSeconds() != 10 {
		t.Errorf("made %v", made)
	}
	if all := strings.Join(warned, "\n"); len(warned) != 2 || !strings.Contains(all, "spec.minResources") || !strings.Contains(all, "spec.scheduleTimeoutSeconds") {
		t.Errorf("warnings %q", warned)
	}
	stored := must[*schedulingv1.PodGroup](t)(groups.Get(ctx, "default", "gang"))
	if stored.GetSpec().GetSchedulingPolicy().GetGang().GetMinCount() != 3 {
		t.Errorf("stored %v", stored)
	}
	// The manifest again, as replace sends it: without what only the stored version knows.
	again := &coschedulingv1alpha1.PodGroup{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "gang"}, Spec: &coschedulingv1alpha1.PodGroupSpec{MinMember: proto.Int32(4)},
	}
	must[*coschedulingv1alpha1.PodGroup](t)(gangs.Update(ctx, again))
	stored = must[*schedulingv1.PodGroup](t)(groups.Get(ctx, "default", "gang"))
	if stored.GetSpec().GetSchedulingPolicy().GetGang().GetMinCount() != 4 || stored.GetSpec().GetDisruptionMode().GetSingle() == nil {
		t.Errorf("stored %v", stored)
	}
	// The scheduler's condition is a phase; a status that somebody writes is kept.
	stored.Status = &schedulingv1.PodGroupStatus{Conditions: []*metav1.Condition{{Type: "PodGroupInitiallyScheduled", Status: "True", Reason: "Scheduled"}}}
	must[*schedulingv1.PodGroup](t)(groups.UpdateStatus(ctx, stored))
	now := must[*coschedulingv1alpha1.PodGroup](t)(gangs.Get(ctx, "default", "gang"))
	if now.GetStatus().GetPhase() != "Scheduled" {
		t.Errorf("status %v", now.GetStatus())
	}
	now.Status = &coschedulingv1alpha1.PodGroupStatus{Phase: proto.String("Running"), Running: proto.Int32(4)}
	must[*coschedulingv1alpha1.PodGroup](t)(gangs.UpdateStatus(ctx, now))
	now = must[*coschedulingv1alpha1.PodGroup](t)(gangs.Get(ctx, "default", "gang"))
	stored = must[*schedulingv1.PodGroup](t)(groups.Get(ctx, "default", "gang"))
	if now.GetStatus().GetRunning() != 4 || len(stored.GetStatus().GetConditions()) != 1 {
		t.Errorf("status %v and %v", now.GetStatus(), stored.GetStatus())
	}
	_, err := gangs.Create(ctx, &coschedulingv1alpha1.PodGroup{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "bad"}, Spec: &coschedulingv1alpha1.PodGroupSpec{MinMember: proto.Int32(0)},
	})
	wantError(t, err, apierr.ReasonInvalid, "spec.minMember")
	old := must[*schedulingv1alpha2.PodGroup](t)(older.Get(ctx, "default", "gang"))
	if old.GetSpec().GetDisruptionMode() != "Pod" || old.GetSpec().GetSchedulingPolicy().GetGang().GetMinCount() != 4 {
		t.Errorf("in v1alpha2 %v", old)
	}
}
