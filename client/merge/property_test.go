package merge_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"trireme.dev/client/merge"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// The properties speak of objects whose fields are drawn from a few values, so that last, live and desired often agree.
// Keys of list elements do not repeat: the table tests say what happens when they do.

func optionsOf(fd protoreflect.FieldDescriptor) *metav1.FieldOptions {
	options, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
	return options
}

const deepest = 5

func fill(t *rapid.T, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		// Half of the fields, fewer below, or objects would never end.
		if rapid.IntRange(0, 1+depth).Draw(t, "set") != 0 || fd.Message() != nil && depth >= deepest || optionsOf(fd).GetInternal() {
			continue
		}
		switch {
		case fd.IsMap():
			values := m.Mutable(fd).Map()
			for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3, rapid.ID).Draw(t, "keys") {
				values.Set(protoreflect.ValueOfString(key).MapKey(), value(t, fd.MapValue(), values.NewValue, depth))
			}
		case fd.IsList():
			fillList(t, fd, m.Mutable(fd).List(), depth)
		default:
			m.Set(fd, value(t, fd, func() protoreflect.Value { return m.NewField(fd) }, depth))
		}
	}
}

func fillList(t *rapid.T, fd protoreflect.FieldDescriptor, list protoreflect.List, depth int) {
	keys := optionsOf(fd).GetListMapKeys()
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3, rapid.ID).Draw(t, "elements")
	for _, name := range names {
		element := value(t, fd, list.NewElement, depth)
		for _, key := range keys {
			part := fd.Message().Fields().ByJSONName(key)
			if part.Kind() == protoreflect.StringKind {
				element.Message().Set(part, protoreflect.ValueOfString(name))
			} else {
				element.Message().Set(part, protoreflect.ValueOfInt32(int32(name[0])))
			}
		}
		list.Append(element)
	}
}

func value(t *rapid.T, fd protoreflect.FieldDescriptor, fresh func() protoreflect.Value, depth int) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "bool"))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.SampledFrom([]string{"", "x", "z"}).Draw(t, "string"))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(rapid.SampledFrom([]string{"", "x"}).Draw(t, "bytes")))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(rapid.IntRange(0, 2).Draw(t, "int32")))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(rapid.IntRange(0, 2).Draw(t, "int64")))
	case protoreflect.MessageKind:
		message := fresh()
		switch known := message.Message().Interface().(type) {
		case *timestamppb.Timestamp:
			known.Seconds = int64(rapid.IntRange(0, 2).Draw(t, "seconds"))
		case *structpb.Value:
			known.Kind = structpb.NewStringValue(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")).GetKind()
		case *structpb.Struct:
		default:
			fill(t, message.Message(), depth+1)
		}
		return message
	default:
		t.Fatalf("%s: nothing is known of %s", fd.FullName(), fd.Kind())
		return protoreflect.Value{}
	}
}

func draw(t *rapid.T, kind proto.Message) proto.Message {
	object := kind.ProtoReflect().New()
	fill(t, object, 0)
	return object.Interface()
}

func TestProperties(t *testing.T) {
	for _, kind := range []proto.Message{&corev1.ConfigMap{}, &corev1.Service{}, &corev1.Pod{}, &appsv1.Deployment{}, &corev1.PodSpec{}, &appsv1.DeploymentSpec{}} {
		t.Run(string(kind.ProtoReflect().Descriptor().Name()), rapid.MakeCheck(func(t *rapid.T) {
			last, live, desired := draw(t, kind), draw(t, kind), draw(t, kind)
			before := []proto.Message{proto.Clone(last), proto.Clone(live), proto.Clone(desired)}
			merged := merge.ThreeWay(last, live, desired)
			for i, argument := range []proto.Message{last, live, desired} {
				if !proto.Equal(before[i], argument) {
					t.Fatalf("argument %d was changed", i)
				}
			}
			if again := merge.ThreeWay(desired, merged, desired); !proto.Equal(merged, again) {
				t.Fatalf("a second apply changes something:\n%v\n%v", merged, again)
			}
			c := checker{T: t}
			c.top(last.ProtoReflect(), live.ProtoReflect(), desired.ProtoReflect(), merged.ProtoReflect())
		}))
	}
}

// checker holds a merged message against what went in, by the words of ThreeWay's contract and not by its code.
type checker struct{ *rapid.T }

func (c checker) top(last, live, desired, merged protoreflect.Message) {
	fields := merged.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch fd.Name() {
		case "status":
			if !merged.Get(fd).Equal(live.Get(fd)) {
				c.Fatalf("status is not live's")
			}
		case "metadata":
			inner := fd.Message().Fields()
			for j := range inner.Len() {
				switch part := inner.Get(j); part.Name() {
				case "labels", "annotations", "owner_references":
					c.field(part, last.Get(fd).Message(), live.Get(fd).Message(), desired.Get(fd).Message(), merged.Get(fd).Message(), false)
				case "finalizers":
				default:
					if got, want := merged.Get(fd).Message().Get(part), live.Get(fd).Message().Get(part); !got.Equal(want) {
						c.Fatalf("%s is %v, live's is %v", part.FullName(), got, want)
					}
				}
			}
		default:
			c.field(fd, last, live, desired, merged, false)
		}
	}
}

// field checks one field; alone is whether only what desired sets may be left in the message.
func (c checker) field(fd protoreflect.FieldDescriptor, last, live, desired, merged protoreflect.Message, alone bool) {
	switch {
	case fd.IsMap():
		c.mapField(fd, last, live, desired, merged, alone)
	case fd.IsList() && len(optionsOf(fd).GetListMapKeys()) > 0:
		c.keyedList(fd, last, live, desired, merged, alone)
	case desired.Has(fd) && (fd.IsList() || fd.Message() == nil || fd.Message().FullName().Parent() == "google.protobuf"):
		if !merged.Get(fd).Equal(desired.Get(fd)) {
			c.Fatalf("%s is %v, desired is %v", fd.FullName(), merged.Get(fd), desired.Get(fd))
		}
	case desired.Has(fd):
		if !merged.Has(fd) {
			c.Fatalf("%s is absent and was desired", fd.FullName())
		}
		c.message(fd, last.Get(fd).Message(), live.Get(fd).Message(), desired.Get(fd).Message(), merged.Get(fd).Message())
	case last.Has(fd) || alone:
		if merged.Has(fd) {
			c.Fatalf("%s is desired no longer and still there: %v", fd.FullName(), merged.Get(fd))
		}
	default:
		if merged.Has(fd) != live.Has(fd) || !merged.Get(fd).Equal(live.Get(fd)) {
			c.Fatalf("%s is %v, live's is %v and nobody else's business", fd.FullName(), merged.Get(fd), live.Get(fd))
		}
	}
}

func (c checker) message(of protoreflect.FieldDescriptor, last, live, desired, merged protoreflect.Message) {
	fields := merged.Descriptor().Fields()
	for i := range fields.Len() {
		if fd := fields.Get(i); !optionsOf(fd).GetInternal() {
			c.field(fd, last, live, desired, merged, optionsOf(of).GetRetainKeys())
		}
	}
}

func (c checker) mapField(fd protoreflect.FieldDescriptor, last, live, desired, merged protoreflect.Message, alone bool) {
	got := merged.Get(fd).Map()
	for key, want := range desired.Get(fd).Map().Range {
		if !got.Has(key) || !got.Get(key).Equal(want) {
			c.Fatalf("%s[%s] is %v, desired is %v", fd.FullName(), key, got.Get(key), want)
		}
	}
	for key, kept := range live.Get(fd).Map().Range {
		wanted, gone := desired.Get(fd).Map().Has(key), last.Get(fd).Map().Has(key) || alone && !desired.Has(fd)
		if !wanted && !gone && (!got.Has(key) || !got.Get(key).Equal(kept)) {
			c.Fatalf("%s[%s] of live is lost", fd.FullName(), key)
		}
	}
	for key := range got.Range {
		if !desired.Get(fd).Map().Has(key) && (last.Get(fd).Map().Has(key) || !live.Get(fd).Map().Has(key)) {
			c.Fatalf("%s[%s] came from nowhere", fd.FullName(), key)
		}
	}
}

func (c checker) keyedList(fd protoreflect.FieldDescriptor, last, live, desired, merged protoreflect.Message, alone bool) {
	was, has, wants, got := c.byKey(fd, last), c.byKey(fd, live), c.byKey(fd, desired), c.byKey(fd, merged)
	for key, want := range wants {
		if got[key] == nil {
			c.Fatalf("%s: element %s was desired and is absent", fd.FullName(), key)
		}
		empty := want.New()
		c.message(fd, orElse(was[key], empty), orElse(has[key], empty), want, got[key])
	}
	for key, kept := range has {
		if wants[key] == nil && was[key] == nil && !(alone && len(wants) == 0) && (got[key] == nil || !proto.Equal(got[key].Interface(), kept.Interface())) {
			c.Fatalf("%s: element %s of live is lost", fd.FullName(), key)
		}
	}
	for key := range got {
		if wants[key] == nil && (was[key] != nil || has[key] == nil) {
			c.Fatalf("%s: element %s came from nowhere", fd.FullName(), key)
		}
	}
}

func orElse(m, otherwise protoreflect.Message) protoreflect.Message {
	if m == nil {
		return otherwise
	}
	return m
}

// byKey names the elements of a list. The generator sets all keys, so that defaults play no part.
func (c checker) byKey(fd protoreflect.FieldDescriptor, m protoreflect.Message) map[string]protoreflect.Message {
	named := map[string]protoreflect.Message{}
	list := m.Get(fd).List()
	for i := range list.Len() {
		name := ""
		for _, key := range optionsOf(fd).GetListMapKeys() {
			name += list.Get(i).Message().Get(fd.Message().Fields().ByJSONName(key)).String() + "/"
		}
		if named[name] != nil {
			c.Fatalf("%s: element %s is there twice", fd.FullName(), name)
		}
		named[name] = list.Get(i).Message()
	}
	return named
}
