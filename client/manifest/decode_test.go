package manifest_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

func TestErrorsSayWhere(t *testing.T) {
	text := "---\n# nothing\n---\n" + deployment + "---\napiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    imagePullPolciy: Always\n    tty: 1\n"
	_, err := manifest.Decode(kind.Builtin(), "pod.yaml", strings.NewReader(text))
	var got manifest.Errors
	if !errors.As(err, &got) {
		t.Fatalf("got %v", err)
	}
	// The empty document counts: people count the lines of dashes.
	first := strings.Count(text[:strings.Index(text, "imagePullPolciy")], "\n") + 1
	want := manifest.Errors{
		{File: "pod.yaml", Line: first, Document: 3, Path: "spec.containers[0].imagePullPolciy", Message: "unknown field; did you mean imagePullPolicy?"},
		{File: "pod.yaml", Line: first + 1, Document: 3, Path: "spec.containers[0].tty", Message: "expected true or false, got the number 1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := got[1].Error(); text != "pod.yaml:"+itoa(first+1)+": document 3: spec.containers[0].tty: expected true or false, got the number 1" {
		t.Errorf("got %s", text)
	}
	var one *manifest.Error
	if !errors.As(err, &one) || one != got[0] {
		t.Errorf("errors.As found %v", one)
	}
}

func itoa(n int) string { text, _ := json.Marshal(n); return string(text) }

func TestFromJSON(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string // of Error; empty where it is accepted
	}{
		{"complete", `{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "a"}, "value": 5}`, nil},
		{"without its type", `{"metadata": {"name": "a"}, "value": 5, "description": null}`, nil},
		{"another type", `{"apiVersion": "v1", "kind": "Pod", "value": 5}`, []string{
			`kind: expected PriorityClass, got the string "Pod"`, `apiVersion: expected scheduling.k8s.io/v1, got the string "v1"`}},
		{"unknown field", "{\"metadata\": {\"name\": \"a\"},\n\"valeu\": 5}", []string{"valeu: unknown field; did you mean value?"}},
		{"a string of digits", `{"value": "5"}`, []string{`value: expected an integer, got the string "5"; remove the quotes`}},
		{"a whole float", `{"value": 5.0}`, []string{"value: expected an integer, got the number 5.0; write 5"}},
		{"out of range", `{"value": 2147483648}`, []string{"value: 2147483648 is out of range; the smallest is -2147483648, the largest 2147483647"}},
		{"far out of range", `{"value": 1e99}`, []string{"value: expected an integer, got the number 1e99"}},
		{"repeated", `{"value": 5, "value": 5}`, []string{"value: duplicate key, first given in line 1"}},
		{"two values", `{} {}`, []string{"expected one JSON object, got 2 values"}},
		{"no value", ``, []string{"expected one JSON object, got 0 values"}},
		{"a list", `[]`, []string{"expected a mapping of fields, got a list"}},
		{"null", `null`, []string{"expected a mapping of fields, got null"}},
		{"a comma too many", `{"value": 5,}`, []string{"not valid JSON: invalid character '}' looking for beginning of object key string"}},
		{"the system's own field", `{"metadata": {"traceContext": "00-1"}}`, []string{"metadata.traceContext: unknown field"}},
		{"bad UTF-8", "{\"description\": \"\xff\"}", []string{"not valid UTF-8"}},
		{"deep", strings.Repeat(`{"a":`, 600), []string{"not valid JSON: values are nested more than 500 deep"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := &schedulingv1.PriorityClass{}
			err := manifest.FromJSON([]byte(test.text), got)
			if len(test.want) == 0 {
				want := &schedulingv1.PriorityClass{Metadata: &metav1.ObjectMeta{Name: "a"}, Value: proto.Int32(5)}
				if diff := cmp.Diff(want, got, protocmp.Transform()); err != nil || diff != "" {
					t.Errorf("%v (-want +got):\n%s", err, diff)
				}
				return
			}
			var list manifest.Errors
			if !errors.As(err, &list) {
				t.Fatalf("got %v and %v", got, err)
			}
			var messages []string
			for _, one := range list {
				messages = append(messages, one.Error())
			}
			if diff := cmp.Diff(test.want, messages); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestScalars has a value where its type is not the text's first meaning.
func TestScalars(t *testing.T) {
	const text = `apiVersion: v1
kind: Pod
metadata:
  generation: -0x10
  creationTimestamp: 2024-05-01T10:20:30.987+02:00
  annotations: {date: 2024-05-01, time: 12:30, none: ~, tagged: !!str 5, version: 1.2.3, "quoted": 'yes', <<: {added: a, none: lost}}
spec:
  hostPID: on
  hostIPC: No
  hostNetwork: null
  activeDeadlineSeconds: 1_000
  terminationGracePeriodSeconds: 0o17
  nodeSelector: {}
  containers:
  - name: a
    args: [~, --flag, -, "null"]
    resources: {limits: {cpu: 0x10, memory: 1.5e3, disk: "1Ki", none: null}}
    livenessProbe: {tcpSocket: {port: 0b101}}
    readinessProbe: {tcpSocket: {port: "5"}}
`
	documents, err := manifest.Decode(kind.Builtin(), "scalars", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	got, err := manifest.ToMap(documents[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	delete(got, "status")
	want := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"generation": int64(-16), "creationTimestamp": "2024-05-01T08:20:30Z",
			"annotations": map[string]any{"date": "2024-05-01", "time": "12:30", "none": "", "tagged": "5", "version": "1.2.3", "quoted": "yes", "added": "a"},
		},
		"spec": map[string]any{
			"hostPID": true, "hostIPC": false, "activeDeadlineSeconds": int64(1000), "terminationGracePeriodSeconds": int64(15),
			"containers": []any{map[string]any{
				"name": "a", "args": []any{"", "--flag", "-", "null"},
				"resources":      map[string]any{"limits": map[string]any{"cpu": "16", "memory": "1500", "disk": "1Ki", "none": "0"}},
				"livenessProbe":  map[string]any{"tcpSocket": map[string]any{"port": int64(5)}},
				"readinessProbe": map[string]any{"tcpSocket": map[string]any{"port": "5"}},
			}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnenforced(t *testing.T) {
	const text = "apiVersion: v1\nkind: Pod\nspec:\n  hostUsers: true\n  containers:\n  - name: a\n  - name: b\n    volumeDevices: [{name: x, devicePath: /dev/x}]\n"
	documents, err := manifest.Decode(kind.Builtin(), "pod.yaml", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"spec.containers[1].volumeDevices: accepted, but not enforced yet",
		"spec.hostUsers: accepted, but not enforced yet",
	}
	if diff := cmp.Diff(want, documents[0].Warnings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := manifest.Unenforced(&corev1.Pod{}); len(got) != 0 {
		t.Errorf("an empty pod warns: %v", got)
	}
}

func TestList(t *testing.T) {
	objects := []string{"a", "b"}
	var text strings.Builder
	text.WriteString("apiVersion: v1\nkind: List\nmetadata:\n  resourceVersion: \"7\"\nitems:\n")
	for _, name := range objects {
		text.WriteString("- apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    name: " + name + "\n")
	}
	documents, err := manifest.Decode(kind.Builtin(), "list.yaml", strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	if len(documents) != 2 || documents[1].Source != "list.yaml:10" || documents[1].Object.GetMetadata().GetName() != "b" {
		t.Fatalf("got %+v", documents)
	}
	printed, err := manifest.EncodeListYAML([]clientObject{documents[0].Object, documents[1].Object}, &metav1.ListMeta{ResourceVersion: "7"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text.String(), string(printed)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	none, err := manifest.EncodeListJSON(nil, nil)
	if err != nil || string(none) != "{\n    \"apiVersion\": \"v1\",\n    \"kind\": \"List\",\n    \"metadata\": {},\n    \"items\": []\n}\n" {
		t.Errorf("%v, %s", err, none)
	}
}

func TestRead(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	configMap := func(name string) string { return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n" }
	write("b.yml", configMap("b"))
	write("a.yaml", configMap("a"))
	write("c.json", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}`)
	write("notes.txt", "no manifest")
	write("inside/d.yaml", configMap("d"))
	write("bad/one.yaml", configMap("[]"))
	write("bad/two.yaml", "kind: ConfigMap\n")
	write("empty/readme", "")
	registry := kind.Builtin()

	documents, err := manifest.Read(registry, []string{folder, "-"}, strings.NewReader(configMap("stdin")))
	if err != nil {
		t.Fatal(err)
	}
	var names, sources []string
	for _, d := range documents {
		names, sources = append(names, d.Object.GetMetadata().GetName()), append(sources, d.Source)
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "stdin"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if sources[3] != "standard input:1" {
		t.Errorf("stdin is called %s", sources[3])
	}

	files, err := manifest.Files([]string{folder}, true)
	if err != nil || len(files) != 6 {
		t.Errorf("recursive: %v, %v", files, err)
	}

	_, err = manifest.Read(registry, []string{filepath.Join(folder, "bad"), folder}, nil)
	var list manifest.Errors
	if !errors.As(err, &list) || len(list) != 2 || list[0].Path != "metadata.name" || list[1].Path != "apiVersion" {
		t.Errorf("got %v", err)
	}

	for _, refused := range []struct {
		paths []string
		want  string
	}{
		{[]string{"https://example.com/a.yaml"}, "from files"},
		{[]string{"-", "-"}, "once"},
		{[]string{filepath.Join(folder, "absent.yaml")}, "no such file"},
		{[]string{filepath.Join(folder, "empty")}, "no .yaml"},
	} {
		if _, err := manifest.Read(registry, refused.paths, strings.NewReader("")); err == nil || !strings.Contains(err.Error(), refused.want) {
			t.Errorf("%v: got %v, want %q", refused.paths, err, refused.want)
		}
	}
	if err := os.Remove(filepath.Join(folder, "a.yaml")); err != nil {
		t.Fatal(err)
	}
}

// TestRunTimeKinds reads and prints a kind for which no Go code was generated.
func TestRunTimeKinds(t *testing.T) {
	registry := dynamicRegistry(t)
	const text = "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: a\nspec:\n  size: \"9\"\n  since: \"2024-05-01T10:20:30.000001Z\"\n  any:\n    deep:\n    - 1\n    - null\n  limits:\n    cpu: 500m\n  data: aGk=\n"
	documents, err := manifest.Decode(registry, "widget.yaml", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	printed, err := manifest.EncodeYAML(documents[0].Kind, documents[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text, string(printed)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := documents[0].Object.GetMetadata().GetName(); got != "a" {
		t.Errorf("its name is %q", got)
	}
}
