package manifest_test

import (
	"strings"
	"testing"

	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
)

func TestNeededFirstKeepsTheOrderOfAllElse(t *testing.T) {
	text := ""
	for _, d := range []string{"v1 ConfigMap b", "v1 Namespace two", "v1 ConfigMap a", "scheduling.k8s.io/v1 PriorityClass p", "v1 Namespace one"} {
		f := strings.Fields(d)
		text += "---\napiVersion: " + f[0] + "\nkind: " + f[1] + "\nmetadata: {name: " + f[2] + "}\n"
		if f[1] == "PriorityClass" {
			text += "value: 1\n"
		}
	}
	docs, err := manifest.Decode(kind.Builtin(), "test", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	manifest.NeededFirst(docs)
	var got []string
	for _, d := range docs {
		got = append(got, d.Object.GetMetadata().GetName())
	}
	if strings.Join(got, " ") != "two one p b a" {
		t.Errorf("order %v, want two one p b a", got)
	}
}
