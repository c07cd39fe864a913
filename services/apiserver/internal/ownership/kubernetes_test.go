package ownership_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"trireme.dev/client/manifest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/apiserver/internal/ownership"
)

// act is one write of a script: who, how, and what the object is to say or to become.
type act struct {
	manager string
	apply   bool
	force   bool
	text    string // of metadata and data, as JSON without braces
}

// theirConfigMap is what Kubernetes' schema of apply says of the fields that the scripts use.
const theirConfigMap = `types:
- name: ConfigMap
  map:
    fields:
    - {name: apiVersion, type: {scalar: string}}
    - {name: kind, type: {scalar: string}}
    - {name: metadata, type: {namedType: ObjectMeta}}
    - {name: data, type: {map: {elementType: {scalar: string}}}}
- name: ObjectMeta
  map:
    fields:
    - {name: name, type: {scalar: string}}
    - {name: namespace, type: {scalar: string}}
    - {name: creationTimestamp, type: {scalar: untyped}}
    - {name: labels, type: {map: {elementType: {scalar: string}}}}
    - {name: managedFields, type: {namedType: Anything}}
    - {name: finalizers, type: {list: {elementType: {scalar: string}, elementRelationship: associative}}}
- name: Anything
  scalar: untyped
  list: {elementType: {namedType: Anything}, elementRelationship: atomic}
  map: {elementType: {namedType: Anything}, elementRelationship: atomic}
`

// configMapValues converts between objects and typed values, for Kubernetes' field manager.
type configMapValues struct{ typed.ParseableType }

func newConfigMaps(t *testing.T) configMapValues {
	t.Helper()
	parser, err := typed.NewParser(theirConfigMap)
	if err != nil {
		t.Fatal(err)
	}
	return configMapValues{parser.Type("ConfigMap")}
}

func (c configMapValues) ObjectToTyped(obj runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	u, _ := obj.(*unstructured.Unstructured)
	return c.FromUnstructured(u.Object, options...)
}

func (configMapValues) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	object, _ := v.AsValue().Unstructured().(map[string]any)
	return &unstructured.Unstructured{Object: object}, nil
}

// alongside plays a script on Kubernetes' own field manager and on ours. After every act both must have the same
// conflicts, the same object and the same owners.
func alongside(t *testing.T, script []act) {
	t.Helper()
	theirs := managedfieldstest.NewTestFieldManager(newConfigMaps(t), schema.FromAPIVersionAndKind("v1", "ConfigMap"))
	ours := &story{kind: configMaps(t), now: start}
	for i, a := range script {
		text := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","namespace":"default"}` + a.text + `}`
		obj := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), &obj.Object); err != nil {
			t.Fatal(err)
		}
		mine := &corev1.ConfigMap{}
		if err := manifest.FromJSON([]byte(text), mine); err != nil {
			t.Fatal(err)
		}
		w := ownership.Writer{Manager: a.manager}
		ours.now = ours.now.Add(1e9)
		var theirErr, ourErr error
		switch {
		case a.apply:
			theirErr = theirs.Apply(obj, a.manager, a.force)
			var next ownership.Object
			if next, ourErr = ours.kind.Apply(ours.live, mine, w, a.force, ours.now); ourErr == nil {
				ours.live = next
			}
		case ours.live == nil:
			theirErr = theirs.Update(obj, a.manager)
			if ourErr = ours.kind.Start(mine, w, ours.now); ourErr == nil {
				ours.live = mine
			}
		default:
			theirErr = theirs.Update(obj, a.manager)
			mine.Metadata.ManagedFields = nil
			if ourErr = ours.kind.Update(ours.live, mine, w, ours.now); ourErr == nil {
				ours.live = mine
			}
		}
		if (theirErr == nil) != (ourErr == nil) {
			t.Fatalf("act %d %v: Kubernetes says %v, we say %v\n%v", i, a, theirErr, ourErr, script)
		}
		if theirErr != nil {
			// Each field in conflict is named by both, and whose it is.
			for _, v := range strings.Split(theirErr.Error(), "\n") {
				if _, field, ok := strings.Cut(v, ": ."); ok && !strings.Contains(ourErr.Error(), field) {
					t.Fatalf("act %d %v: Kubernetes says %v, we say %v", i, a, theirErr, ourErr)
				}
			}
			continue
		}
		if ours.live == nil {
			continue
		}
		theirOwners := map[string]any{}
		for _, e := range theirs.ManagedFields() {
			var fields any
			if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields); err != nil {
				t.Fatal(err)
			}
			theirOwners[e.Manager+" "+string(e.Operation)] = fields
		}
		ourOwners := map[string]any{}
		for _, e := range ours.live.GetMetadata().GetManagedFields() {
			text, err := protojson.Marshal(e.GetFieldsV1())
			if err != nil {
				t.Fatal(err)
			}
			var fields any
			_ = json.Unmarshal(text, &fields)
			ourOwners[e.GetManager()+" "+e.GetOperation()] = fields
		}
		if diff := cmp.Diff(theirOwners, ourOwners); diff != "" {
			t.Fatalf("act %d %v: owners (-Kubernetes +ours)\n%s\n%v", i, a, diff, script)
		}
		live, _ := theirs.Live().(*unstructured.Unstructured)
		data, _, _ := unstructured.NestedStringMap(live.Object, "data")
		labels, _, _ := unstructured.NestedStringMap(live.Object, "metadata", "labels")
		m, _ := ours.live.(*corev1.ConfigMap)
		if !maps.Equal(data, m.GetData()) || !maps.Equal(labels, m.GetMetadata().GetLabels()) {
			t.Fatalf("act %d %v: Kubernetes has %v %v, we have %v\n%v", i, a, data, labels, m, script)
		}
	}
}

// TestAsKubernetes plays scripts on Kubernetes' field manager and on ours.
func TestAsKubernetes(t *testing.T) {
	apply := func(manager, text string) act { return act{manager: manager, apply: true, text: text} }
	force := func(manager, text string) act { return act{manager: manager, apply: true, force: true, text: text} }
	update := func(manager, text string) act { return act{manager: manager, text: text} }
	for name, script := range map[string][]act{
		"conflict, then force":      {apply("a", `,"data":{"x":"1"}`), apply("b", `,"data":{"x":"2"}`), force("b", `,"data":{"x":"2"}`), apply("a", `,"data":{"x":"1"}`)},
		"shared, given up":          {apply("a", `,"data":{"x":"1","y":"1"}`), apply("b", `,"data":{"x":"1"}`), apply("a", `,"data":{"y":"1"}`), apply("b", `,"data":{"z":"1"}`)},
		"update takes":              {apply("a", `,"data":{"x":"1"}`), update("b", `,"data":{"x":"2"}`), apply("a", `,"data":{"x":"1"}`), apply("a", `,"data":{"x":"2"}`)},
		"update removes":            {apply("a", `,"data":{"x":"1","y":"1"}`), update("b", `,"data":{"y":"1"}`), apply("a", `,"data":{"x":"1","y":"1"}`)},
		"created by an update":      {update("a", `,"data":{"x":"1"}`), apply("b", `,"data":{"x":"1"}`), apply("b", `,"data":{"x":"2"}`), apply("a", `,"data":{"x":"2"}`)},
		"an update that is none":    {apply("a", `,"data":{"x":"1"}`), update("b", `,"data":{"x":"1"}`), update("c", `,"data":{"x":"1","y":"1"}`)},
		"labels and keys with dots": {apply("a", `,"data":{"a.b":"1","a":"1"}`), apply("b", `,"data":{"a.b":"1","a/b":"1"}`), apply("a", `,"data":{"a":"1"}`)},
		"one name, two ways":        {apply("a", `,"data":{"x":"1"}`), update("a", `,"data":{"x":"2","y":"1"}`), apply("a", `,"data":{"x":"3"}`), force("a", `,"data":{"x":"3"}`)},
		"nothing":                   {apply("a", `,"data":{"x":"1"}`), apply("a", ``), apply("a", `,"data":{"x":""}`)},
	} {
		t.Run(name, func(t *testing.T) { alongside(t, script) })
	}
}

// TestAsKubernetesAtRandom does the same with scripts that nobody thought of.
func TestAsKubernetesAtRandom(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			// One owner stays throughout: of an object that nobody owns anything of, we stop to keep owners.
			script := []act{{manager: "keeper", apply: true, text: `,"data":{"kept":"1"}`}}
			for range 8 {
				data := map[string]string{}
				apply := r.IntN(3) > 0
				if !apply {
					data["kept"] = "1"
				}
				for _, k := range []string{"x", "y", "z.z"} {
					if r.IntN(3) > 0 {
						data[k] = fmt.Sprint(r.IntN(3))
					}
				}
				text := ""
				if len(data) > 0 {
					raw, _ := json.Marshal(data)
					text = `,"data":` + string(raw)
				}
				script = append(script, act{manager: []string{"a", "b", "c"}[r.IntN(3)], apply: apply, force: r.IntN(3) == 0, text: text})
			}
			alongside(t, script)
		})
	}
}
