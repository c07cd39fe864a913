package format

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client/kind"
)

// agree fails where the shape of a kind and protobuf's own decoder differ on whether bytes are an object.
func agree(t *testing.T, k *kind.Kind, s *shape, raw []byte) (ok bool) {
	t.Helper()
	checked, decoded := s.check(raw), proto.Unmarshal(raw, k.Message.New().Interface())
	if (checked == nil) != (decoded == nil) {
		t.Errorf("%s %x: checked: %v, unmarshalled: %v", k.Name, raw, checked, decoded)
	}
	return decoded == nil
}

// fill sets fields of a message by chance; deeper ones less often.
func fill(r *rand.Rand, m protoreflect.Message, depth int) {
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		if r.IntN(2+depth*3) != 0 {
			continue
		}
		switch {
		case fd.IsMap():
			values := m.Mutable(fd).Map()
			value := values.NewValue()
			if fd.MapValue().Message() != nil {
				fill(r, value.Message(), depth+1)
			} else {
				value = scalar(r, fd.MapValue())
			}
			values.Set(scalar(r, fd.MapKey()).MapKey(), value)
		case fd.IsList():
			list := m.Mutable(fd).List()
			for range r.IntN(3) {
				if fd.Message() != nil {
					fill(r, list.AppendMutable().Message(), depth+1)
				} else {
					list.Append(scalar(r, fd))
				}
			}
		case fd.Message() != nil:
			fill(r, m.Mutable(fd).Message(), depth+1)
		default:
			m.Set(fd, scalar(r, fd))
		}
	}
}

func scalar(r *rand.Rand, fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString([]string{"", "a", "ä", "nine bytes"}[r.IntN(4)])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0xff, byte(r.Uint32())})
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.IntN(3)))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(r.Uint32()))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(int64(r.Uint64()))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(r.Uint32())
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(r.Uint64())
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(r.Float32())
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(r.Float64())
	}
	panic(fmt.Sprintf("%s is a %s: say here what its values look like", fd.FullName(), fd.Kind()))
}

// spoil changes bytes in a few places, as disks and programs do: flipped, cut out, put in, said twice, cut off.
func spoil(r *rand.Rand, raw []byte) []byte {
	raw = slices.Clone(raw)
	for range 1 + r.IntN(3) {
		if len(raw) == 0 {
			return raw
		}
		at := r.IntN(len(raw))
		to := min(len(raw), at+1+r.IntN(8))
		switch r.IntN(5) {
		case 0:
			raw[at] ^= 1 << r.IntN(8)
		case 1:
			raw = slices.Delete(raw, at, to)
		case 2:
			raw = slices.Insert(raw, at, byte(r.Uint32()))
		case 3:
			raw = slices.Insert(raw, to, raw[at:to]...)
		case 4:
			raw = raw[:at]
		}
	}
	return raw
}

// TestShapesAreWhatUnmarshals: bytes pass the check of a kind if, and only if, protobuf unmarshals them.
func TestShapesAreWhatUnmarshals(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	all, good, bad := shapes{}, 0, 0
	for _, k := range kind.Builtin().All() {
		s := all.of(k.Message.Descriptor())
		for range 60 {
			m := k.Message.New()
			fill(r, m, 0)
			raw, err := proto.Marshal(m.Interface())
			if err != nil {
				t.Fatal(err)
			}
			if !agree(t, k, s, raw) {
				t.Fatalf("%s: what was marshalled does not unmarshal: %x", k.Name, raw)
			}
			for range 60 {
				if agree(t, k, s, spoil(r, raw)) {
					good++
				} else {
					bad++
				}
			}
			if t.Failed() {
				return
			}
		}
	}
	if good < 1000 || bad < 1000 {
		t.Errorf("of what was spoilt %d unmarshalled and %d did not: too few of one to say anything", good, bad)
	}
}

// TestShapesAtTheirLimits: what chance does not find.
func TestShapesAtTheirLimits(t *testing.T) {
	k, ok := kind.Builtin().ByManifest("v1", "Pod")
	if !ok {
		t.Fatal("no pods")
	}
	s := shapes{}.of(k.Message.Descriptor())
	groups := func(n int) (raw []byte) {
		for range n {
			raw = protowire.AppendTag(raw, 1000, protowire.StartGroupType)
		}
		for range n {
			raw = protowire.AppendTag(raw, 1000, protowire.EndGroupType)
		}
		return raw
	}
	for name, raw := range map[string][]byte{
		"nothing":              nil,
		"a group":              groups(1),
		"groups within groups": groups(5000),
		"too many groups":      groups(10001),
		"a group without end":  protowire.AppendTag(nil, 1000, protowire.StartGroupType),
		"an end of no group":   protowire.AppendTag(nil, 1000, protowire.EndGroupType),
		"field zero":           {0x00, 0x00},
		"a varint of 11 bytes": {0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"a length beyond int":  {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"a length beyond all":  {0x0a, 0x05, 0x00},
		"metadata as a number": {0x08, 0x01},
		"a wire type of none":  {0x0f},
	} {
		t.Run(name, func(t *testing.T) { agree(t, k, s, raw) })
	}
}

func FuzzShape(f *testing.F) {
	kinds, all := kind.Builtin().All(), shapes{}
	r := rand.New(rand.NewPCG(1, 0))
	for i, k := range kinds {
		all.of(k.Message.Descriptor()) // compiled before tests run side by side
		m := k.Message.New()
		fill(r, m, 0)
		raw, err := proto.Marshal(m.Interface())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(i, raw)
		f.Add(i, spoil(r, raw))
	}
	f.Fuzz(func(t *testing.T, i int, raw []byte) {
		if i < 0 || i >= len(kinds) {
			return
		}
		agree(t, kinds[i], all[kinds[i].Message.Descriptor().FullName()], raw)
	})
}
