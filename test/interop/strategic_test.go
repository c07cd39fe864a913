package interop

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	kubecorev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"trireme.dev/client/strategic"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// both applies a patch with Kubernetes' library and with ours. The results must be equal, or both an error.
func both(t *testing.T, original, patch string) {
	t.Helper()
	want, wantErr := strategicpatch.StrategicMergePatch([]byte(original), []byte(patch), kubecorev1.Pod{})
	got, gotErr := strategic.Apply((&corev1.Pod{}).ProtoReflect().Descriptor(), []byte(original), []byte(patch))
	if (wantErr == nil) != (gotErr == nil) {
		t.Fatalf("original %s\npatch %s\nKubernetes says %v, we say %v", original, patch, wantErr, gotErr)
	}
	if wantErr != nil {
		return
	}
	var a, b any
	if err := json.Unmarshal(want, &a); err != nil {
		t.Fatal(err)
	}
	a = leftovers(a)
	if err := json.Unmarshal(got, &b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Fatalf("original %s\npatch %s\n(-Kubernetes +ours):\n%s", original, patch, diff)
	}
}

// leftovers takes out what Kubernetes' library leaves of directives and nulls in elements that are new, and its gateway
// then ignores.
func leftovers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if strings.HasPrefix(k, "$") || e == nil {
				delete(v, k)
				continue
			}
			v[k] = leftovers(e)
		}
	case []any:
		left := []any{}
		for _, e := range v {
			if m, ok := e.(map[string]any); !ok || m["$patch"] == nil {
				left = append(left, leftovers(e))
			}
		}
		return left
	}
	return v
}

const strategicOriginal = `{"metadata":{"labels":{"a":"1","b":"2"},"finalizers":["x/a","x/b","x/c"]},"spec":{
	"containers":[{"name":"one","image":"i:1","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"args":["x","y"],
		"ports":[{"containerPort":80,"protocol":"TCP"},{"containerPort":81}]},{"name":"two","image":"i:2"}],
	"volumes":[{"name":"v","emptyDir":{}},{"name":"w","configMap":{"name":"c"}}],
	"tolerations":[{"key":"k","operator":"Exists"}],"nodeSelector":{"disk":"ssd"},
	"schedulingGates":[{"name":"g"},{"name":"h"}]}}`

// TestStrategicMerge holds our strategic merge patch to Kubernetes' own, directive by directive.
func TestStrategicMerge(t *testing.T) {
	for _, patch := range []string{
		`{"spec":{"containers":[{"name":"one","image":"i:9"}]}}`,
		`{"spec":{"containers":[{"name":"three","image":"i:3"}]}}`,
		`{"spec":{"containers":[{"name":"two","$patch":"delete"}]}}`,
		`{"spec":{"containers":[{"$patch":"replace"},{"name":"three"}]}}`,
		`{"spec":{"containers":[{"$patch":"merge","name":"one"}]}}`,
		`{"spec":{"containers":[{"$patch":"nonsense","name":"one"}]}}`,
		`{"spec":{"containers":[{"image":"nokey"}]}}`,
		`{"spec":{"containers":["text"]}}`,
		`{"spec":{"containers":[{"name":"one","env":[{"name":"B","$patch":"delete"},{"name":"C","value":"3"}]}]}}`,
		`{"spec":{"containers":[{"name":"one","args":["z"]}]}}`,
		`{"spec":{"containers":[{"name":"one","ports":[{"containerPort":81,"name":"p"},{"containerPort":82}]}]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"two"},{"name":"one"}]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"two"},{"name":"three"},{"name":"one"}],"containers":[{"name":"three"}]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"one"}],"containers":[{"name":"three"}]}}`,
		`{"spec":{"$setElementOrder/containers":"x"}}`,
		`{"spec":{"volumes":[{"name":"w","$retainKeys":["name","hostPath"],"hostPath":{"path":"/"}}]}}`,
		`{"spec":{"volumes":[{"name":"w","$retainKeys":["name"],"hostPath":{"path":"/"}}]}}`,
		`{"spec":{"volumes":[{"name":"w","$retainKeys":"name"}]}}`,
		`{"metadata":{"$deleteFromPrimitiveList/finalizers":["x/b"]}}`,
		`{"metadata":{"$deleteFromPrimitiveList/finalizers":["x/a"],"finalizers":["x/d"],"$setElementOrder/finalizers":["x/d","x/c","x/b"]}}`,
		`{"metadata":{"finalizers":["x/c","x/e"]}}`,
		`{"metadata":{"labels":{"a":null,"c":"3"}}}`,
		`{"metadata":{"labels":{"$patch":"replace","z":"1"}}}`,
		`{"metadata":{"labels":{"$patch":"delete"}}}`,
		`{"metadata":{"labels":{"$patch":"merge"}}}`,
		`{"metadata":{"annotations":{"new":"1","gone":null}}}`,
		`{"spec":{"tolerations":[{"key":"other"}]}}`,
		`{"spec":{"nodeSelector":{"zone":"a"}}}`,
		`{"spec":{"schedulingGates":[{"name":"g","$patch":"delete"}]}}`,
		`{"spec":{"affinity":{"nodeAffinity":{"x":null}},"securityContext":{"$patch":"delete"}}}`,
		`{"spec":null}`, `{"$patch":"delete"}`, `{"$patch":"replace","metadata":{"name":"n"}}`,
	} {
		t.Run(patch, func(t *testing.T) { both(t, strategicOriginal, patch) })
	}
}

// TestStrategicMergeAtRandom does the same with patches that nobody thought of. The seed is printed by a failure.
func TestStrategicMergeAtRandom(t *testing.T) {
	for seed := range uint64(3000) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := &strategicGenerator{rand.New(rand.NewPCG(seed, 1))}
			original, _ := json.Marshal(g.pod(false))
			patch, _ := json.Marshal(g.pod(true))
			both(t, string(original), string(patch))

			// A patch made of two objects makes one of the other.
			modified, _ := json.Marshal(g.pod(false))
			d := (&corev1.Pod{}).ProtoReflect().Descriptor()
			change, err := strategic.Diff(d, original, modified)
			if err != nil {
				t.Fatal(err)
			}
			got, err := strategic.Apply(d, original, change)
			if err != nil {
				t.Fatalf("%s\n%s\n%s: %v", original, modified, change, err)
			}
			var a, b any
			_ = json.Unmarshal(modified, &a)
			_ = json.Unmarshal(got, &b)
			if diff := cmp.Diff(a, b); diff != "" {
				t.Fatalf("%s\n%s\n%s (-want +got):\n%s", original, modified, change, diff)
			}
		})
	}
}

type strategicGenerator struct{ *rand.Rand }

func (g *strategicGenerator) some(names ...string) []string {
	g.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names[:g.IntN(len(names)+1)]
}

// keyed makes a list of elements with a key; a patch's may delete and order.
func (g *strategicGenerator) keyed(into map[string]any, field, key string, patch bool, fill func(map[string]any), names ...string) {
	if g.IntN(3) == 0 {
		return
	}
	var elements, order []any
	for _, n := range g.some(names...) {
		e := map[string]any{key: n}
		if patch && g.IntN(4) == 0 {
			e["$patch"] = "delete"
		} else {
			fill(e)
			order = append(order, map[string]any{key: n})
		}
		elements = append(elements, e)
	}
	if len(elements) == 0 {
		return
	}
	into[field] = elements
	if patch && g.IntN(8) == 0 {
		into[field] = append(elements, map[string]any{"$patch": "replace"})
	} else if patch && len(order) == len(elements) && g.IntN(2) == 0 { // with deletions the library's order is chance
		if g.IntN(2) == 0 {
			order = slices.Insert(order, g.IntN(len(order)+1), any(map[string]any{key: names[0] + "x"}))
		}
		into["$setElementOrder/"+field] = order
	}
}

func (g *strategicGenerator) pod(patch bool) map[string]any {
	spec, meta := map[string]any{}, map[string]any{}
	g.keyed(spec, "containers", "name", patch, func(c map[string]any) {
		if g.IntN(2) == 0 {
			c["image"] = fmt.Sprint("i:", g.IntN(3))
		}
		g.keyed(c, "env", "name", patch, func(e map[string]any) { e["value"] = fmt.Sprint(g.IntN(3)) }, "A", "B", "C")
		g.keyed(c, "volumeMounts", "mountPath", patch, func(e map[string]any) { e["name"] = fmt.Sprint(g.IntN(3)) }, "/a", "/b")
		if g.IntN(3) == 0 {
			c["args"] = []any{"x", fmt.Sprint(g.IntN(3))}
		}
	}, "a", "b", "c", "d")
	g.keyed(spec, "volumes", "name", patch, func(v map[string]any) {
		source := []string{"emptyDir", "hostPath"}[g.IntN(2)]
		v[source] = map[string]any{}
		if patch && g.IntN(2) == 0 {
			v["$retainKeys"] = []any{"name", source}
		}
	}, "u", "v", "w")
	if g.IntN(2) == 0 {
		var fs []any
		for _, f := range g.some("x/a", "x/b", "x/c") {
			fs = append(fs, f)
		}
		if len(fs) > 0 {
			meta["finalizers"] = fs
		}
	}
	if patch && g.IntN(3) == 0 {
		meta["$deleteFromPrimitiveList/finalizers"] = []any{"x/b"}
		delete(meta, "finalizers") // Kubernetes' library adds and deletes in random order
	}
	labels := map[string]any{}
	for _, l := range g.some("k", "l", "m") {
		labels[l] = fmt.Sprint(g.IntN(3))
		if patch && g.IntN(3) == 0 {
			labels[l] = nil
		}
	}
	if len(labels) > 0 {
		if patch && g.IntN(6) == 0 {
			labels["$patch"] = []string{"replace", "delete"}[g.IntN(2)]
		}
		meta["labels"] = labels
	}
	return map[string]any{"metadata": meta, "spec": spec}
}

// TestPatchKeys compares what our fields say of merging with the tags of Kubernetes' types, for every kind.
func TestPatchKeys(t *testing.T) {
	// Where we differ, and why.
	known := map[string]string{
		"PodStatus.hostIPs":           "one owner has it whole, so a patch replaces it too; nobody patches it",
		"ResourceRequirements.claims": "claims are told apart by name and request, so that both patches and applies merge them",
		// These have a list type for apply and no tags for patches; one option says both for us.
		"ContainerRestartRuleOnExitCodes.values": "set", "VolumeMount.bindMountOptions": "set",
		"NodePodPreemptionPolicy.disableResizePreemption": "set", "NodeAllocatableResourceClaimStatus.containers": "set",
		"ResourceStatus.resources": "map", "PodStatus.volumeHealth": "map",
		"WorkloadSpec.podGroupTemplates": "map", "WorkloadSpec.compositePodGroupTemplates": "map",
		"CompositePodGroupTemplate.podGroupTemplates": "map", "CompositePodGroupTemplate.compositePodGroupTemplates": "map",
	}
	scheme := kubernetesScheme(t)
	seen := map[reflect.Type]bool{}
	compared := 0
	var walk func(d protoreflect.MessageDescriptor, k reflect.Type)
	walk = func(d protoreflect.MessageDescriptor, k reflect.Type) {
		if seen[k] {
			return
		}
		seen[k] = true
		for i := range k.NumField() {
			f := k.Field(i)
			name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
			inner := f.Type
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
				inner = inner.Elem()
			}
			if name == "" && strings.Contains(rest, "inline") {
				seen[inner] = false
				if inner.Kind() == reflect.Struct && inner.Name() != "TypeMeta" {
					walk(d, inner)
				}
				continue
			}
			fd := d.Fields().ByJSONName(name)
			if fd == nil {
				continue // coverage_test.go knows which and why
			}
			options, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
			ours := ""
			if !options.GetAtomic() && len(options.GetListMapKeys()) > 0 {
				ours = "merge " + options.GetListMapKeys()[0]
			} else if options.GetSet() && fd.Message() == nil {
				ours = "merge "
			}
			theirs := ""
			if slices.Contains(strings.Split(f.Tag.Get("patchStrategy"), ","), "merge") {
				theirs = "merge " + f.Tag.Get("patchMergeKey")
			}
			compared++
			id := k.Name() + "." + name
			if _, ok := known[id]; ok == (ours == theirs) {
				t.Errorf("%s: ours %q, Kubernetes %q", id, ours, theirs)
			}
			if fd.Message() != nil && !fd.IsMap() && inner.Kind() == reflect.Struct && !strings.HasPrefix(string(fd.Message().FullName()), "google.") {
				walk(fd.Message(), inner)
			}
		}
	}
	for _, p := range pairs(t) {
		walk(p.kind.Message.Descriptor(), reflect.TypeOf(p.fresh(t, scheme)).Elem())
	}
	if compared < 500 {
		t.Fatalf("only %d fields compared", compared)
	}
}
