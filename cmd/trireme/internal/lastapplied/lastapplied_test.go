package lastapplied_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/cmd/trireme/internal/lastapplied"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func TestTheManifestIsReadBackAsItWas(t *testing.T) {
	object := &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Name: "c", Namespace: "default"}, Data: map[string]string{"k": "v"}}
	given := proto.CloneOf(object)
	once, err := lastapplied.With(object)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(object, given) {
		t.Errorf("the manifest's own object was changed: %v", object)
	}
	if got := lastapplied.Of(once); !proto.Equal(got, object) {
		t.Errorf("read back %v, want %v", got, object)
	}
	twice, err := lastapplied.With(once)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(twice, once) {
		t.Errorf("carrying it twice gives %v", twice)
	}
}

func TestWhatCannotBeReadIsNothing(t *testing.T) {
	for _, text := range []string{"", "{", `{"kind":"Pod"}`} {
		object := &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Annotations: map[string]string{lastapplied.Annotation: text}}}
		if got := lastapplied.Of(object); got != nil {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
