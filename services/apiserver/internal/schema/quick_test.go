package schema

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"trireme.dev/client/kind"
)

func TestQuickChecksSayYesToNothingWrong(t *testing.T) {
	checks := []struct {
		name  string
		quick func(string) bool
		rule  func(string) []string
	}{
		{"label", plainLabel, validation.IsDNS1123Label},
		{"subdomain", plainSubdomain, validation.IsDNS1123Subdomain},
		{"name", plainName, validation.IsValidLabelValue},
		{"qualified", plainQualified, validation.IsQualifiedName},
	}
	said := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(
			rapid.StringMatching(`([a-z0-9.-]{0,70}/)?[A-Za-z0-9._-]{0,70}`),
			rapid.StringMatching(`([a-z0-9]([a-z0-9-]{0,5}[a-z0-9])?\.){0,60}[a-z]{1,3}/?[A-Z/ä]?[a-z]?`),
			rapid.String(),
		).Draw(t, "text")
		for _, c := range checks {
			if c.quick(s) {
				said[c.name] = true
				if wrong := c.rule(s); len(wrong) > 0 {
					t.Fatalf("%s: quick yes to %q: %v", c.name, s, wrong)
				}
			}
		}
	})
	for _, c := range checks {
		if !said[c.name] {
			t.Errorf("%s never said yes", c.name)
		}
	}
}

// TestPresenceIsProtobufs fills random fields of each kind and asks both ways.
func TestPresenceIsProtobufs(t *testing.T) {
	compiler, err := NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kind.Builtin().All() {
		s, err := compiler.Compile(k)
		if err != nil {
			t.Fatal(err)
		}
		samePresence(t, s.root, k.Message.New(), map[*message]bool{})
	}
}

func samePresence(t *testing.T, m *message, msg protoreflect.Message, seen map[*message]bool) {
	if seen[m] {
		return
	}
	seen[m] = true
	if m.goType == nil {
		t.Errorf("%s: no struct", m.name)
	}
	for _, f := range m.fields {
		if m.open(msg).has(f) != msg.Has(f.fd) {
			t.Errorf("%s, empty: %v, protobuf says %v", f.fd.FullName(), m.open(msg).has(f), msg.Has(f.fd))
		}
		set := proto.Clone(msg.Interface()).ProtoReflect()
		switch {
		case f.fd.IsList():
			list := set.Mutable(f.fd).List()
			list.Append(list.NewElement())
		case f.fd.IsMap():
			entries := set.Mutable(f.fd).Map()
			entries.Set(f.fd.MapKey().Default().MapKey(), entries.NewValue())
		case f.fd.Message() != nil:
			set.Mutable(f.fd)
		default:
			set.Set(f.fd, f.fd.Default()) // counts where the field has presence
		}
		if got, want := m.open(set).has(f), set.Has(f.fd); got != want {
			t.Errorf("%s: %v, protobuf says %v", f.fd.FullName(), got, want)
		}
		if f.message != nil {
			value := f.fd
			if f.fd.IsMap() {
				value = f.fd.MapValue()
			}
			samePresence(t, f.message, newMessage(value.Message()), seen)
		}
	}
}
