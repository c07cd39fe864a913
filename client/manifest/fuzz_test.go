package manifest_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// FuzzDecode holds that no text makes the codec panic, that a refusal says where, and that what was read once is
// printed and read again as the same.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		deployment,
		"apiVersion: v1\nkind: ConfigMap\ndata: &a\n  x: |2-\n      y\n  ? z\n  : >+\n   folded\n\n   text\n\n---\n# nothing\n---\n{kind: Pod, apiVersion: v1, spec: {hostPID: on}}\n...\n",
		"apiVersion: v1\nkind: Secret\ndata: {a: !!str aGk=, b: 'aGk=\n  aGk='}\nmetadata: {<<: [{name: a}, {labels: {x: ~}}], generation: 0x10}\n",
		`{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"managedFields": [{"fieldsV1": {"a": [1, 2.5e3, null, true, {}]}}]}}]} {}`,
		"apiVersion: coordination.k8s.io/v1\nkind: Lease\nspec: {renewTime: 2024-05-01T10:20:30.123456789+02:00}\n",
		"apiVersion: v1\nkind: Pod\nspec: {containers: [~, {args: [~], resources: {limits: {a: ~}}}], nodeSelector: {a: ~}}\n", "apiVersion: v1\nkind: Secret\ndata: {a: ~}\n",
		"a: &a [*a]\nb: *a\n", "<<: *b", "\xff\xfea\x00", "- !!binary a", "? [a]\n: b", "\"\\ud800\": 1", "k: !<tag:yaml.org,2002:int> 1",
	} {
		f.Add([]byte(seed))
	}
	registry := kind.Builtin()
	f.Fuzz(func(t *testing.T, text []byte) {
		documents, err := manifest.Decode(registry, "fuzz", bytes.NewReader(text))
		if err != nil {
			var list manifest.Errors
			if !errors.As(err, &list) || len(list) == 0 || documents != nil {
				t.Fatalf("%d objects and the error %v", len(documents), err)
			}
			for _, one := range list {
				if one.File != "fuzz" || one.Document < 1 || one.Message == "" {
					t.Fatalf("an error that says too little: %#v", one)
				}
			}
			return
		}
		for _, d := range documents {
			again := reread(t, registry, d, manifest.EncodeYAML)
			reread(t, registry, d, manifest.EncodeJSON)
			first, err := manifest.EncodeYAML(d.Kind, d.Object)
			if err != nil {
				t.Fatal(err)
			}
			second, err := manifest.EncodeYAML(again.Kind, again.Object)
			if err != nil || !bytes.Equal(first, second) {
				t.Fatalf("printed twice it differs: %v\n%s\n%s", err, first, second)
			}
		}
	})
}

func reread(t *testing.T, registry *kind.Registry, d manifest.Document, encode func(*kind.Kind, proto.Message) ([]byte, error)) manifest.Document {
	t.Helper()
	printed, err := encode(d.Kind, d.Object)
	if err != nil {
		t.Fatalf("read and not printable: %v", err)
	}
	again, err := manifest.Decode(registry, "printed", bytes.NewReader(printed))
	if err != nil {
		t.Fatalf("printed and not readable: %v\n%s", err, printed)
	}
	if len(again) != 1 || !proto.Equal(d.Object, again[0].Object) {
		t.Fatalf("printed and read again it differs:\n%s\n%v", printed, d.Object)
	}
	return again[0]
}

// FuzzText holds that any text survives YAML and JSON, as a value and as a key.
func FuzzText(f *testing.F) {
	for _, seed := range []string{
		"", "yes", "0x10", "1e3", "~", "a\n", "a\n\n", "\n", " a\nb", "a\n b\n", "\ta\n", "a \nb", "a\n\tb", "a: b", "a:", "#", "a #", "-", "- a", "---", "...",
		"<<", "=", "é\u0085", "\u2028\n", "\ufeffa", "'\"\\", "12:30", "2024-05-01", "|", "\x00", "\x7f", "a\r\nb\n", "{}", "a,b", "\U0001F600", strings.Repeat("k", 1100), "\ufffe", "\ufffd",
	} {
		f.Add(seed)
	}
	registry := kind.Builtin()
	k, _ := registry.ByManifest("v1", "ConfigMap")
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			t.Skip("no message can hold it")
		}
		object := &corev1.ConfigMap{Data: map[string]string{"value": text, text: "key", "list": "- " + text + "\n"}}
		for _, encode := range []func(*kind.Kind, proto.Message) ([]byte, error){manifest.EncodeYAML, manifest.EncodeJSON} {
			reread(t, registry, manifest.Document{Kind: k, Object: object}, encode)
		}
		pod := &corev1.Pod{Spec: &corev1.PodSpec{Containers: []*corev1.Container{{Args: []string{text, "-", text}}}}}
		k, _ := registry.ByManifest("v1", "Pod")
		// What is printed when empty is read as absent, so a first reading makes the pod what it will stay.
		reread(t, registry, manifest.Document{Kind: k, Object: pod}, manifest.EncodeYAML)
	})
}
