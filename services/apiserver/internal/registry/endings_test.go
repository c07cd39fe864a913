package registry_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

// How long a pod stays after its deletion: as long as somebody runs it, and no longer than was ever asked for.
func TestGraceOfPods(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	m := must[*corev1.Pod](t)
	seconds := func(n int64) *metav1.DeleteOptions { return &metav1.DeleteOptions{GracePeriodSeconds: proto.Int64(n)} }
	const gone = -1
	for name, c := range map[string]struct {
		node, phase string
		spec        *int64
		deletes     []*metav1.DeleteOptions
		want        []int64 // grace after each
	}{
		"unscheduled":           {"", "Pending", nil, []*metav1.DeleteOptions{seconds(60)}, []int64{gone}},
		"default":               {"n", "Running", nil, []*metav1.DeleteOptions{nil}, []int64{30}},
		"of the spec":           {"n", "Running", proto.Int64(7), []*metav1.DeleteOptions{nil}, []int64{7}},
		"of the spec, none":     {"n", "Running", proto.Int64(0), []*metav1.DeleteOptions{nil}, []int64{gone}},
		"asked for":             {"n", "Running", proto.Int64(7), []*metav1.DeleteOptions{seconds(9)}, []int64{9}},
		"none":                  {"n", "Running", nil, []*metav1.DeleteOptions{seconds(0)}, []int64{gone}},
		"negative is one":       {"n", "Running", nil, []*metav1.DeleteOptions{seconds(-5)}, []int64{1}},
		"shorter, not longer":   {"n", "Running", nil, []*metav1.DeleteOptions{seconds(20), seconds(40), seconds(10), nil, seconds(10)}, []int64{20, 20, 10, 10, 10}},
		"then at once":          {"n", "Running", nil, []*metav1.DeleteOptions{nil, seconds(0)}, []int64{30, gone}},
		"ended well":            {"n", "Succeeded", nil, []*metav1.DeleteOptions{nil}, []int64{gone}},
		"ended badly":           {"n", "Failed", nil, []*metav1.DeleteOptions{seconds(60)}, []int64{gone}},
		"of a node, not begun":  {"n", "Pending", nil, []*metav1.DeleteOptions{nil}, []int64{30}},
		"unknown to its agents": {"n", "Unknown", nil, []*metav1.DeleteOptions{nil}, []int64{30}},
	} {
		t.Run(name, func(t *testing.T) {
			name := strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), ",", "")
			p := m(e.pods.Create(ctx, pod(name, func(p *corev1.Pod) {
				if c.node != "" {
					p.Spec.NodeName = proto.String(c.node)
				}
				p.Spec.TerminationGracePeriodSeconds = c.spec
			})))
			p.Status.Phase = c.phase
			p = m(e.pods.UpdateStatus(ctx, p))
			for i, options := range c.deletes {
				answer := m(e.pods.Delete(ctx, "default", name, options))
				now, err := e.pods.Get(ctx, "default", name)
				if c.want[i] == gone {
					wantError(t, err, apierr.ReasonNotFound)
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				meta := now.GetMetadata()
				if !proto.Equal(answer, now) || meta.GetDeletionGracePeriodSeconds() != c.want[i] || meta.GetDeletionTimestamp() == nil {
					t.Fatalf("after deletion %d: %v", i, meta)
				}
				if meta.GetGeneration() != p.GetMetadata().GetGeneration()+1 {
					t.Errorf("generation %d after deletion %d", meta.GetGeneration(), i)
				}
			}
		})
	}
}

// Finalizers: none can be added to what is going, each can be taken off, and with the last one off the object goes, but not
// before its grace is over.
func TestFinalizers(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	m := must[*corev1.Pod](t)
	m(e.pods.Create(ctx, pod("a", func(p *corev1.Pod) {
		p.Spec.NodeName = proto.String("n")
		p.Metadata.Finalizers = []string{"example.com/a", "example.com/b"}
	})))
	p := m(e.pods.Delete(ctx, "default", "a", nil))
	ends := p.GetMetadata().GetDeletionTimestamp()
	refused := []struct {
		kind  metav1.PatchType
		patch string
	}{
		{mergePatch, `{"metadata":{"finalizers":["example.com/a","example.com/b","example.com/c"]}}`},
		{jsonPatch, `[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/c"}]`},
		{strategicPatch, `{"metadata":{"finalizers":["example.com/c"]}}`},
		{applyPatch, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","finalizers":["example.com/c"]}}`},
	}
	for _, c := range refused {
		_, err := applying(e.pods, "one", false).Patch(ctx, "default", "a", c.kind, []byte(c.patch), "")
		wantError(t, err, apierr.ReasonInvalid, "metadata.finalizers", `no new finalizers can be added if the object is being deleted, found new finalizer "example.com/c"`)
	}
	// The end cannot be taken back, put off or brought forward by a write.
	for _, patch := range []string{`{"metadata":{"deletionTimestamp":null}}`, `{"metadata":{"deletionTimestamp":"2040-01-01T00:00:00Z"}}`, `{"metadata":{"deletionGracePeriodSeconds":0}}`} {
		got := m(e.pods.Patch(ctx, "default", "a", mergePatch, []byte(patch), ""))
		if !proto.Equal(got.GetMetadata().GetDeletionTimestamp(), ends) || got.GetMetadata().GetDeletionGracePeriodSeconds() != 30 {
			t.Fatalf("%s makes %v", patch, got.GetMetadata())
		}
	}
	m(e.pods.Patch(ctx, "default", "a", mergePatch, []byte(`{"metadata":{"finalizers":["example.com/a"]}}`), ""))
	m(e.pods.Patch(ctx, "default", "a", mergePatch, []byte(`{"metadata":{"finalizers":null}}`), ""))
	m(e.pods.Get(ctx, "default", "a")) // its agent still stops it
	m(e.pods.Delete(ctx, "default", "a", &metav1.DeleteOptions{GracePeriodSeconds: proto.Int64(0)}))
	_, err := e.pods.Get(ctx, "default", "a")
	wantError(t, err, apierr.ReasonNotFound)

	// The other way round: the grace ends first.
	p = m(e.pods.Create(ctx, pod("b", func(p *corev1.Pod) {
		p.Spec.NodeName = proto.String("n")
		p.Metadata.Finalizers = []string{"example.com/a"}
	})))
	m(e.pods.Delete(ctx, "default", "b", nil))
	m(e.pods.Delete(ctx, "default", "b", &metav1.DeleteOptions{GracePeriodSeconds: proto.Int64(0)}))
	m(e.pods.Get(ctx, "default", "b"))
	// A status may still come, and does not end it.
	last := m(e.pods.Patch(ctx, "default", "b", mergePatch, []byte(`{"status":{"phase":"Failed"}}`), "status"))
	dry := m(e.pods.With(&metav1.WriteOptions{DryRun: true}).Patch(ctx, "default", "b", mergePatch, []byte(`{"metadata":{"finalizers":null}}`), ""))
	if len(dry.GetMetadata().GetFinalizers()) != 0 {
		t.Fatalf("dry run %v", dry)
	}
	w := must[corev1.PodService_WatchClient](t)(e.raw.Watch(ctx, &metav1.WatchRequest{Namespace: "default", ResourceVersion: last.GetMetadata().GetResourceVersion()}))
	answer := m(e.pods.Patch(ctx, "default", "b", mergePatch, []byte(`{"metadata":{"finalizers":null}}`), ""))
	_, err = e.pods.Get(ctx, "default", "b")
	wantError(t, err, apierr.ReasonNotFound)
	event := must[*corev1.PodWatchResponse](t)(w.Recv()).GetEvents()[0]
	if event.GetType() != deleted || event.GetObject().GetMetadata().GetUid() != p.GetMetadata().GetUid() ||
		event.GetObject().GetMetadata().GetResourceVersion() != answer.GetMetadata().GetResourceVersion() {
		t.Fatalf("the last finalizer off: event %v", event)
	}
}

func TestDeletePreconditions(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	first := must[*corev1.ConfigMap](t)(e.maps.Create(ctx, configMap("a", "1")))
	next := clone(first)
	next.Data["k"] = "2"
	second := must[*corev1.ConfigMap](t)(e.maps.Update(ctx, next))
	pre := func(uid, rv string) *metav1.DeleteOptions {
		p := &metav1.Preconditions{}
		if uid != "" {
			p.Uid = proto.String(uid)
		}
		if rv != "" {
			p.ResourceVersion = proto.String(rv)
		}
		return &metav1.DeleteOptions{Preconditions: p}
	}
	uid := first.GetMetadata().GetUid()
	for _, c := range []struct {
		options *metav1.DeleteOptions
		text    string
	}{
		{pre("other", ""), "UID in precondition: other"},
		{pre(uid, first.GetMetadata().GetResourceVersion()), "the write is based on resourceVersion " + first.GetMetadata().GetResourceVersion()},
		{pre("", "x"), "the write is based on resourceVersion x"},
	} {
		_, err := e.maps.Delete(ctx, "default", "a", c.options)
		wantError(t, err, apierr.ReasonConflict, c.text)
		c.options.DryRun = true
		_, err = e.maps.Delete(ctx, "default", "a", c.options)
		wantError(t, err, apierr.ReasonConflict, c.text)
	}
	_, err := e.maps.Delete(ctx, "default", "a", &metav1.DeleteOptions{PropagationPolicy: "Sideways"})
	wantError(t, err, apierr.ReasonInvalid, "options.propagationPolicy", `Unsupported value: "Sideways"`)
	must[*corev1.ConfigMap](t)(e.maps.Delete(ctx, "default", "a", pre(uid, second.GetMetadata().GetResourceVersion())))
}

// A collection goes object by object: the selectors choose, an object that is gone already is no failure, and a failure
// tells how many went before it.
func TestDeleteCollections(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	fill := func() {
		for i := range 6 {
			m := configMap(fmt.Sprint("m", i), "1")
			m.Metadata.Labels = map[string]string{"odd": fmt.Sprint(i % 2)}
			if i == 5 {
				m.Metadata.Finalizers = []string{"example.com/hold"}
			}
			if _, err := e.maps.Create(ctx, m); err != nil && !apierr.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
	}
	left := func() (names []string) {
		list := must[*client.List[*corev1.ConfigMap]](t)(e.maps.List(ctx, client.ListOptions{Namespace: "default"}))
		for _, m := range list.Items {
			names = append(names, m.GetMetadata().GetName())
		}
		return names
	}
	request := func(labels, fields string, options *metav1.DeleteOptions) (int32, error) {
		resp, err := e.cmRaw.DeleteCollection(ctx, &metav1.DeleteCollectionRequest{Namespace: "default", LabelSelector: labels, FieldSelector: fields, Options: options})
		return resp.GetDeleted(), err
	}
	fill()
	for _, c := range []struct {
		labels, fields, text string
	}{
		{"odd in (", "", "label selector"}, {"", "data.k=1", "data.k"},
	} {
		_, err := request(c.labels, c.fields, nil)
		wantError(t, err, apierr.ReasonInvalid, c.text)
	}
	uid := must[*corev1.ConfigMap](t)(e.maps.Get(ctx, "default", "m0")).GetMetadata().GetUid()
	_, err := request("", "", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: proto.String(uid)}})
	wantError(t, err, apierr.ReasonConflict, "after 1 deletions", "m1")
	if got := left(); len(got) != 5 {
		t.Fatalf("left %q", got)
	}
	if n, err := request("odd=0", "metadata.name!=m2", nil); err != nil || n != 1 {
		t.Fatalf("%d, %v", n, err)
	}
	// The store fails in the middle.
	e.SetFault(func(op apitest.Operation) error {
		if op.Name == "commit" && strings.HasSuffix(op.Key, "/m3") {
			return apitest.ErrUnavailable
		}
		return nil
	})
	_, err = request("", "", nil)
	wantError(t, err, apierr.ReasonUnavailable, "after 2 deletions")
	e.SetFault(nil)
	if n, err := request("", "", nil); err != nil || n != 2 {
		t.Fatalf("%d, %v", n, err)
	}
	// What a finalizer holds has begun to go, and is counted each time.
	if got := left(); len(got) != 1 || got[0] != "m5" {
		t.Fatalf("left %q", got)
	}
	if m := must[*corev1.ConfigMap](t)(e.maps.Get(ctx, "default", "m5")); m.GetMetadata().GetDeletionTimestamp() == nil {
		t.Fatalf("%v", m)
	}
}
