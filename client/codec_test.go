package client

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"trireme.dev/client/kind"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Generated decoding gives what reflection gives, for every field of every kind and for what is unknown.
func TestGeneratedDecoding(t *testing.T) {
	for _, k := range kind.Builtin().All() {
		m := k.Message.New()
		fill(m, 6)
		raw, err := proto.Marshal(m.Interface())
		if err != nil {
			t.Fatal(err)
		}
		raw = protowire.AppendTag(raw, 19999, protowire.BytesType)
		raw = protowire.AppendString(raw, "from a later version")
		want, got := k.Message.New().Interface(), k.Message.New().Interface()
		if _, ok := got.(interface{ UnmarshalVT(b []byte) error }); !ok {
			t.Errorf("%s has no generated decoding", k)
		}
		if err := proto.Unmarshal(raw, want); err != nil {
			t.Fatal(err)
		}
		if err := unmarshal(raw, got); err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: (-reflection +generated):\n%s", k, diff)
		}
		// What is cut short fails and does not panic.
		for i := range min(len(raw), 2000) {
			_ = unmarshal(raw[:i], k.Message.New().Interface())
		}
	}
}

// fill sets every field; messages within messages so many levels deep.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch {
		case fd.IsMap():
			if v, ok := example(fd.MapValue(), func() protoreflect.Value { return m.NewField(fd).Map().NewValue() }, depth); ok {
				key, _ := example(fd.MapKey(), nil, depth)
				m.Mutable(fd).Map().Set(key.MapKey(), v)
			}
		case fd.IsList():
			for range 2 {
				if v, ok := example(fd, func() protoreflect.Value { return m.Mutable(fd).List().NewElement() }, depth); ok {
					m.Mutable(fd).List().Append(v)
				}
			}
		default:
			if v, ok := example(fd, func() protoreflect.Value { return m.NewField(fd) }, depth); ok {
				m.Set(fd, v)
			}
		}
	}
}

func example(fd protoreflect.FieldDescriptor, empty func() protoreflect.Value, depth int) (protoreflect.Value, bool) {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		if depth == 0 {
			return protoreflect.Value{}, false
		}
		v := empty()
		fill(v.Message(), depth-1)
		return v, true
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(string(fd.Name())), true
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(fd.Name())), true
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true), true
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1), true
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(-int32(fd.Number())), true
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(fd.Number()) << 33), true
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(0.5), true
	default:
		panic("no example of " + fd.Kind().String())
	}
}

// BenchmarkDecode decodes a pod of about 1.2 KB by reflection and with generated code.
func BenchmarkDecode(b *testing.B) {
	raw, err := proto.Marshal(&corev1.Pod{
		Metadata: &metav1.ObjectMeta{
			Namespace: "default", Name: "web-0", Uid: "0b8f8f6e-1111-2222-3333-444444444444", ResourceVersion: "123123",
			Labels:      map[string]string{"app": "web", "app.kubernetes.io/name": "web"},
			Annotations: map[string]string{"filler": strings.Repeat("f", 560)},
		},
		Spec: &corev1.PodSpec{
			Containers: []*corev1.Container{{
				Name: "main", Image: "registry.example/web:1", Command: []string{"sleep", "infinity"},
				Env: []*corev1.EnvVar{{Name: "A", Value: proto.String("one")}, {Name: "B", Value: proto.String("two")}},
				Resources: &corev1.ResourceRequirements{
					Requests: map[string]string{"cpu": "100m", "memory": "64Mi"}, Limits: map[string]string{"memory": "128Mi"},
				},
			}},
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	for name, decode := range map[string]func([]byte, proto.Message) error{"reflection": proto.Unmarshal, "generated": unmarshal} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := decode(raw, &corev1.Pod{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
