package interop

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubejson "sigs.k8s.io/json"

	"trireme.dev/client/kind"
	_ "trireme.dev/proto/gen/trireme/apps/v1"         // its kinds
	_ "trireme.dev/proto/gen/trireme/autoscaling/v1"  // its kinds
	_ "trireme.dev/proto/gen/trireme/autoscaling/v2"  // its kinds
	_ "trireme.dev/proto/gen/trireme/component/v1"    // its kinds
	_ "trireme.dev/proto/gen/trireme/coordination/v1" // its kinds
	_ "trireme.dev/proto/gen/trireme/core/v1"         // its kinds
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	_ "trireme.dev/proto/gen/trireme/policy/v1"     // its kinds
	_ "trireme.dev/proto/gen/trireme/scheduling/v1" // its kinds
	_ "trireme.dev/proto/gen/trireme/storage/v1"    // its kinds
)

// otherShape are the apiVersions that k8s.io/api cannot be asked about.
var otherShape = map[string]string{
	"scheduling.k8s.io/v1alpha2 PodGroup":   "older than the oldest version in k8s.io/api",
	"scheduling.x-k8s.io/v1alpha1 PodGroup": "of scheduler-plugins, which is not in k8s.io/api",
	"component.trireme.dev/v1 Component":    "Kubernetes has no such kind",
	"events.k8s.io/v1 Event":                "the same kind under other field names, which event.proto names; we print v1",
	"scheduling.k8s.io/v1alpha2 Workload":   "older than the oldest version in k8s.io/api",
	"scheduling.trireme.dev/v1 Queue":       "Kubernetes has no such kind",
}

// kubernetesScheme knows Kubernetes' own types of the groups that we have.
func kubernetesScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, autoscalingv1.AddToScheme, autoscalingv2.AddToScheme,
		policyv1.AddToScheme, storagev1.AddToScheme, schedulingv1.AddToScheme, schedulingv1beta1.AddToScheme, schedulingv1alpha3.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// pair is a kind of ours and the Go type that Kubernetes has for one of its apiVersions.
type pair struct {
	kind       *kind.Kind
	apiVersion string
	gvk        schema.GroupVersionKind
}

func (p pair) String() string { return p.apiVersion + " " + p.kind.Name }

// fixture is the name of the file in k8s.io/api's testdata, without its ending.
func (p pair) fixture() string {
	group := p.gvk.Group
	if group == "" {
		group = "core"
	}
	return strings.Join([]string{group, p.gvk.Version, p.gvk.Kind}, ".")
}

// fresh makes an empty object of Kubernetes' type.
func (p pair) fresh(t testing.TB, scheme *runtime.Scheme) any {
	t.Helper()
	object, err := scheme.New(p.gvk)
	if err != nil {
		t.Fatalf("%s: k8s.io/api has no such type: %v", p, err)
	}
	return object
}

// pairs are all apiVersions of all kinds that k8s.io/api knows too.
func pairs(t testing.TB) []pair {
	t.Helper()
	var all []pair
	for _, k := range kind.Builtin().Served() {
		for _, apiVersion := range k.APIVersions {
			p := pair{kind: k, apiVersion: apiVersion, gvk: schema.FromAPIVersionAndKind(apiVersion, k.Name)}
			if otherShape[p.String()] == "" {
				all = append(all, p)
			}
		}
	}
	if len(all) < 10 {
		t.Fatalf("only %d kinds are compiled in", len(all))
	}
	return all
}

// strictly decodes JSON as Kubernetes' gateway does in strict mode: unknown fields and repeated keys are errors.
func strictly(data []byte, into any) error {
	problems, err := kubejson.UnmarshalStrict(data, into)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return fmt.Errorf("%v", problems)
	}
	return nil
}

// moduleDir is where the Go command keeps a module's source.
func moduleDir(t testing.TB, module string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("find module %s: %v", module, err)
	}
	dir := strings.TrimSpace(string(out))
	if dir == "" {
		t.Fatalf("module %s is not downloaded; run go mod download in test/", module)
	}
	return dir
}

// gap is a field that one side has and the other has not.
type gap struct {
	// field as missing.txt writes it: PodSpec.hostUsers, the Go type without its package and the JSON name.
	field string
	// path in the kind: spec.hostUsers.
	path string
	// ours is true where Kubernetes lacks the field.
	ours bool
}

// coverage compares Kubernetes' Go type with our message, field by field, each pair of types once.
type coverage struct {
	known, total int
	gaps         []gap
	seen         map[reflect.Type]bool
}

func cover(goType reflect.Type, message protoreflect.MessageDescriptor) *coverage {
	c := &coverage{seen: map[reflect.Type]bool{}}
	c.compare("", goType, message)
	return c
}

func (c *coverage) compare(path string, goType reflect.Type, message protoreflect.MessageDescriptor) {
	if c.seen[goType] {
		return
	}
	c.seen[goType] = true
	theirs := jsonFields(goType)
	for _, f := range theirs {
		if path == "" && (f.name == "apiVersion" || f.name == "kind") {
			continue
		}
		here := strings.TrimPrefix(path+"."+f.name, ".")
		c.total++
		fd := message.Fields().ByJSONName(f.name)
		if fd == nil {
			c.gaps = append(c.gaps, gap{field: goType.Name() + "." + f.name, path: here})
			continue
		}
		c.known++
		if inner, ok := structBehind(f.goType); ok {
			if behind := messageBehind(fd); behind != nil {
				c.compare(here, inner, behind)
			}
		}
	}
	for i := range message.Fields().Len() {
		name := message.Fields().Get(i).JSONName()
		options, _ := proto.GetExtension(message.Fields().Get(i).Options(), metav1.E_Field).(*metav1.FieldOptions)
		if _, known := theirs[name]; !known && !options.GetInternal() {
			c.gaps = append(c.gaps, gap{field: goType.Name() + "." + name, path: strings.TrimPrefix(path+"."+name, "."), ours: true})
		}
	}
}

type goField struct {
	name   string
	goType reflect.Type
	// always is whether encoding/json prints the field when it is empty.
	always bool
}

// jsonFields are the fields that encoding/json sees, inlined structs flattened.
func jsonFields(goType reflect.Type) map[string]goField {
	fields := map[string]goField{}
	for i := range goType.NumField() {
		f := goType.Field(i)
		tag, rules, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == "-":
		case f.Anonymous && tag == "":
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			for name, field := range jsonFields(inner) {
				fields[name] = field
			}
		case tag != "":
			omitted := strings.Contains(rules, "omitzero") || strings.Contains(rules, "omitempty") && f.Type.Kind() != reflect.Struct
			fields[tag] = goField{name: tag, goType: f.Type, always: !omitted}
		}
	}
	return fields
}

// structBehind looks through pointers, lists and maps for a struct that is printed as an object.
func structBehind(t reflect.Type) (reflect.Type, bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil, false
	}
	return t, true
}

func messageBehind(fd protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if fd.IsMap() {
		fd = fd.MapValue()
	}
	return fd.Message()
}
