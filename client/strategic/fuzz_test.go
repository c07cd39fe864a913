package strategic_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"trireme.dev/client/strategic"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// FuzzDiff makes a patch of any two objects: it is refused, or makes the second of the first.
func FuzzDiff(f *testing.F) {
	f.Add([]byte(`{"spec":{"containers":[{"name":"a"},{"name":"b","image":"x"}]}}`), []byte(`{"spec":{"containers":[{"name":"b"},{"name":"c"}]}}`))
	f.Add([]byte(`{"metadata":{"finalizers":["a","b"],"labels":{"x":"y"}}}`), []byte(`{"metadata":{"finalizers":["b","c"]}}`))
	f.Add([]byte(`{"spec":{"tolerations":[{}],"volumes":[{"name":"v","emptyDir":{}}]}}`), []byte(`{"spec":{"volumes":[{"name":"v","hostPath":{"path":"/"}}]}}`))
	f.Add([]byte(`{}`), []byte(`{"spec":{"containers":[]}}`))
	d := (&corev1.Pod{}).ProtoReflect().Descriptor()
	f.Fuzz(func(t *testing.T, from, to []byte) {
		var want any
		if json.Unmarshal(to, &want) != nil || special(want) {
			return
		}
		patch, err := strategic.Diff(d, from, to)
		if err != nil {
			return
		}
		text, err := strategic.Apply(d, from, patch)
		if err != nil {
			return // what came first cannot be merged into
		}
		var got any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\nwith %s\nis   %s\nwant %s", from, patch, text, to)
		}
	})
}

// special reports whether a document holds what a patch cannot say: nulls and directives.
func special(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for k, e := range v {
			if len(k) > 0 && k[0] == '$' || special(e) {
				return true
			}
		}
	case []any:
		for _, e := range v {
			if special(e) {
				return true
			}
		}
	}
	return false
}

// FuzzApply applies any patch to any document: refused, or JSON again.
func FuzzApply(f *testing.F) {
	f.Add([]byte(`{"spec":{"containers":[{"name":"a"}]}}`), []byte(`{"spec":{"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"a","$patch":"delete"}]}}`))
	f.Add([]byte(`{"metadata":{"finalizers":["a"]}}`), []byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"]},"spec":{"$retainKeys":["x"]}}`))
	d := (&corev1.Pod{}).ProtoReflect().Descriptor()
	f.Fuzz(func(t *testing.T, original, patch []byte) {
		text, err := strategic.Apply(d, original, patch)
		if err == nil && !json.Valid(text) {
			t.Fatalf("%q with %q gives %q", original, patch, text)
		}
	})
}
