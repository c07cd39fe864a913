package registry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client"
	"trireme.dev/client/kind"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// with makes an object of a kind that has a value at a path.
func with(t *testing.T, k *kind.Kind, name, path string, value protoreflect.Value) client.Object {
	t.Helper()
	obj, ok := k.Message.New().Interface().(client.Object)
	if !ok {
		t.Fatalf("%s is no object", k.Name)
	}
	meta := &metav1.ObjectMeta{Name: name, Uid: "uid-" + name}
	if k.Namespaced {
		meta.Namespace = "default"
	}
	m := obj.ProtoReflect()
	m.Set(m.Descriptor().Fields().ByName("metadata"), protoreflect.ValueOfMessage(meta.ProtoReflect()))
	if path == "" {
		return obj
	}
	steps := strings.Split(path, ".")
	for _, step := range steps[:len(steps)-1] {
		m = m.Mutable(m.Descriptor().Fields().ByJSONName(step)).Message()
	}
	m.Set(m.Descriptor().Fields().ByJSONName(steps[len(steps)-1]), value)
	return obj
}

// fieldAt finds the field that a path ends in.
func fieldAt(t *testing.T, k *kind.Kind, path string) protoreflect.FieldDescriptor {
	t.Helper()
	d := k.Message.Descriptor()
	var fd protoreflect.FieldDescriptor
	for step := range strings.SplitSeq(path, ".") {
		if d == nil || d.Fields().ByJSONName(step) == nil {
			t.Fatalf("%s has no field %s", k.Name, path)
		}
		fd = d.Fields().ByJSONName(step)
		d = fd.Message()
	}
	return fd
}

// TestEverySelectableField: each field that a kind says can be selected by selects the objects that have the value, for lists and
// watches; so do name, namespace and owner of every kind.
func TestEverySelectableField(t *testing.T) {
	e, ctx := newEnv(t), t.Context()
	tried := 0
	for _, k := range kind.Builtin().All() {
		put := func(obj client.Object) {
			t.Helper()
			raw, err := proto.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			meta := obj.GetMetadata()
			key := strings.Join([]string{"/trireme", k.Group, k.Plural, meta.GetNamespace(), meta.GetName()}, "/")
			e.Put(t, strings.ReplaceAll(key, "//", "/"), append([]byte{1, byte(max(1, k.Options.GetStorageVersion()))}, raw...))
		}
		objects := client.Dynamic(e.Conn(), k)
		// among lists, and watches from nothing, what a selector selects of some objects.
		among := func(fields string, names ...string) []string {
			t.Helper()
			list := must[*client.List[client.Object]](t)(objects.List(ctx, client.ListOptions{FieldSelector: fields}))
			watch := must[*client.Watch[client.Object]](t)(objects.Watch(ctx, client.WatchOptions{FieldSelector: fields}))
			defer watch.Close()
			var listed, watched []string
			for _, obj := range list.Items {
				listed = append(listed, obj.GetMetadata().GetName())
			}
			for end := false; !end; {
				r := must[*client.Response[client.Object]](t)(watch.Recv())
				for _, event := range r.Events {
					watched = append(watched, event.Object.GetMetadata().GetName())
				}
				end = r.InitialEventsEnd
			}
			other := func(name string) bool { return !slices.Contains(names, name) }
			listed, watched = slices.DeleteFunc(listed, other), slices.DeleteFunc(watched, other)
			slices.Sort(listed)
			slices.Sort(watched)
			if !slices.Equal(listed, watched) {
				t.Errorf("%s by %s: listed %v, watched %v", k.Name, fields, listed, watched)
			}
			return listed
		}
		want := func(fields string, got []string, names ...string) {
			t.Helper()
			if tried++; !slices.Equal(got, names) {
				t.Errorf("%s by %s: %v, want %v", k.Name, fields, got, names)
			}
		}
		for i, path := range k.Options.GetSelectableFields() {
			var one, two protoreflect.Value
			var text string
			switch fd := fieldAt(t, k, path); fd.Kind() {
			case protoreflect.StringKind:
				one, two, text = protoreflect.ValueOfString("one"), protoreflect.ValueOfString("two"), "one"
			case protoreflect.BoolKind:
				one, two, text = protoreflect.ValueOfBool(true), protoreflect.ValueOfBool(false), "true"
			case protoreflect.Int32Kind:
				one, two, text = protoreflect.ValueOfInt32(7), protoreflect.ValueOfInt32(8), "7"
			default:
				t.Fatalf("%s of %s is a %s: say here what its values look like", path, k.Name, fd.Kind())
			}
			a, b, c := fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i), fmt.Sprintf("c%d", i)
			put(with(t, k, a, path, one))
			put(with(t, k, b, path, two))
			put(with(t, k, c, "", protoreflect.Value{})) // without the field
			for fields, names := range map[string][]string{
				path + "=" + text: {a}, path + "==" + text: {a}, path + "!=" + text: {b, c},
				path + "=" + text + ",metadata.name=" + b: nil, path + "=" + text + ",metadata.name!=" + b: {a},
			} {
				want(fields, among(fields, a, b, c), names...)
			}
		}
		owned := with(t, k, "owned", "", protoreflect.Value{})
		owned.GetMetadata().OwnerReferences = []*metav1.OwnerReference{{Uid: "owner"}}
		put(owned)
		put(with(t, k, "free", "", protoreflect.Value{}))
		for fields, names := range map[string][]string{
			"metadata.name=owned": {"owned"}, "metadata.name!=owned": {"free"},
			"metadata.ownerReferences.uid=owner": {"owned"}, "metadata.ownerReferences.uid!=owner": {"free"},
		} {
			want(fields, among(fields, "owned", "free"), names...)
		}
		if k.Namespaced {
			want("metadata.namespace", among("metadata.namespace=default", "owned", "free"), "free", "owned")
			want("metadata.namespace", among("metadata.namespace!=default", "owned", "free"))
		}
	}
	if tried < 100 {
		t.Errorf("%d selectors tried", tried)
	}
}
