package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/internal/gatewaytest"
	"trireme.dev/client/kind"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Data:     map[string]string{"v": value},
	}
}

func TestVerbs(t *testing.T) {
	g := gatewaytest.New(t)
	ctx := t.Context()
	maps := client.For[*corev1.ConfigMap](g.Conn(t))
	created, err := maps.Create(ctx, configMap("a", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if created.GetMetadata().GetUid() == "" || created.GetData()["v"] != "1" {
		t.Errorf("created %v", created)
	}
	if _, err := maps.Create(ctx, configMap("a", "1")); !apierr.IsAlreadyExists(err) {
		t.Errorf("a second Create: %v", err)
	}
	got, err := maps.Get(ctx, "default", "a")
	if err != nil || !proto.Equal(got, created) {
		t.Errorf("Get = %v, %v", got, err)
	}
	_, err = maps.Get(ctx, "default", "none")
	var e *apierr.Error
	if !errors.As(err, &e) || e.Reason != apierr.ReasonNotFound || e.Kind != "ConfigMap" || e.Key != "default/none" {
		t.Errorf("Get of nothing: %#v", err)
	}
	got.Data["v"] = "2"
	updated, err := maps.Update(ctx, got)
	if err != nil || updated.GetData()["v"] != "2" {
		t.Errorf("Update = %v, %v", updated, err)
	}
	if _, err := maps.Update(ctx, got); !apierr.IsConflict(err) {
		t.Errorf("a stale Update: %v", err)
	}
	patched, err := maps.With(&metav1.WriteOptions{FieldManager: "me"}).
		Patch(ctx, "default", "a", metav1.PatchType_PATCH_TYPE_MERGE, []byte(`{"x":1}`), "status")
	want := map[string]string{"type": "PATCH_TYPE_MERGE", "patch": `{"x":1}`, "subresource": "status", "manager": "me"}
	if err != nil || !proto.Equal(&metav1.ObjectMeta{Annotations: want}, &metav1.ObjectMeta{Annotations: patched.GetMetadata().GetAnnotations()}) {
		t.Errorf("Patch = %v, %v", patched, err)
	}
	deleted, err := maps.Delete(ctx, "default", "a", nil)
	if err != nil || deleted.GetMetadata().GetUid() != created.GetMetadata().GetUid() {
		t.Errorf("Delete = %v, %v", deleted, err)
	}
	g.Put(configMap("b", ""), configMap("c", ""))
	if n, err := maps.DeleteCollection(ctx, &metav1.DeleteCollectionRequest{Namespace: "default"}); err != nil || n != 2 {
		t.Errorf("DeleteCollection = %d, %v", n, err)
	}
	// Leases have no status.
	if _, err := maps.UpdateStatus(ctx, got); !apierr.IsUnimplemented(err) && !apierr.IsNotFound(err) {
		t.Errorf("UpdateStatus: %v", err)
	}
}

func TestListGathersChunks(t *testing.T) {
	g := gatewaytest.New(t)
	maps := client.For[*corev1.ConfigMap](g.Conn(t))
	empty, err := maps.List(t.Context(), client.ListOptions{})
	if err != nil || len(empty.Items) != 0 || empty.ResourceVersion == "" {
		t.Errorf("List of nothing = %v, %v", empty, err)
	}
	var objects []client.Object
	for i := range 7 {
		objects = append(objects, configMap(fmt.Sprint("m", i), ""))
	}
	revision := g.Put(objects...)
	list, err := maps.List(t.Context(), client.ListOptions{Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range list.Items {
		names = append(names, o.GetMetadata().GetName())
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "m0 m1 m2 m3 m4 m5 m6" || list.ResourceVersion != fmt.Sprint(revision) {
		t.Errorf("List = %s at %s", got, list.ResourceVersion)
	}
	if other, err := maps.List(t.Context(), client.ListOptions{Namespace: "other"}); err != nil || len(other.Items) != 0 {
		t.Errorf("List of another namespace = %v, %v", other, err)
	}
}

func TestWatch(t *testing.T) {
	g := gatewaytest.New(t)
	maps := client.For[*corev1.ConfigMap](g.Conn(t))
	g.Put(configMap("a", "1"))
	w, err := maps.Watch(t.Context(), client.WatchOptions{AllowBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	recv := func() *client.Response[*corev1.ConfigMap] {
		t.Helper()
		r, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := recv(); !r.InitialEventsEnd || r.More || len(r.Events) != 1 || r.Events[0].Object.GetData()["v"] != "1" {
		t.Errorf("first response %+v", r)
	}
	revision := g.Put(configMap("a", "2"), configMap("b", "1"), configMap("c", "1"))
	if r := recv(); !r.More || len(r.Events) != 2 || r.Revision != revision ||
		r.Events[0].Type != metav1.WatchEventType_WATCH_EVENT_TYPE_MODIFIED {
		t.Errorf("response %+v", r)
	}
	if r := recv(); r.More || len(r.Events) != 1 || r.Events[0].Type != metav1.WatchEventType_WATCH_EVENT_TYPE_ADDED {
		t.Errorf("response %+v", r)
	}
	recv() // The bookmark.
	w.Close()
	if _, err := w.Recv(); !errors.Is(err, context.Canceled) || !apierr.IsCanceled(err) {
		t.Errorf("Recv after Close: %v", err)
	}
	g.Compact()
	old, err := maps.Watch(t.Context(), client.WatchOptions{ResourceVersion: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Recv(); !apierr.IsExpired(err) {
		t.Errorf("Recv from a compacted revision: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	g := gatewaytest.New(t)
	var heard []string
	plain := client.For[*corev1.ConfigMap](g.Conn(t))
	maps := plain.OnWarning(func(w string) { heard = append(heard, w) })
	g.Warn("spec.größe: not enforced yet\nreally")
	if _, err := maps.Create(t.Context(), configMap("a", "")); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.List(t.Context(), client.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := plain.Get(t.Context(), "default", "a"); err != nil {
		t.Fatal(err)
	}
	want := []string{"spec.größe: not enforced yet\nreally", "spec.größe: not enforced yet\nreally"}
	if !slices.Equal(heard, want) {
		t.Errorf("heard %q", heard)
	}
}

// widgets makes a kind that no code was generated for, as it would come at run time: ConfigMap under other names.
func widgets(t *testing.T) *kind.Kind {
	t.Helper()
	files := &protoregistry.Files{}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if err := files.RegisterFile(f); err != nil {
			t.Fatal(err)
		}
		return true
	})
	for _, path := range []string{"trireme/core/v1/config_map.proto", "trireme/core/v1/config_map_service.proto"} {
		original, err := protoregistry.GlobalFiles.FindFileByPath(path)
		if err != nil {
			t.Fatal(err)
		}
		text := prototext.Format(protodesc.ToFileDescriptorProto(original))
		renamed := strings.NewReplacer("trireme.core.v1", "trireme.toys.v1", "trireme/core/v1/config_map", "trireme/toys/v1/widget",
			"ConfigMap", "Widget", "configmaps", "widgets", `"cm"`, `"wd"`, `group:"core"`, `group:"toys"`,
			`group: "core"`, `group: "toys"`, `api_versions:"v1"`, `api_versions:"toys/v1"`, `api_versions: "v1"`, `api_versions: "toys/v1"`).Replace(text)
		file := &descriptorpb.FileDescriptorProto{}
		if err := prototext.Unmarshal([]byte(renamed), file); err != nil {
			t.Fatal(err)
		}
		d, err := protodesc.NewFile(file, files)
		if err != nil {
			t.Fatal(err)
		}
		if err := files.RegisterFile(d); err != nil {
			t.Fatal(err)
		}
	}
	message, err := files.FindDescriptorByName("trireme.toys.v1.Widget")
	if err != nil {
		t.Fatal(err)
	}
	service, err := files.FindDescriptorByName("trireme.toys.v1.WidgetService")
	if err != nil {
		t.Fatal(err)
	}
	k, err := kind.New(dynamicpb.NewMessageType(message.(protoreflect.MessageDescriptor)), service.(protoreflect.ServiceDescriptor))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKindWithoutGeneratedCode(t *testing.T) {
	g := gatewaytest.New(t)
	k := widgets(t)
	g.Serve(t, k)
	r := client.Dynamic(g.Conn(t), k)
	ctx := t.Context()
	object := client.New(k)
	object.GetMetadata().Namespace, object.GetMetadata().Name = "default", "w"
	created, err := r.Create(ctx, object)
	if err != nil {
		t.Fatal(err)
	}
	if created.GetMetadata().GetName() != "w" || created.GetMetadata().GetResourceVersion() == "" {
		t.Errorf("created %v", created)
	}
	clone, ok := proto.Clone(created).(client.Object)
	if !ok || !proto.Equal(clone, created) {
		t.Fatalf("a clone is %T: %v", proto.Clone(created), clone)
	}
	clone.GetMetadata().Labels = map[string]string{"a": "b"}
	if len(created.GetMetadata().GetLabels()) != 0 {
		t.Error("a clone shares metadata with its original")
	}
	if updated, err := r.Update(ctx, clone); err != nil || updated.GetMetadata().GetLabels()["a"] != "b" {
		t.Errorf("Update = %v, %v", updated, err)
	}
	list, err := r.List(ctx, client.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetMetadata().GetLabels()["a"] != "b" || list.ResourceVersion == "" {
		t.Errorf("List = %v, %v", list, err)
	}
	w, err := r.Watch(ctx, client.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if response, err := w.Recv(); err != nil || len(response.Events) != 1 || response.Events[0].Object.GetMetadata().GetName() != "w" {
		t.Errorf("Recv = %v, %v", response, err)
	}
}

// Whoever fills an object by reflection, as decoders do, must not lose what GetMetadata shows.
func TestMetadataByReflection(t *testing.T) {
	k := widgets(t)
	for what, fill := range map[string]func(protoreflect.Message, protoreflect.FieldDescriptor) protoreflect.Message{
		"Mutable": func(m protoreflect.Message, f protoreflect.FieldDescriptor) protoreflect.Message {
			return m.Mutable(f).Message()
		},
		"Clear and Mutable": func(m protoreflect.Message, f protoreflect.FieldDescriptor) protoreflect.Message {
			m.Clear(f)
			return m.Mutable(f).Message()
		},
		"NewField and Set": func(m protoreflect.Message, f protoreflect.FieldDescriptor) protoreflect.Message {
			v := m.NewField(f)
			m.Set(f, v)
			return v.Message()
		},
	} {
		object := client.New(k)
		meta := fill(object.ProtoReflect(), object.ProtoReflect().Descriptor().Fields().ByName("metadata"))
		meta.Set(meta.Descriptor().Fields().ByName("name"), protoreflect.ValueOfString("w"))
		if got := object.GetMetadata().GetName(); got != "w" {
			t.Errorf("%s: the name is %q", what, got)
		}
	}
}

func TestDynamicUsesGeneratedMessages(t *testing.T) {
	g := gatewaytest.New(t)
	g.Put(configMap("a", "1"))
	k, ok := kind.Builtin().ByManifest("v1", "ConfigMap")
	if !ok {
		t.Fatal("no ConfigMap")
	}
	object, err := client.Dynamic(g.Conn(t), k).Get(t.Context(), "default", "a")
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := object.(*corev1.ConfigMap); !ok || m.GetData()["v"] != "1" {
		t.Errorf("got %T %v", object, object)
	}
}
