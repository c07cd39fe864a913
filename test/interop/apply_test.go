package interop

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// applySchema is Kubernetes' own schema of server-side apply: which lists are sets or maps, and by which keys, and what
// has one owner. client-go carries it as YAML, out of reach of imports.
func applySchema(t *testing.T) *typed.Parser {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(moduleDir(t, "k8s.io/client-go"), "applyconfigurations", "internal", "internal.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(source), "typed.YAMLObject(`")
	text, _, ended := strings.Cut(text, "`)")
	if !found || !ended {
		t.Fatal("client-go keeps its schema elsewhere now")
	}
	parser, err := typed.NewParser(typed.YAMLObject(text))
	if err != nil {
		t.Fatal(err)
	}
	return parser
}

// TestApplySchema compares what our fields say of ownership with Kubernetes' schema, for every kind. What is merged by
// the same keys is owned by the same keys: the rest is the library that both use.
func TestApplySchema(t *testing.T) {
	known := map[string]string{
		"NodeStatus.addresses":        "a type may occur once per IP family, which Kubernetes' key cannot tell apart",
		"ResourceRequirements.claims": "told apart by name and request, as validation does",
	}
	parser := applySchema(t)
	seen := map[string]bool{}
	compared := 0
	var walk func(d protoreflect.MessageDescriptor, name string)
	walk = func(d protoreflect.MessageDescriptor, name string) {
		def, ok := parser.Schema.FindNamedType(name)
		if !ok || def.Map == nil || seen[name] {
			return
		}
		seen[name] = true
		short := name[strings.LastIndexByte(name, '.')+1:]
		atomic, _ := proto.GetExtension(d.Options(), metav1.E_Atomic).(bool)
		if theirs := def.Map.ElementRelationship == schema.Atomic; theirs != atomic {
			t.Errorf("%s: atomic %v, Kubernetes %v", short, atomic, theirs)
		}
		for _, f := range def.Map.Fields {
			fd := d.Fields().ByJSONName(f.Name)
			if fd == nil {
				continue // coverage_test.go knows which and why
			}
			compared++
			ours, theirs := ourRelation(fd), theirRelation(f.Type)
			id := short + "." + f.Name
			if _, ok := known[id]; ok == (ours == theirs) {
				t.Errorf("%s: ours %q, Kubernetes %q", id, ours, theirs)
			}
			inner := f.Type
			if inner.Inlined.List != nil {
				inner = inner.Inlined.List.ElementType
			} else if inner.Inlined.Map != nil {
				inner = inner.Inlined.Map.ElementType
			}
			value := fd
			if fd.IsMap() {
				value = fd.MapValue()
			}
			if inner.NamedType != nil && value.Message() != nil {
				walk(value.Message(), *inner.NamedType)
			}
		}
	}
	for _, p := range pairs(t) {
		group := strings.TrimSuffix(p.gvk.Group, ".k8s.io")
		if group == "" {
			group = "core"
		}
		walk(p.kind.Message.Descriptor(), "io.k8s.api."+group+"."+p.gvk.Version+"."+p.gvk.Kind)
	}
	if compared < 400 {
		t.Fatalf("only %d fields compared", compared)
	}
}

func ourRelation(fd protoreflect.FieldDescriptor) string {
	options, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
	switch {
	case fd.IsMap() && options.GetAtomic():
		return "atomic map"
	case !fd.IsList():
		return ""
	case options.GetAtomic():
		return "atomic"
	case options.GetSet():
		return "set"
	case len(options.GetListMapKeys()) > 0:
		return "map by " + strings.Join(options.GetListMapKeys(), ",")
	}
	return "atomic"
}

func theirRelation(ref schema.TypeRef) string {
	switch {
	case ref.Inlined.Map != nil && ref.Inlined.Map.ElementRelationship == schema.Atomic:
		return "atomic map"
	case ref.Inlined.List == nil:
		return ""
	case ref.Inlined.List.ElementRelationship != schema.Associative:
		return "atomic"
	case len(ref.Inlined.List.Keys) > 0:
		return "map by " + strings.Join(ref.Inlined.List.Keys, ",")
	}
	return "set"
}
