package registry_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
	"trireme.dev/services/apiserver/internal/storage"
)

func deploymentsOf(e *env) *client.Resource[*appsv1.Deployment] {
	return client.For[*appsv1.Deployment](e.Conn())
}

// plain is a deployment that nobody keeps owners of.
func plain(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: &appsv1.DeploymentSpec{
		Replicas: proto.Int32(2), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: &corev1.PodTemplateSpec{Metadata: &metav1.ObjectMeta{Labels: labels}, Spec: pod("x").Spec},
	}}
}

// A write that changes nothing keeps the version and makes no event, whatever the verb, and whether owners are kept or not.
func TestWritesThatChangeNothing(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	d := deploymentsOf(e)
	m := must[*appsv1.Deployment](t)
	apps := appsv1.NewDeploymentServiceClient(e.Conn())
	web(t, e)
	m(d.Create(ctx, plain("plain")))
	for _, name := range []string{"web", "plain"} {
		live := m(d.Get(ctx, "default", name))
		live.Status = &appsv1.DeploymentStatus{Replicas: 2}
		live = m(d.UpdateStatus(ctx, live))
		patch := func(kind metav1.PatchType, text, sub string) func() (*appsv1.Deployment, error) {
			return func() (*appsv1.Deployment, error) {
				return d.Patch(ctx, "default", name, kind, []byte(text), sub)
			}
		}
		for what, write := range map[string]func() (*appsv1.Deployment, error){
			"update":        func() (*appsv1.Deployment, error) { return d.Update(ctx, clone(live)) },
			"update status": func() (*appsv1.Deployment, error) { return d.UpdateStatus(ctx, clone(live)) },
			"update without a version": func() (*appsv1.Deployment, error) {
				c := clone(live)
				c.Metadata.ResourceVersion = ""
				return d.Update(ctx, c)
			},
			"update of a status alone": func() (*appsv1.Deployment, error) {
				c := clone(live)
				c.Status.Replicas = 9
				return d.Update(ctx, c)
			},
			"update status of a spec alone": func() (*appsv1.Deployment, error) {
				c := clone(live)
				c.Spec.Replicas = proto.Int32(9)
				c.Metadata.Labels = map[string]string{"a": "b"}
				return d.UpdateStatus(ctx, c)
			},
			"what the gateway owns": func() (*appsv1.Deployment, error) {
				c := clone(live)
				c.Metadata.Generation, c.Metadata.CreationTimestamp, c.Metadata.SelfLink = 99, nil, "/x"
				return d.Update(ctx, c)
			},
			"merge patch, empty":         patch(mergePatch, `{}`, ""),
			"merge patch, same":          patch(mergePatch, `{"spec":{"replicas":2}}`, ""),
			"merge patch, null of unset": patch(mergePatch, `{"metadata":{"annotations":{"x":null}}}`, ""),
			"merge patch of status":      patch(mergePatch, `{"status":{"replicas":2}}`, "status"),
			"JSON patch, test":           patch(jsonPatch, `[{"op":"test","path":"/spec/replicas","value":2}]`, ""),
			"JSON patch, there and back": patch(jsonPatch, `[{"op":"replace","path":"/spec/replicas","value":5},{"op":"replace","path":"/spec/replicas","value":2}]`, ""),
			"strategic, same":            patch(strategicPatch, `{"spec":{"template":{"spec":{"containers":[{"name":"`+live.GetSpec().GetTemplate().GetSpec().GetContainers()[0].GetName()+`"}]}}}}`, ""),
			"patch of scale":             patch(mergePatch, `{"spec":{"replicas":2}}`, "scale"),
			"scale": func() (*appsv1.Deployment, error) {
				_, err := apps.UpdateScale(ctx, &metav1.UpdateScaleRequest{Scale: &metav1.Scale{
					Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: &metav1.ScaleSpec{Replicas: proto.Int32(2)},
				}})
				return live, err
			},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				before := e.Revision(t)
				got, err := write()
				if err != nil {
					t.Fatal(err)
				}
				if now := e.Revision(t); now != before {
					t.Errorf("the store moved from %d to %d", before, now)
				}
				if !proto.Equal(got, live) {
					t.Errorf("answer\n%v\nwant\n%v", got, live)
				}
			})
		}
	}
}

// The generation counts changes of the spec, and the beginning of the end.
func TestGeneration(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	d := deploymentsOf(e)
	m := must[*appsv1.Deployment](t)
	obj := plain("a")
	obj.Metadata.Generation = 7
	obj.Metadata.Finalizers = []string{"example.com/hold"}
	m(d.Create(ctx, obj))
	patch := func(text, sub string) func() {
		return func() { m(d.Patch(ctx, "default", "a", mergePatch, []byte(text), sub)) }
	}
	for i, c := range []struct {
		what  string
		write func()
		want  int64
	}{
		{"creation", func() {}, 1},
		{"labels", patch(`{"metadata":{"labels":{"a":"b"}}}`, ""), 1},
		{"annotations", patch(`{"metadata":{"annotations":{"a":"b"}}}`, ""), 1},
		{"status", patch(`{"status":{"replicas":1}}`, "status"), 1},
		{"a generation sent", patch(`{"metadata":{"generation":50}}`, ""), 1},
		{"spec", patch(`{"spec":{"paused":true}}`, ""), 2},
		{"scale", patch(`{"spec":{"replicas":3}}`, "scale"), 3},
		{"the same again", patch(`{"spec":{"replicas":3}}`, "scale"), 3},
		{"deletion", func() { m(d.Delete(ctx, "default", "a", nil)) }, 4},
		{"deletion again", func() { m(d.Delete(ctx, "default", "a", nil)) }, 4},
	} {
		c.write()
		if got := m(d.Get(ctx, "default", "a")).GetMetadata().GetGeneration(); got != c.want {
			t.Errorf("%d: after %s the generation is %d, want %d", i, c.what, got, c.want)
		}
	}
	cm := must[*corev1.ConfigMap](t)(e.maps.Create(ctx, configMap("m", "1")))
	cm.Data["k"] = "2"
	cm.Metadata.Generation = 3
	if cm = must[*corev1.ConfigMap](t)(e.maps.Update(ctx, cm)); cm.GetMetadata().GetGeneration() != 0 {
		t.Errorf("a kind without spec has generation %d", cm.GetMetadata().GetGeneration())
	}
}

// errTaken makes the store say that a key is taken, or has moved.
var errTaken = &storage.ConflictError{}

// Generated names are tried eight times, then the caller hears that the name is taken.
func TestGeneratedNamesCollide(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	var mu sync.Mutex
	var tried []string
	collide := 0
	e.SetFault(func(op apitest.Operation) error {
		mu.Lock()
		defer mu.Unlock()
		name, ok := strings.CutPrefix(op.Key, "/trireme/core/pods/default/")
		if op.Name != "commit" || op.Done || !ok {
			return nil
		}
		if tried = append(tried, name); len(tried) <= collide {
			return errTaken
		}
		return nil
	})
	long := strings.Repeat("a", 60)
	form := regexp.MustCompile(`^a{58}[bcdfghjklmnpqrstvwxz2456789]{5}$`)
	for _, c := range []struct{ collide, tries int }{{0, 1}, {7, 8}, {8, 8}, {100, 8}} {
		mu.Lock()
		tried, collide = nil, c.collide
		mu.Unlock()
		got, err := e.pods.Create(ctx, pod("", func(p *corev1.Pod) { p.Metadata.GenerateName = long }))
		if c.collide >= 8 {
			wantError(t, err, apierr.ReasonAlreadyExists, "default/"+tried[7])
		} else if err != nil || got.GetMetadata().GetName() != tried[len(tried)-1] || got.GetMetadata().GetGenerateName() != long {
			t.Fatalf("%d collisions: %v, %v", c.collide, got.GetMetadata(), err)
		}
		slices.Sort(tried)
		if len(tried) != c.tries || len(slices.Compact(slices.Clone(tried))) != c.tries {
			t.Errorf("%d collisions: tried %q", c.collide, tried)
		}
		for _, name := range tried {
			if !form.MatchString(name) {
				t.Errorf("name %q", name)
			}
		}
	}
	// A name that is given is tried once.
	mu.Lock()
	tried, collide = nil, 100
	mu.Unlock()
	_, err := e.pods.Create(ctx, pod("mine"))
	wantError(t, err, apierr.ReasonAlreadyExists, "default/mine")
	if len(tried) != 1 {
		t.Errorf("tried %q", tried)
	}
}

// A patch that names no version is tried five times while others write, a conditional one never twice.
func TestPatchesAreRetried(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	live := must[*corev1.ConfigMap](t)(e.maps.Create(ctx, configMap("m", "1")))
	var tries, lose atomic.Int32
	e.SetFault(func(op apitest.Operation) error {
		if op.Name != "commit" || op.Done || op.Key != "/trireme/core/configmaps/default/m" {
			return nil
		}
		if tries.Add(1) <= lose.Load() {
			return errTaken
		}
		return nil
	})
	version := live.GetMetadata().GetResourceVersion()
	for _, c := range []struct {
		what        string
		kind        metav1.PatchType
		patch       string
		lose, tries int32
		fails       bool
	}{
		{"merge", mergePatch, `{"data":{"a":"1"}}`, 4, 5, false},
		{"merge", mergePatch, `{"data":{"a":"2"}}`, 9, 5, true},
		{"JSON", jsonPatch, `[{"op":"add","path":"/data/b","value":"1"}]`, 4, 5, false},
		{"strategic", strategicPatch, `{"data":{"c":"1"}}`, 5, 5, true},
		{"apply", applyPatch, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"d":"1"}}`, 4, 5, false},
		{"apply", applyPatch, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"d":"2"}}`, 5, 5, true},
		{"stale", mergePatch, `{"metadata":{"resourceVersion":"` + version + `"},"data":{"a":"3"}}`, 0, 0, true},
	} {
		tries.Store(0)
		lose.Store(c.lose)
		_, err := applying(e.maps, "one", false).Patch(ctx, "default", "m", c.kind, []byte(c.patch), "")
		if c.fails {
			wantError(t, err, apierr.ReasonConflict)
		} else if err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if tries.Load() != c.tries {
			t.Errorf("%s lost %d times: tried %d times, want %d", c.what, c.lose, tries.Load(), c.tries)
		}
	}
}

// Many writers of one object: none of their changes is lost, doubled or torn, and each makes one event.
func TestManyWritersOfOneObject(t *testing.T) {
	const writers, each = 8, 6
	e := newEnv(t)
	ctx := t.Context()
	start := must[*corev1.ConfigMap](t)(e.maps.Create(ctx, configMap("m", "0")))
	watch := must[corev1.ConfigMapService_WatchClient](t)(e.cmRaw.Watch(ctx, &metav1.WatchRequest{
		Namespace: "default", ResourceVersion: start.GetMetadata().GetResourceVersion(),
	}))
	var wg sync.WaitGroup
	errs := make(chan error, 2*writers)
	for w := range writers {
		wg.Go(func() { errs <- count(ctx, e, each) })
		wg.Go(func() {
			// Unconditional patches of a key of its own; after five lost tries the caller asks again.
			for i := range each {
				patch := fmt.Sprintf(`{"data":{"w%d":"%d"}}`, w, i)
				for {
					_, err := e.maps.Patch(ctx, "default", "m", mergePatch, []byte(patch), "")
					if err == nil {
						break
					}
					if !apierr.IsConflict(err) {
						errs <- err
						return
					}
				}
			}
			errs <- nil
		})
	}
	wg.Wait()
	for range 2 * writers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	final := must[*corev1.ConfigMap](t)(e.maps.Get(ctx, "default", "m"))
	if final.GetData()["k"] != strconv.Itoa(writers*each) {
		t.Errorf("counted to %s, want %d", final.GetData()["k"], writers*each)
	}
	for w := range writers {
		if got := final.GetData()[fmt.Sprint("w", w)]; got != strconv.Itoa(each-1) {
			t.Errorf("writer %d left %q", w, got)
		}
	}
	// The events: each a single step from the one before.
	last, seen := start, 0
	for last.GetMetadata().GetResourceVersion() != final.GetMetadata().GetResourceVersion() {
		resp, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range resp.GetEvents() {
			steps := 0
			for k, v := range event.GetObject().GetData() {
				was, _ := strconv.Atoi(last.GetData()[k])
				if _, had := last.GetData()[k]; !had {
					was = -1
				}
				now, _ := strconv.Atoi(v)
				if now != was {
					steps++
					if now != was+1 {
						t.Fatalf("%s went from %d to %d", k, was, now)
					}
				}
			}
			if steps != 1 {
				t.Fatalf("an event of %d changes: %v after %v", steps, event.GetObject().GetData(), last.GetData())
			}
			last = event.GetObject()
			seen++
		}
	}
	if want := 2 * writers * each; seen != want {
		t.Errorf("%d events, want %d", seen, want)
	}
}

// count adds one n times, each under the version it read.
func count(ctx context.Context, e *env, n int) error {
	for done := 0; done < n; {
		m, err := e.maps.Get(ctx, "default", "m")
		if err != nil {
			return err
		}
		now, err := strconv.Atoi(m.GetData()["k"])
		if err != nil {
			return err
		}
		m.Data["k"] = strconv.Itoa(now + 1)
		switch _, err = e.maps.Update(ctx, m); {
		case err == nil:
			done++
		case !apierr.IsConflict(err):
			return err
		}
	}
	return nil
}

// A dry run goes the whole way, and leaves nothing behind.
func TestDryRunOfEveryVerb(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	d := web(t, e)
	live := must[*appsv1.Deployment](t)(d.Get(ctx, "default", "web"))
	held := configMap("held", "1")
	held.Metadata.Finalizers = []string{"example.com/hold"}
	must[*corev1.ConfigMap](t)(e.maps.Create(ctx, held))
	dry := d.With(&metav1.WriteOptions{DryRun: true, FieldManager: "one"})
	edited := func(edit func(*appsv1.Deployment)) *appsv1.Deployment {
		c := clone(live)
		edit(c)
		return c
	}
	replicas := func(n int32) func(*appsv1.Deployment) bool {
		return func(d *appsv1.Deployment) bool {
			return d.GetSpec().GetReplicas() == n && d.GetMetadata().GetGeneration() == 2
		}
	}
	patch := func(kind metav1.PatchType, name, text, sub string) func() (*appsv1.Deployment, error) {
		return func() (*appsv1.Deployment, error) {
			return dry.Patch(ctx, "default", name, kind, []byte(text), sub)
		}
	}
	elsewhere := plain("elsewhere")
	elsewhere.Metadata.Namespace = "nowhere"
	for what, c := range map[string]struct {
		write  func() (*appsv1.Deployment, error)
		good   func(*appsv1.Deployment) bool
		reason apierr.Reason
	}{
		"create": {func() (*appsv1.Deployment, error) { return dry.Create(ctx, plain("new")) }, func(d *appsv1.Deployment) bool {
			return d.GetMetadata().GetUid() != "" && d.GetSpec().GetRevisionHistoryLimit() == 10
		}, ""},
		"create, generated": {func() (*appsv1.Deployment, error) {
			p := plain("x")
			p.Metadata.Name, p.Metadata.GenerateName = "", "x-"
			return dry.Create(ctx, p)
		}, func(d *appsv1.Deployment) bool { return len(d.GetMetadata().GetName()) == 7 }, ""},
		"create what exists":     {func() (*appsv1.Deployment, error) { return dry.Create(ctx, plain("web")) }, nil, apierr.ReasonAlreadyExists},
		"create, refused inside": {func() (*appsv1.Deployment, error) { return dry.Create(ctx, elsewhere) }, nil, apierr.ReasonNotFound},
		"update": {func() (*appsv1.Deployment, error) {
			return dry.Update(ctx, edited(func(d *appsv1.Deployment) { d.Spec.Replicas = proto.Int32(5) }))
		}, replicas(5), ""},
		"update, invalid": {func() (*appsv1.Deployment, error) {
			return dry.Update(ctx, edited(func(d *appsv1.Deployment) { d.Spec.Replicas = proto.Int32(-5) }))
		}, nil, apierr.ReasonInvalid},
		"update, stale": {func() (*appsv1.Deployment, error) {
			return dry.Update(ctx, edited(func(d *appsv1.Deployment) { d.Metadata.ResourceVersion = "1" }))
		}, nil, apierr.ReasonConflict},
		"update status": {func() (*appsv1.Deployment, error) {
			return dry.UpdateStatus(ctx, edited(func(d *appsv1.Deployment) { d.Status = &appsv1.DeploymentStatus{Replicas: 5} }))
		}, func(d *appsv1.Deployment) bool {
			return d.GetStatus().GetReplicas() == 5 && d.GetMetadata().GetGeneration() == 1
		}, ""},
		"merge patch":           {patch(mergePatch, "web", `{"spec":{"replicas":5}}`, ""), replicas(5), ""},
		"JSON patch":            {patch(jsonPatch, "web", `[{"op":"replace","path":"/spec/replicas","value":5}]`, ""), replicas(5), ""},
		"strategic merge patch": {patch(strategicPatch, "web", `{"spec":{"replicas":5}}`, ""), replicas(5), ""},
		"patch of scale":        {patch(mergePatch, "web", `{"spec":{"replicas":5}}`, "scale"), replicas(5), ""},
		"apply":                 {patch(applyPatch, "web", strings.Replace(webDeployment, `"replicas":2`, `"replicas":5`, 1), ""), replicas(5), ""},
		"apply something new":   {patch(applyPatch, "new", strings.Replace(webDeployment, `"metadata":{"name":"web"}`, `"metadata":{"name":"new"}`, 1), ""), func(d *appsv1.Deployment) bool { return d.GetMetadata().GetName() == "new" }, ""},
		"delete": {func() (*appsv1.Deployment, error) {
			return d.Delete(ctx, "default", "web", &metav1.DeleteOptions{DryRun: true})
		}, func(d *appsv1.Deployment) bool { return proto.Equal(d, live) }, ""},
		"delete in the foreground": {func() (*appsv1.Deployment, error) {
			return d.Delete(ctx, "default", "web", &metav1.DeleteOptions{DryRun: true, PropagationPolicy: "Foreground"})
		}, func(d *appsv1.Deployment) bool {
			return slices.Equal(d.GetMetadata().GetFinalizers(), []string{"foregroundDeletion"})
		}, ""},
		"delete collection": {func() (*appsv1.Deployment, error) {
			resp, err := e.cmRaw.DeleteCollection(ctx, &metav1.DeleteCollectionRequest{Namespace: "default", Options: &metav1.DeleteOptions{DryRun: true}})
			if err == nil && resp.GetDeleted() != 1 {
				err = fmt.Errorf("%d deleted", resp.GetDeleted())
			}
			return live, err
		}, func(*appsv1.Deployment) bool { return true }, ""},
	} {
		t.Run(what, func(t *testing.T) {
			before := e.Revision(t)
			got, err := c.write()
			if c.reason != "" {
				wantError(t, err, c.reason)
			} else if err != nil || !c.good(got) {
				t.Fatalf("%v, %v", got, err)
			}
			if now := e.Revision(t); now != before {
				t.Fatalf("the store moved from %d to %d", before, now)
			}
		})
	}
}

// What of the metadata a write may touch, through the object and through its status.
func TestIsolation(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	live := must[*corev1.Pod](t)(e.pods.Create(ctx, pod("a")))
	next := clone(live)
	next.Status.Phase, next.Status.Message = "Running", "m"
	next.Spec.Containers[0].Image = "other"
	next.Metadata.Labels = map[string]string{"a": "b"}
	next.Metadata.Annotations = map[string]string{"a": "b"}
	next.Metadata.Finalizers = []string{"example.com/hold"}
	next.Metadata.OwnerReferences = []*metav1.OwnerReference{{ApiVersion: "v1", Kind: "Pod", Name: "p", Uid: "u"}}

	got := must[*corev1.Pod](t)(e.pods.UpdateStatus(ctx, clone(next)))
	want := clone(live)
	want.Status = next.Status
	want.Metadata.ResourceVersion = got.GetMetadata().GetResourceVersion()
	if !proto.Equal(got, want) {
		t.Errorf("through the status\n%v\nwant\n%v", got, want)
	}
	// A status that is stale is refused, one without a version goes.
	_, err := e.pods.UpdateStatus(ctx, clone(next))
	wantError(t, err, apierr.ReasonConflict, "has been changed")

	main := clone(next)
	main.Metadata.ResourceVersion = ""
	main.Status.Phase = "Failed"
	got = must[*corev1.Pod](t)(e.pods.Update(ctx, main))
	if got.GetStatus().GetPhase() != "Running" || got.GetSpec().GetContainers()[0].GetImage() != "other" || len(got.GetMetadata().GetFinalizers()) != 1 ||
		got.GetMetadata().GetLabels()["a"] != "b" || len(got.GetMetadata().GetOwnerReferences()) != 1 {
		t.Errorf("through the object %v", got)
	}
	// Kinds without a status say so.
	_, err = e.pods.Patch(ctx, "default", "a", mergePatch, []byte(`{}`), "ephemeralcontainers")
	wantError(t, err, apierr.ReasonInvalid, `no subresource "ephemeralcontainers"`)
	_, err = e.maps.Patch(ctx, "default", "m", mergePatch, []byte(`{}`), "status")
	wantError(t, err, apierr.ReasonInvalid, `no subresource "status"`)
	if errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
