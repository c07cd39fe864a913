package registry_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/apiserver/apitest"
)

// formerGroup is a pod group as storage version 1 had it: with the template that v1alpha2 named in field 10 of the spec.
func formerGroup(t *testing.T, name string) (key string, value []byte) {
	t.Helper()
	group := &schedulingv1.PodGroup{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: "uid-" + name, Generation: 7, ManagedFields: []*metav1.ManagedFieldsEntry{
			{Manager: proto.String("m"), Operation: proto.String("Update"), ApiVersion: proto.String("scheduling.k8s.io/v1beta1"), FieldsType: proto.String("FieldsV1")},
		}},
		Spec: &schedulingv1.PodGroupSpec{
			SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{Gang: &schedulingv1.GangSchedulingPolicy{MinCount: 2}},
			DisruptionMode:   &schedulingv1.DisruptionMode{Single: &schedulingv1.SingleDisruptionMode{}},
		},
	}
	group.Spec.ProtoReflect().SetUnknown([]byte("\x52\x08\x0a\x06\x0a\x01w\x12\x01t"))
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(group)
	if err != nil {
		t.Fatal(err)
	}
	return "/trireme/scheduling/podgroups/default/" + name, append([]byte{1, 1}, raw...)
}

func isUpgraded(g *schedulingv1.PodGroup) bool {
	return g.GetSpec().GetWorkloadRef().GetWorkloadName() == "w" && g.GetSpec().GetWorkloadRef().GetTemplateName() == "t" &&
		g.GetMetadata().GetGeneration() == 7 && len(g.GetMetadata().GetManagedFields()) == 1 && len(g.GetSpec().ProtoReflect().GetUnknown()) == 0
}

// migrate runs a migration and returns the last response of each resource.
func migrate(t *testing.T, e *env, req *componentv1.MigrateStorageRequest) map[string]*componentv1.MigrateStorageResponse {
	t.Helper()
	stream, err := componentv1.NewMaintenanceServiceClient(e.Conn()).MigrateStorage(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]*componentv1.MigrateStorageResponse{}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return last
		}
		if err != nil {
			t.Fatal(err)
		}
		if had := last[r.GetResource()]; had != nil {
			r.Unreadable = append(had.Unreadable, r.Unreadable...)
		}
		last[r.GetResource()] = r
	}
}

// TestFormerStorageVersion: what was stored under an older version is read, watched, changed and migrated as if it were new.
func TestFormerStorageVersion(t *testing.T) {
	e, ctx := newEnv(t), t.Context()
	groups := client.For[*schedulingv1.PodGroup](e.Conn())
	watch := must[*client.Watch[*schedulingv1.PodGroup]](t)(groups.Watch(ctx, client.WatchOptions{}))
	defer watch.Close()
	for _, name := range []string{"a", "b", "c"} {
		key, value := formerGroup(t, name)
		e.Put(t, key, value)
	}
	for seen := 0; seen < 3; {
		r := must[*client.Response[*schedulingv1.PodGroup]](t)(watch.Recv())
		for _, event := range r.Events {
			if seen++; !isUpgraded(event.Object) {
				t.Errorf("watched %v", event.Object)
			}
		}
	}
	for _, version := range []string{"", "0"} {
		list := must[*client.List[*schedulingv1.PodGroup]](t)(groups.List(ctx, client.ListOptions{ResourceVersion: version}))
		if len(list.Items) != 3 || !isUpgraded(list.Items[0]) {
			t.Errorf("listed %v", list.Items)
		}
	}
	got := must[*schedulingv1.PodGroup](t)(groups.Get(ctx, "default", "a"))
	if !isUpgraded(got) {
		t.Errorf("got %v", got)
	}
	got.Spec.SchedulingPolicy.Gang.MinCount = 3
	must[*schedulingv1.PodGroup](t)(groups.Update(ctx, got))
	if v := e.Stored(t, "/trireme/scheduling/podgroups/default/a"); v[1] != 2 {
		t.Errorf("an update writes storage version %d", v[1])
	}

	before := must[*schedulingv1.PodGroup](t)(groups.Get(ctx, "default", "c"))
	done := migrate(t, e, &componentv1.MigrateStorageRequest{Kind: "pg", ResumeAfter: "/trireme/scheduling/podgroups/default/b"})
	if r := done["podgroups.scheduling.k8s.io"]; len(done) != 1 || r.GetSeen() != 1 || r.GetMigrated() != 1 || !r.GetDone() || r.GetStorageVersion() != 2 {
		t.Errorf("resumed %v", done)
	}
	after := must[*schedulingv1.PodGroup](t)(groups.Get(ctx, "default", "c"))
	if !isUpgraded(after) || after.GetMetadata().GetResourceVersion() == before.GetMetadata().GetResourceVersion() {
		t.Errorf("migrated %v", after.GetMetadata())
	}
	done = migrate(t, e, &componentv1.MigrateStorageRequest{})
	if r := done["podgroups.scheduling.k8s.io"]; r.GetSeen() != 3 || r.GetMigrated() != 1 || len(done) < 10 {
		t.Errorf("migrated %v", done)
	}
	if v := e.Stored(t, "/trireme/scheduling/podgroups/default/b"); v[1] != 2 {
		t.Errorf("after a migration storage version %d", v[1])
	}
	revision := e.Revision(t)
	if r := migrate(t, e, &componentv1.MigrateStorageRequest{})["podgroups.scheduling.k8s.io"]; r.GetMigrated() != 0 || e.Revision(t) != revision {
		t.Errorf("a second migration wrote: %v", r)
	}
	stream, err := componentv1.NewMaintenanceServiceClient(e.Conn()).MigrateStorage(ctx, &componentv1.MigrateStorageRequest{Kind: "poodles"})
	if err == nil {
		_, err = stream.Recv()
	}
	wantError(t, err, apierr.ReasonInvalid, "poodles")
}

// TestMigrationBesideWriters: what somebody writes between the read and the rewrite stays as he wrote it.
func TestMigrationBesideWriters(t *testing.T) {
	e := newEnv(t)
	key, value := formerGroup(t, "a")
	e.Put(t, key, value)
	groups := client.For[*schedulingv1.PodGroup](e.Conn())
	wrote := false
	e.SetFault(func(op apitest.Operation) error {
		if op.Name == "commit" && op.Key == key && !op.Done && !wrote {
			wrote = true
			g := must[*schedulingv1.PodGroup](t)(groups.Get(context.Background(), "default", "a"))
			g.Spec.SchedulingPolicy.Gang.MinCount = 9
			must[*schedulingv1.PodGroup](t)(groups.Update(context.Background(), g))
		}
		return nil
	})
	r := migrate(t, e, &componentv1.MigrateStorageRequest{Kind: "podgroups"})["podgroups.scheduling.k8s.io"]
	if r.GetOvertaken() != 1 || r.GetMigrated() != 0 {
		t.Errorf("migration %v", r)
	}
	if g := must[*schedulingv1.PodGroup](t)(groups.Get(t.Context(), "default", "a")); g.GetSpec().GetSchedulingPolicy().GetGang().GetMinCount() != 9 {
		t.Errorf("the writer's object is %v", g)
	}
}

// TestUnreadableValues: what is no object is an error for who asks for it, left out for everybody else, and can be deleted.
func TestUnreadableValues(t *testing.T) {
	good, err := proto.Marshal(pod("x"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string][]byte{
		"empty":                   {},
		"garbage":                 []byte("not an object"),
		"one byte":                {1},
		"unknown storage version": append([]byte{1, 9}, good...),
		"cut short":               append([]byte{1, 1}, good[:len(good)-3]...),
		"text that is no UTF-8":   append([]byte{1, 1}, []byte(strings.Replace(string(good), "registry.example", "registry.\xff\xfe\xfdmple", 1))...),
		"no metadata":             {1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			e, ctx := newEnv(t), t.Context()
			must[*corev1.Pod](t)(e.pods.Create(ctx, pod("good")))
			must[*corev1.Pod](t)(e.pods.Create(ctx, pod("spoilt")))
			watch := must[*client.Watch[*corev1.Pod]](t)(e.pods.Watch(ctx, client.WatchOptions{Namespace: "default"}))
			defer watch.Close()
			var story []string
			recv := func() *client.Response[*corev1.Pod] {
				r := must[*client.Response[*corev1.Pod]](t)(watch.Recv())
				for _, event := range r.Events {
					story = append(story, event.Type.String()[len("WATCH_EVENT_TYPE_"):]+" "+event.Object.GetMetadata().GetName())
				}
				return r
			}
			for !recv().InitialEventsEnd {
			}
			const key = "/trireme/core/pods/default/spoilt"
			e.Put(t, key, value)
			// Keys of no kind, and of no shape, are nobody's.
			e.Put(t, "/trireme/core/poodles/default/x", value)
			e.Put(t, "/trireme/x", value)
			must[*corev1.Pod](t)(e.pods.Create(ctx, pod("later")))
			for len(story) < 4 {
				recv()
			}
			if got := strings.Join(story, ", "); got != "ADDED good, ADDED spoilt, DELETED spoilt, ADDED later" {
				t.Errorf("watched %s", got)
			}
			for _, version := range []string{"", "0"} {
				var warned []string
				list := must[*client.List[*corev1.Pod]](t)(e.pods.OnWarning(func(w string) { warned = append(warned, w) }).
					List(ctx, client.ListOptions{Namespace: "default", ResourceVersion: version}))
				if len(list.Items) != 2 {
					t.Errorf("listed %v", list.Items)
				}
				if len(warned) != 1 || !strings.Contains(warned[0], key) || !strings.Contains(warned[0], "default/spoilt is left out") {
					t.Errorf("warnings %q", warned)
				}
				_, err := e.raw.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: "spoilt", ResourceVersion: version})
				wantError(t, err, apierr.ReasonInternal, key, "is not a Pod")
			}
			_, err := e.pods.Update(ctx, pod("spoilt"))
			wantError(t, err, apierr.ReasonInternal, key)
			_, err = e.pods.Create(ctx, pod("spoilt"))
			wantError(t, err, apierr.ReasonAlreadyExists)
			r := migrate(t, e, &componentv1.MigrateStorageRequest{Kind: "pods"})["pods"]
			if len(r.GetUnreadable()) != 1 || r.GetUnreadable()[0].GetKey() != key || r.GetSeen() != 3 {
				t.Errorf("migration %v", r)
			}

			_, err = e.pods.Delete(ctx, "default", "spoilt", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{Uid: proto.String("u")}})
			wantError(t, err, apierr.ReasonConflict)
			must[*corev1.Pod](t)(e.pods.Delete(ctx, "default", "spoilt", nil))
			_, err = e.pods.Get(ctx, "default", "spoilt")
			wantError(t, err, apierr.ReasonNotFound)
			must[*corev1.Pod](t)(e.pods.Create(ctx, pod("spoilt")))
			var warned []string
			list := must[*client.List[*corev1.Pod]](t)(e.pods.OnWarning(func(w string) { warned = append(warned, w) }).List(ctx, client.ListOptions{Namespace: "default"}))
			if len(list.Items) != 3 || len(warned) != 0 {
				t.Errorf("at the end %d pods, warnings %q", len(list.Items), warned)
			}
		})
	}
}

// TestEventsExpire: an event goes an hour after it was last written, and watchers see it go.
func TestEventsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, ctx := newEnv(t), t.Context()
		events := client.For[*corev1.Event](e.Conn())
		event := func(name string) *corev1.Event {
			return &corev1.Event{
				Metadata:       &metav1.ObjectMeta{Namespace: "default", Name: name},
				InvolvedObject: &corev1.ObjectReference{Kind: proto.String("Pod"), Namespace: proto.String("default"), Name: proto.String("p")},
				Reason:         proto.String("Scheduled"), Count: proto.Int32(1),
			}
		}
		must[*corev1.Event](t)(events.Create(ctx, event("once")))
		again := must[*corev1.Event](t)(events.Create(ctx, event("again")))
		must[*corev1.ConfigMap](t)(e.maps.Create(ctx, configMap("stays", "v")))
		watch := must[*client.Watch[*corev1.Event]](t)(events.Watch(ctx, client.WatchOptions{Namespace: "default", ResourceVersion: again.GetMetadata().GetResourceVersion()}))
		defer watch.Close()

		time.Sleep(59 * time.Minute)
		again.Count = proto.Int32(2)
		must[*corev1.Event](t)(events.Update(ctx, again))
		must[*corev1.Event](t)(events.Get(ctx, "default", "once"))
		time.Sleep(2 * time.Minute)
		_, err := events.Get(ctx, "default", "once")
		wantError(t, err, apierr.ReasonNotFound)
		must[*corev1.Event](t)(events.Get(ctx, "default", "again"))
		must[*client.Response[*corev1.Event]](t)(watch.Recv())
		r := must[*client.Response[*corev1.Event]](t)(watch.Recv())
		if len(r.Events) != 1 || r.Events[0].Type != metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED || r.Events[0].Object.GetReason() != "Scheduled" {
			t.Errorf("watched %v", r.Events)
		}
		time.Sleep(time.Hour)
		_, err = events.Get(ctx, "default", "again")
		wantError(t, err, apierr.ReasonNotFound)
		must[*corev1.ConfigMap](t)(e.maps.Get(ctx, "default", "stays"))
	})
}
