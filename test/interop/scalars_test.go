package interop

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kubeyaml "sigs.k8s.io/yaml"

	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
)

// TestPlainScalars holds what YAML's plain scalars are for us against what they are for Kubernetes: numbers in all
// bases, the many spellings of true, dates. Besides a list of the known oddities it tries words of the letters that
// such scalars are made of.
func TestPlainScalars(t *testing.T) {
	words := strings.Fields(`y Y yes Yes YES yEs n N no No NO on On ON off Off OFF true True TRUE false False FALSE null Null NULL ~ nUll
		0 -0 +0 1 +1 -1 007 08 0644 0o644 0O17 0x1F 0XfF 0b101 0B1 -0b101 +0b1 -0x10 1_000 1__0 _1 1_ 0x_1 0_7 9223372036854775807x
		1.0 1. .5 -.5 +.5 . .. ... .e1 1e3 1E3 1e+3 1e-3 1.5e3 1e 1e+ e3 0.0 -0.0 1.2.3 1e999x 1e999 -1e999 12:30 12:30:45 190:20:30
		2024-05-01 2024-05-01T10:20:30Z 2024-5-1 2001-12-14t21:59:43.10-05:00 = << <a -a - -- --- +a +- 0x 0b 0o - 1a a1 .inf2 .nan2 infinity nan inf NaN`)
	random := rand.New(rand.NewPCG(1, 2))
	const letters = "0123456789xXoObB_+-.eE:yYnNsStTrRuUfFaAlL~"
	for range 3000 {
		word := make([]byte, 1+random.IntN(6))
		for i := range word {
			word[i] = letters[random.IntN(len(letters))]
		}
		words = append(words, string(word))
	}
	registry := kind.Builtin()
	numbers, texts := 0, 0
	for _, word := range words {
		theirs, err := kubeyaml.YAMLToJSON([]byte("k: " + word))
		if err != nil {
			continue
		}
		document := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  managedFields:\n  - fieldsV1:\n      k: " + word + "\n"
		documents, err := manifest.Decode(registry, word, strings.NewReader(document))
		if err != nil {
			t.Errorf("%s: %v; Kubernetes reads %s", word, err, theirs)
			continue
		}
		var want map[string]any
		if err := json.Unmarshal(theirs, &want); err != nil {
			t.Fatal(err)
		}
		got := documents[0].Object.GetMetadata().GetManagedFields()[0].GetFieldsV1().AsMap()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-Kubernetes +ours):\n%s", word, diff)
		}
		switch want["k"].(type) {
		case float64:
			numbers++
		case string:
			texts++
		}
	}
	if numbers < 200 || texts < 200 {
		t.Errorf("only %d numbers and %d texts were compared", numbers, texts)
	}
}
