package registry

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/ownership"
)

var testTime = time.Unix(1e9, 0)

func podResource(tb testing.TB) *Resource {
	tb.Helper()
	k := kind.Of((&corev1.Pod{}).ProtoReflect().Type())
	owners, err := ownership.Compile(k)
	if err != nil {
		tb.Fatal(err)
	}
	return &Resource{Kind: k, owners: owners, prefix: prefixOf(k)}
}

// FuzzPatch applies any patch of any language to a pod: it is refused with an error that says why, or what comes of it
// is a pod that prints and reads back.
func FuzzPatch(f *testing.F) {
	for _, patch := range []string{
		`{"spec":{"containers":[{"name":"c","image":"i:2"}]}}`, `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`,
		`{"spec":{"$setElementOrder/containers":[{"name":"d"},{"name":"c"}],"containers":[{"name":"d"}]}}`,
		`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a/b"]},"spec":{"$patch":"replace"}}`,
		`[{"op":"copy","from":"/spec","path":"/metadata/x"}]`, `{"metadata":null}`, `{"metadata":{"managedFields":[{}]}}`,
		`[{"op":"remove","path":""}]`, `null`, `{"spec":{"containers":[{"$patch":"delete"}]}}`,
	} {
		for language := range int32(4) {
			f.Add(language, []byte(patch))
		}
	}
	r := podResource(f)
	f.Fuzz(func(t *testing.T, language int32, patch []byte) {
		apply, err := r.parsePatch(&metav1.PatchRequest{Type: metav1.PatchType(language), Patch: patch}, Main)
		if err != nil {
			if apierr.ReasonOf(err) != apierr.ReasonInvalid {
				t.Fatalf("%v is not the caller's fault", err)
			}
			return
		}
		old := &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "p", Finalizers: []string{"a/b"}, Labels: map[string]string{"l": "1"}},
			Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "i:1"}}},
		}
		next, err := r.patched(old, apply)
		if err != nil {
			if apierr.ReasonOf(err) != apierr.ReasonInvalid {
				t.Fatalf("%v is not the caller's fault", err)
			}
			return
		}
		text, err := manifest.ToJSON(next)
		if err != nil {
			t.Fatal(err)
		}
		again := r.New()
		if err := manifest.FromJSON(text, again); err != nil || !proto.Equal(next, again) {
			t.Fatalf("%s does not read back: %v", text, err)
		}
	})
}

// FuzzApply applies any two configurations of two managers, one after the other, with force: each is refused, or its
// values are what is there, and the first again changes nothing that the second does not own.
func FuzzApply(f *testing.F) {
	const head = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}`
	f.Add([]byte(head+`,"spec":{"containers":[{"name":"c","image":"i"}]}}`), []byte(head+`,"spec":{"containers":[{"name":"c","ports":[{"containerPort":1}]}]}}`))
	f.Add([]byte(head+`,"spec":{"tolerations":[{"key":"k"}],"nodeSelector":{"a":"b"}}}`), []byte(head+`,"spec":{"nodeSelector":{"c":"d"}}}`))
	f.Add([]byte(head+`,"status":{"phase":"Running"}}`), []byte(head+`}`))
	r := podResource(f)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var live Object
		for i, text := range [][]byte{first, second, second} {
			config, version, err := r.config(&metav1.PatchRequest{Namespace: "default", Name: "p", Patch: text})
			if err != nil {
				return
			}
			w := ownership.Writer{Manager: []string{"one", "two", "two"}[i], APIVersion: version}
			next, err := r.owners.Apply(live, config, w, true, testTime)
			if err != nil {
				if apierr.ReasonOf(err) != apierr.ReasonInvalid {
					t.Fatalf("apply %s: %v", text, err)
				}
				return
			}
			if i == 2 && !proto.Equal(next, live) {
				t.Fatalf("applying the same again changes %v to %v", live, next)
			}
			live = next
		}
	})
}

// FuzzSelector reads any selectors: refused, or a filter that answers.
func FuzzSelector(f *testing.F) {
	f.Add("app=web,tier in (a,b),!x", "spec.nodeName=n,metadata.name!=p")
	f.Add("a notin (", "status.phase")
	r := podResource(f)
	fields, err := fieldReaders(r.Kind)
	if err != nil {
		f.Fatal(err)
	}
	r.fields = fields
	f.Fuzz(func(t *testing.T, labels, fields string) {
		if _, err := r.filter("default", labels, fields); err != nil && apierr.ReasonOf(err) != apierr.ReasonInvalid {
			t.Fatalf("%v is not the caller's fault", err)
		}
	})
}

// FuzzToken reads any continue token: refused, or a place from which a list can go on.
func FuzzToken(f *testing.F) {
	f.Add(encodeToken(7, "default/p", 3))
	f.Add("")
	f.Add("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLi4vLi4vIn0")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := decodeToken(text)
		if err != nil {
			if apierr.ReasonOf(err) != apierr.ReasonInvalid {
				t.Fatalf("%v is not the caller's fault", err)
			}
			return
		}
		if again, err := decodeToken(encodeToken(got.Revision, got.Start, got.List)); err != nil || again != got {
			t.Fatalf("%+v reads back as %+v, %v", got, again, err)
		}
	})
}
