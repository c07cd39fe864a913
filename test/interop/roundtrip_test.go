package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"
	"k8s.io/apimachinery/pkg/api/resource"
	kubemetav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
	kubeyaml "sigs.k8s.io/yaml"

	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
)

// through sends text through our codec, prints the object as JSON and as YAML, and has Kubernetes' strict decoder read
// both. What Kubernetes reads must be want.
func through(t *testing.T, scheme *runtime.Scheme, registry *kind.Registry, p pair, name string, text []byte, want any) {
	t.Helper()
	documents, err := manifest.Decode(registry, name, bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: we cannot read it: %v\n%s", p, err, text)
	}
	if len(documents) != 1 {
		t.Fatalf("%s: read as %d objects", p, len(documents))
	}
	d := documents[0]
	asJSON, err := manifest.EncodeJSON(d.Kind, d.Object)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := manifest.EncodeYAML(d.Kind, d.Object)
	if err != nil {
		t.Fatal(err)
	}
	yamlAsJSON, err := kubeyaml.YAMLToJSONStrict(asYAML)
	if err != nil {
		t.Fatalf("%s: Kubernetes cannot read our YAML: %v\n%s", p, err, asYAML)
	}
	for format, printed := range map[string][]byte{"JSON": asJSON, "YAML": yamlAsJSON} {
		got := p.fresh(t, scheme)
		if err := strictly(printed, got); err != nil {
			t.Fatalf("%s: Kubernetes cannot read our %s: %v\n%s", p, format, err, printed)
		}
		// We print the kind's first apiVersion whichever was read.
		got.(runtime.Object).GetObjectKind().SetGroupVersionKind(p.gvk)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Comparer(sameFields)); diff != "" {
			t.Errorf("%s: what Kubernetes reads from our %s differs (-original +ours):\n%s", p, format, diff)
		}
	}
	// And we read our own words alike.
	for _, printed := range [][]byte{asJSON, asYAML} {
		again, err := manifest.Decode(registry, name, bytes.NewReader(printed))
		if err != nil {
			t.Fatalf("%s: we cannot read what we printed: %v\n%s", p, err, printed)
		}
		if diff := cmp.Diff(d.Object, again[0].Object, protocmp.Transform()); diff != "" {
			t.Errorf("%s: printed and read again it differs (-first +second):\n%s", p, diff)
		}
	}
}

// sameFields compares sets of fields as JSON: the order of its keys and its spaces mean nothing.
func sameFields(a, b kubemetav1.FieldsV1) bool {
	var x, y any
	return json.Unmarshal(a.GetRawBytes(), &x) == nil && json.Unmarshal(b.GetRawBytes(), &y) == nil && cmp.Equal(x, y)
}

// TestFixtures takes the objects that k8s.io/api keeps for its own tests, in which every field has a value.
func TestFixtures(t *testing.T) {
	scheme, registry := kubernetesScheme(t), kind.Builtin()
	dir := filepath.Join(moduleDir(t, "k8s.io/api"), "testdata", "HEAD")
	for _, p := range pairs(t) {
		t.Run(strings.ReplaceAll(p.String(), "/", "."), func(t *testing.T) {
			want := p.fresh(t, scheme)
			asJSON := readFixture(t, filepath.Join(dir, p.fixture()+".json"))
			if err := strictly(asJSON, want); err != nil {
				t.Fatal(err)
			}
			through(t, scheme, registry, p, p.fixture()+".json", asJSON, want)
			through(t, scheme, registry, p, p.fixture()+".yaml", readFixture(t, filepath.Join(dir, p.fixture()+".yaml")), want)
		})
	}
}

func readFixture(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRandomObjects takes objects that Kubernetes' types hold and prints: some fields set, some not, lists and maps
// empty or not, texts that look like numbers.
func TestRandomObjects(t *testing.T) {
	scheme, registry := kubernetesScheme(t), kind.Builtin()
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for _, p := range pairs(t) {
		t.Run(strings.ReplaceAll(p.String(), "/", "."), func(t *testing.T) {
			for seed := range int64(rounds) {
				object := p.fresh(t, scheme)
				fillers(seed).Fill(object)
				object.(runtime.Object).GetObjectKind().SetGroupVersionKind(p.gvk)
				printed, err := json.Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				// What Kubernetes itself reads from what it printed: empty values that it does not print are gone.
				want := p.fresh(t, scheme)
				if err := strictly(printed, want); err != nil {
					t.Fatal(err)
				}
				through(t, scheme, registry, p, fmt.Sprintf("seed-%d.json", seed), printed, want)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// texts that a careless codec changes.
var texts = []string{"", "a", "true", "no", "1", "0644", "1e3", "~", "2024-01-01T00:00:00Z", "a: b", "a #b", "- a", "*", " a ", "a\nb\n", "a\n\n", "\ta", "é", "\U0001F600", "12:30", "|", "{}", "'", "\"", "\\", "\u2028", "a\r\nb"}

func fillers(seed int64) *randfill.Filler {
	quantities := []string{"0", "1", "500m", "1500m", "2Gi", "1e3", "123456789"}
	return randfill.NewWithSeed(seed).NilChance(0.4).NumElements(0, 3).MaxDepth(20).Funcs(
		func(s *string, c randfill.Continue) { *s = texts[c.Intn(len(texts))] },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = resource.MustParse(quantities[c.Intn(len(quantities))])
		},
		func(i *intstr.IntOrString, c randfill.Continue) {
			if *i = intstr.FromInt32(c.Int31()); c.Bool() {
				*i = intstr.FromString(texts[c.Intn(len(texts))])
			}
		},
		func(m *kubemetav1.Time, c randfill.Continue) { m.Time = time.Unix(c.Int63n(4e9)+1, 0).UTC() },
		func(m *kubemetav1.MicroTime, c randfill.Continue) { m.Time = time.UnixMicro(c.Int63n(4e15) + 1).UTC() },
		func(f *kubemetav1.FieldsV1, _ randfill.Continue) {
			f.SetRawString(`{"f:spec":{"f:replicas":{},".":null}}`)
		},
		func(_ *kubemetav1.TypeMeta, _ randfill.Continue) {},
	)
}

// TestQuantitiesAreText says why the comparison above may use Equal for quantities: Kubernetes rewrites them, we keep
// what was written.
func TestQuantitiesAreText(t *testing.T) {
	const text = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": 0.5}}}]}}`
	documents, err := manifest.Decode(kind.Builtin(), "quantity.json", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	printed, err := manifest.ToJSON(documents[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(printed, []byte(`"cpu":"0.5"`)) {
		t.Errorf("got %s", printed)
	}
}
