package registry_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

func TestCreateSetsWhatTheGatewayOwns(t *testing.T) {
	e := newEnv(t)
	got := must[*corev1.Pod](t)(e.pods.Create(t.Context(), pod("a", func(p *corev1.Pod) {
		p.Metadata.Uid, p.Metadata.Generation = "mine", 9
		p.Metadata.TraceContext = "copied"
		p.Status = &corev1.PodStatus{Phase: "Running"}
	})))
	m := got.GetMetadata()
	if m.GetUid() == "mine" || m.GetUid() == "" || m.GetGeneration() != 1 || m.GetCreationTimestamp() == nil ||
		m.GetResourceVersion() == "" || m.GetTraceContext() != "" {
		t.Fatalf("metadata %v", m)
	}
	if got.GetStatus().GetPhase() != "Pending" || got.GetStatus().GetQosClass() != "BestEffort" {
		t.Fatalf("status %v", got.GetStatus())
	}
	read := must[*corev1.Pod](t)(e.pods.Get(t.Context(), "default", "a"))
	if !proto.Equal(got, read) {
		t.Fatalf("created %v\nread %v", got, read)
	}
}

func TestCreateIsRefused(t *testing.T) {
	e := newEnv(t)
	must[*corev1.Pod](t)(e.pods.Create(t.Context(), pod("taken")))
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		reason apierr.Reason
		text   string
	}{
		"taken name":         {pod("taken"), apierr.ReasonAlreadyExists, "default/taken"},
		"no namespace":       {pod("a", func(p *corev1.Pod) { p.Metadata.Namespace = "" }), apierr.ReasonInvalid, "metadata.namespace: Required value"},
		"namespace missing":  {pod("a", func(p *corev1.Pod) { p.Metadata.Namespace = "nowhere" }), apierr.ReasonNotFound, `"nowhere"`},
		"no name":            {pod(""), apierr.ReasonInvalid, "metadata.name: Required value: name or generateName is required"},
		"bad name":           {pod("Not_A_Name"), apierr.ReasonInvalid, `metadata.name: Invalid value: "Not_A_Name": a lowercase RFC 1123 subdomain`},
		"name with a slash":  {pod("a/b"), apierr.ReasonInvalid, "metadata.name"},
		"resource version":   {pod("a", func(p *corev1.Pod) { p.Metadata.ResourceVersion = "1" }), apierr.ReasonInvalid, "metadata.resourceVersion"},
		"class unknown":      {pod("a", func(p *corev1.Pod) { p.Spec.PriorityClassName = proto.String("none") }), apierr.ReasonForbidden, "no PriorityClass with name none was found"},
		"priority by number": {pod("a", func(p *corev1.Pod) { p.Spec.Priority = proto.Int32(5) }), apierr.ReasonForbidden, "must not be provided in pod spec"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := e.pods.Create(t.Context(), c.pod)
			wantError(t, err, c.reason, c.text)
		})
	}
}

func TestGenerateName(t *testing.T) {
	e := newEnv(t)
	form := regexp.MustCompile(`^web-[bcdfghjklmnpqrstvwxz2456789]{5}$`)
	for range 20 {
		got := must[*corev1.Pod](t)(e.pods.Create(t.Context(), pod("", func(p *corev1.Pod) { p.Metadata.GenerateName = "web-" })))
		if !form.MatchString(got.GetMetadata().GetName()) {
			t.Fatalf("name %q", got.GetMetadata().GetName())
		}
	}
}

func TestDryRunStoresNothing(t *testing.T) {
	e := newEnv(t)
	before := e.Revision(t)
	dry := e.pods.With(&metav1.WriteOptions{DryRun: true})
	must[*corev1.Pod](t)(dry.Create(t.Context(), pod("a")))
	_, err := dry.Create(t.Context(), pod("Bad"))
	wantError(t, err, apierr.ReasonInvalid)
	if now := e.Revision(t); now != before {
		t.Fatalf("revision moved from %d to %d", before, now)
	}
}

func TestUpdateVersions(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	first := must[*corev1.ConfigMap](t)(e.maps.Create(ctx, configMap("a", "1")))
	next := clone(first)
	next.Data["k"] = "2"
	second := must[*corev1.ConfigMap](t)(e.maps.Update(ctx, next))

	stale := clone(first)
	stale.Data["k"] = "3"
	_, err := e.maps.Update(ctx, stale)
	wantError(t, err, apierr.ReasonConflict,
		"based on resourceVersion "+first.GetMetadata().GetResourceVersion(), "the object is at "+second.GetMetadata().GetResourceVersion())

	stale.Metadata.ResourceVersion = ""
	third := must[*corev1.ConfigMap](t)(e.maps.Update(ctx, stale))
	if third.GetData()["k"] != "3" {
		t.Fatal("an unconditional update was not applied")
	}
	before := e.Revision(t)
	same := must[*corev1.ConfigMap](t)(e.maps.Update(ctx, third))
	if !proto.Equal(same, third) || e.Revision(t) != before {
		t.Fatalf("a no-op update wrote: %v", same)
	}
	other := clone(third)
	other.Metadata.Uid = "another"
	_, err = e.maps.Update(ctx, other)
	wantError(t, err, apierr.ReasonConflict, "UID in precondition: another")
	_, err = e.maps.Update(ctx, configMap("absent", "1"))
	wantError(t, err, apierr.ReasonNotFound)

	leases := client.For[*coordinationv1.Lease](e.Conn())
	lease := must[*coordinationv1.Lease](t)(leases.Create(ctx, &coordinationv1.Lease{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "l"}}))
	lease.Metadata.ResourceVersion = ""
	_, err = leases.Update(ctx, lease)
	wantError(t, err, apierr.ReasonInvalid, "metadata.resourceVersion", "must be specified for an update")
}

func TestSpecAndStatusAreApart(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	nodes := client.For[*corev1.Node](e.Conn())
	node := must[*corev1.Node](t)(nodes.Create(ctx, &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: "n1"},
		Status:   &corev1.NodeStatus{Capacity: map[string]string{"cpu": "4"}},
	}))
	if node.GetStatus().GetCapacity()["cpu"] != "4" {
		t.Fatal("a node agent registers its node with its status")
	}
	edit := clone(node)
	edit.Spec = &corev1.NodeSpec{Unschedulable: proto.Bool(true)}
	edit.Status.Capacity["cpu"] = "8"
	edit.Metadata.Labels = map[string]string{"a": "b"}
	viaStatus := must[*corev1.Node](t)(nodes.UpdateStatus(ctx, edit))
	if viaStatus.GetStatus().GetCapacity()["cpu"] != "8" || viaStatus.GetSpec().GetUnschedulable() || len(viaStatus.GetMetadata().GetLabels()) != 0 {
		t.Fatalf("UpdateStatus changed more than status: %v", viaStatus)
	}
	if viaStatus.GetMetadata().GetGeneration() != 1 {
		t.Fatal("a change of status moved generation")
	}
	edit.Metadata.ResourceVersion = ""
	edit.Status.Capacity["cpu"] = "16"
	viaMain := must[*corev1.Node](t)(nodes.Update(ctx, edit))
	if viaMain.GetStatus().GetCapacity()["cpu"] != "8" || !viaMain.GetSpec().GetUnschedulable() || viaMain.GetMetadata().GetGeneration() != 2 {
		t.Fatalf("Update: %v", viaMain)
	}
}

func TestPodSpecIsFixed(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	created := must[*corev1.Pod](t)(e.pods.Create(ctx, pod("a")))
	allowed := clone(created)
	allowed.Spec.Containers[0].Image = "registry.example/app:2"
	allowed.Spec.Tolerations = append(allowed.Spec.Tolerations, &corev1.Toleration{Key: proto.String("x"), Operator: proto.String("Exists")})
	allowed.Spec.ActiveDeadlineSeconds = proto.Int64(60)
	updated := must[*corev1.Pod](t)(e.pods.Update(ctx, allowed))
	if updated.GetMetadata().GetGeneration() != 2 {
		t.Fatalf("generation %d", updated.GetMetadata().GetGeneration())
	}
	for name, edit := range map[string]func(*corev1.PodSpec){
		"spec.containers":              func(s *corev1.PodSpec) { s.Containers[0].Args = []string{"x"} },
		"spec.nodeName":                func(s *corev1.PodSpec) { s.NodeName = proto.String("n1") },
		"spec.nodeSelector":            func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"a": "b"} },
		"spec.activeDeadlineSeconds":   func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = proto.Int64(90) },
		"spec.tolerations":             func(s *corev1.PodSpec) { s.Tolerations = s.Tolerations[1:] },
		"may not add or remove":        func(s *corev1.PodSpec) { s.Containers = append(s.Containers, &corev1.Container{Name: "d", Image: "i"}) },
		"spec.terminationGracePeriodS": func(s *corev1.PodSpec) { s.TerminationGracePeriodSeconds = proto.Int64(5) },
	} {
		t.Run(name, func(t *testing.T) {
			next := clone(updated)
			edit(next.Spec)
			_, err := e.pods.Update(ctx, next)
			wantError(t, err, apierr.ReasonInvalid, name)
		})
	}
}

func TestDelete(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	must[*corev1.ConfigMap](t)(e.maps.Create(ctx, configMap("a", "1")))
	_, err := e.maps.Delete(ctx, "default", "a", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: proto.String("other")}})
	wantError(t, err, apierr.ReasonConflict, "UID in precondition")
	must[*corev1.ConfigMap](t)(e.maps.Delete(ctx, "default", "a", nil))
	_, err = e.maps.Delete(ctx, "default", "a", nil)
	wantError(t, err, apierr.ReasonNotFound)

	held := configMap("held", "1")
	held.Metadata.Finalizers = []string{"example.com/hold"}
	must[*corev1.ConfigMap](t)(e.maps.Create(ctx, held))
	marked := must[*corev1.ConfigMap](t)(e.maps.Delete(ctx, "default", "held", nil))
	if marked.GetMetadata().GetDeletionTimestamp() == nil {
		t.Fatal("a finalizer did not hold the object")
	}
	again := must[*corev1.ConfigMap](t)(e.maps.Delete(ctx, "default", "held", nil))
	if !proto.Equal(marked, again) {
		t.Fatal("deleting twice changed the object")
	}
	more := clone(marked)
	more.Metadata.Finalizers = append(more.Metadata.Finalizers, "example.com/late")
	_, err = e.maps.Update(ctx, more)
	wantError(t, err, apierr.ReasonInvalid, "no new finalizers can be added")
	revive := clone(marked)
	revive.Metadata.DeletionTimestamp = nil
	if got := must[*corev1.ConfigMap](t)(e.maps.Update(ctx, revive)); got.GetMetadata().GetDeletionTimestamp() == nil {
		t.Fatal("a deletion was taken back")
	}
	marked.Metadata.Finalizers = nil
	must[*corev1.ConfigMap](t)(e.maps.Update(ctx, marked))
	_, err = e.maps.Get(ctx, "default", "held")
	wantError(t, err, apierr.ReasonNotFound)
}

func TestPodGrace(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	must[*corev1.Pod](t)(e.pods.Create(ctx, pod("unplaced")))
	must[*corev1.Pod](t)(e.pods.Delete(ctx, "default", "unplaced", nil))
	_, err := e.pods.Get(ctx, "default", "unplaced")
	wantError(t, err, apierr.ReasonNotFound)

	placed := must[*corev1.Pod](t)(e.pods.Create(ctx, pod("placed", func(p *corev1.Pod) { p.Spec.NodeName = proto.String("n1") })))
	del := func(seconds *int64) *corev1.Pod {
		return must[*corev1.Pod](t)(e.pods.Delete(ctx, "default", "placed", &metav1.DeleteOptions{GracePeriodSeconds: seconds}))
	}
	first := del(nil)
	if first.GetMetadata().GetDeletionGracePeriodSeconds() != 30 || first.GetMetadata().GetGeneration() != placed.GetMetadata().GetGeneration()+1 {
		t.Fatalf("first deletion: %v", first.GetMetadata())
	}
	if longer := del(proto.Int64(60)); !proto.Equal(longer, first) {
		t.Fatal("a deletion was put off")
	}
	sooner := del(proto.Int64(10))
	if d := first.GetMetadata().GetDeletionTimestamp().GetSeconds() - sooner.GetMetadata().GetDeletionTimestamp().GetSeconds(); d != 20 {
		t.Fatalf("deletion came %d s closer, want 20", d)
	}
	del(proto.Int64(0))
	_, err = e.pods.Get(ctx, "default", "placed")
	wantError(t, err, apierr.ReasonNotFound)
}

func TestNamespaceLifecycle(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	spaces := client.For[*corev1.Namespace](e.Conn())
	_, err := spaces.Delete(ctx, "", "default", nil)
	wantError(t, err, apierr.ReasonForbidden, "may not be deleted")
	ns := must[*corev1.Namespace](t)(spaces.Create(ctx, &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "team"}}))
	if ns.GetStatus().GetPhase() != "Active" || !slices.Equal(ns.GetSpec().GetFinalizers(), []string{"kubernetes"}) ||
		ns.GetMetadata().GetLabels()["kubernetes.io/metadata.name"] != "team" {
		t.Fatalf("new namespace %v", ns)
	}
	// Right after its creation, before any cache can know of it.
	inside := configMap("a", "1")
	inside.Metadata.Namespace = "team"
	must[*corev1.ConfigMap](t)(e.maps.Create(ctx, clone(inside)))
	ns = must[*corev1.Namespace](t)(spaces.Delete(ctx, "", "team", nil))
	if ns.GetStatus().GetPhase() != "Terminating" {
		t.Fatalf("deleted namespace is %s", ns.GetStatus().GetPhase())
	}
	must[*corev1.ConfigMap](t)(e.maps.Delete(ctx, "team", "a", nil))
	ns.Spec.Finalizers = nil
	must[*corev1.Namespace](t)(spaces.Update(ctx, ns))
	_, err = spaces.Get(ctx, "", "team")
	wantError(t, err, apierr.ReasonNotFound)
}

func TestUpdateWithoutSpecDoesNotEndANamespace(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	spaces := client.For[*corev1.Namespace](e.Conn())
	must[*corev1.Namespace](t)(spaces.Create(ctx, &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "team"}}))
	must[*corev1.Namespace](t)(spaces.Delete(ctx, "", "team", nil))
	must[*corev1.Namespace](t)(spaces.Update(ctx, &corev1.Namespace{Metadata: &metav1.ObjectMeta{Name: "team", Labels: map[string]string{"a": "b"}}}))
	ns := must[*corev1.Namespace](t)(spaces.Get(ctx, "", "team"))
	if !slices.Equal(ns.GetSpec().GetFinalizers(), []string{"kubernetes"}) {
		t.Errorf("spec %v", ns.GetSpec())
	}
}

func TestDeleteCollection(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	for i := range 5 {
		m := configMap(fmt.Sprint("m", i), "1")
		m.Metadata.Labels = map[string]string{"odd": fmt.Sprint(i % 2)}
		must[*corev1.ConfigMap](t)(e.maps.Create(ctx, m))
	}
	resp, err := e.cmRaw.DeleteCollection(ctx, &metav1.DeleteCollectionRequest{Namespace: "default", LabelSelector: "odd=0"})
	if err != nil || resp.GetDeleted() != 3 {
		t.Fatalf("%v %v", resp, err)
	}
	left := must[*client.List[*corev1.ConfigMap]](t)(e.maps.List(ctx, client.ListOptions{Namespace: "default"}))
	if len(left.Items) != 2 {
		t.Fatalf("%d left", len(left.Items))
	}
	_, err = e.cmRaw.DeleteCollection(ctx, &metav1.DeleteCollectionRequest{})
	wantError(t, err, apierr.ReasonInvalid, "namespace")
}

func TestPatch(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	must[*corev1.Pod](t)(e.pods.Create(ctx, pod("a")))
	patch := func(typ metav1.PatchType, text, sub string) (*corev1.Pod, error) {
		return e.raw.Patch(ctx, &metav1.PatchRequest{Namespace: "default", Name: "a", Type: typ, Patch: []byte(text), Subresource: sub})
	}
	const merge, ops = metav1.PatchType_PATCH_TYPE_MERGE, metav1.PatchType_PATCH_TYPE_JSON
	got := must[*corev1.Pod](t)(patch(merge, `{"metadata":{"labels":{"a":"b","c":"d"}},"status":{"phase":"Running"}}`, ""))
	if got.GetMetadata().GetLabels()["a"] != "b" || got.GetStatus().GetPhase() != "Pending" {
		t.Fatalf("merge patch: %v", got)
	}
	got = must[*corev1.Pod](t)(patch(ops, `[{"op":"test","path":"/metadata/labels/a","value":"b"},{"op":"remove","path":"/metadata/labels/c"}]`, ""))
	if len(got.GetMetadata().GetLabels()) != 1 {
		t.Fatalf("JSON patch: %v", got.GetMetadata())
	}
	got = must[*corev1.Pod](t)(patch(merge, `{"status":{"phase":"Running","podIP":"10.0.0.1"},"metadata":{"labels":null}}`, "status"))
	if got.GetStatus().GetPodIp() != "10.0.0.1" || len(got.GetMetadata().GetLabels()) != 1 {
		t.Fatalf("status patch: %v", got)
	}
	before := e.Revision(t)
	must[*corev1.Pod](t)(patch(merge, `{}`, ""))
	if e.Revision(t) != before {
		t.Fatal("an empty patch wrote")
	}
	for text, want := range map[string]string{
		`{"spec":{"nope":1}}`:                          "nope",
		`{"metadata":{"name":"b"}}`:                    "metadata.name",
		`{"spec":{"restartPolicy":"Sometimes"}}`:       "Unsupported value: \"Sometimes\"",
		`[1]`:                                          "not a JSON object",
		`{"metadata":{"labels":{"a":{"b":"c"}}}}`:      "labels",
		`{"spec":{"containers":[{"name":"c"}]}}`:       "spec.containers[0].image: Required value",
		`{"metadata":{"resourceVersion":"1"}}`:         "resourceVersion 1",
		`{"metadata":{"annotations":{"bad key":"x"}}}`: "metadata.annotations",
	} {
		_, err := patch(merge, text, "")
		reason := apierr.ReasonInvalid
		if want == "resourceVersion 1" {
			reason = apierr.ReasonConflict
		}
		wantError(t, err, reason, want)
	}
	_, err := patch(ops, `[{"op":"remove","path":"/spec/nothing"}]`, "")
	wantError(t, err, apierr.ReasonInvalid, "does not apply")
	_, err = patch(ops, `{`, "")
	wantError(t, err, apierr.ReasonInvalid, "not a JSON patch")
	_, err = patch(merge, `{}`, "scale")
	wantError(t, err, apierr.ReasonInvalid, "no subresource")
	_, err = patch(0, `{}`, "")
	wantError(t, err, apierr.ReasonInvalid, "supported values")
}

func TestLostAnswersAreUnavailable(t *testing.T) {
	e := newEnv(t)
	e.SetFault(func(op apitest.Operation) error {
		if op.Name == "commit" && op.Done {
			return apitest.ErrUnavailable
		}
		return nil
	})
	_, err := e.maps.Create(t.Context(), configMap("a", "1"))
	wantError(t, err, apierr.ReasonUnavailable)
	e.SetFault(func(apitest.Operation) error { return errors.New("disk on fire") })
	_, err = e.maps.Get(t.Context(), "default", "a")
	wantError(t, err, apierr.ReasonInternal)
	e.SetFault(nil)
	must[*corev1.ConfigMap](t)(e.maps.Get(t.Context(), "default", "a"))
}

func TestBind(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	binding := func(name, node string) *corev1.Binding {
		p := must[*corev1.Pod](t)(e.pods.Get(ctx, "default", name))
		return &corev1.Binding{Namespace: "default", PodName: name, PodUid: p.GetMetadata().GetUid(), NodeName: node}
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		must[*corev1.Pod](t)(e.pods.Create(ctx, pod(name)))
	}
	must[*corev1.Pod](t)(e.pods.Create(ctx, pod("gated", func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []*corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	})))
	bind := func(bindings ...*corev1.Binding) *corev1.BindGroupResult {
		resp := must[*corev1.BindResponse](t)(e.raw.Bind(ctx, &corev1.BindRequest{Groups: []*corev1.BindGroup{{Bindings: bindings}}}))
		return resp.GetResults()[0]
	}
	r := bind(binding("a", "n1"), binding("b", "n2"))
	if r.GetError() != nil {
		t.Fatal(r)
	}
	a := must[*corev1.Pod](t)(e.pods.Get(ctx, "default", "a"))
	b := must[*corev1.Pod](t)(e.pods.Get(ctx, "default", "b"))
	if a.GetSpec().GetNodeName() != "n1" || a.GetMetadata().GetResourceVersion() != r.GetResourceVersion() ||
		b.GetMetadata().GetResourceVersion() != r.GetResourceVersion() || a.GetStatus().GetConditions()[0].GetType() != "PodScheduled" {
		t.Fatalf("bound: %v\n%v", a, b)
	}
	if r := bind(binding("a", "n1")); r.GetError() != nil || r.GetResourceVersion() != "" {
		t.Fatalf("binding again: %v", r)
	}
	wrongUID := binding("d", "n1")
	wrongUID.PodUid = "other"
	for name, c := range map[string]struct {
		bindings []*corev1.Binding
		reason   string
		index    int32
		text     string
	}{
		"other node": {[]*corev1.Binding{binding("c", "n1"), binding("a", "n2")}, "Conflict", 1, "default/a is already assigned"},
		"other uid":  {[]*corev1.Binding{wrongUID}, "Conflict", 0, "default/d has uid"},
		"not there":  {[]*corev1.Binding{{Namespace: "default", PodName: "x", NodeName: "n1"}}, "NotFound", 0, "default/x"},
		"gated":      {[]*corev1.Binding{binding("gated", "n1")}, "Invalid", 0, "schedulingGates"},
		"no node":    {[]*corev1.Binding{{Namespace: "default", PodName: "c"}}, "Invalid", 0, "nodeName"},
		"pod twice":  {[]*corev1.Binding{binding("c", "n1"), binding("c", "n2")}, "Invalid", 1, "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			got := bind(c.bindings...).GetError()
			if got.GetReason() != c.reason || got.GetIndex() != c.index || !regexp.MustCompile(regexp.QuoteMeta(c.text)).MatchString(got.GetMessage()) {
				t.Fatalf("got %v", got)
			}
		})
	}
	if c := must[*corev1.Pod](t)(e.pods.Get(ctx, "default", "c")); c.GetSpec().GetNodeName() != "" {
		t.Fatal("a group that failed bound one of its pods")
	}
	// One group's failure is its own.
	resp := must[*corev1.BindResponse](t)(e.raw.Bind(ctx, &corev1.BindRequest{Groups: []*corev1.BindGroup{
		{Bindings: []*corev1.Binding{wrongUID}}, {Bindings: []*corev1.Binding{binding("c", "n3")}},
	}}))
	if resp.GetResults()[0].GetError() == nil || resp.GetResults()[1].GetError() != nil {
		t.Fatalf("%v", resp)
	}
}
