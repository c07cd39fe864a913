package envelope_test

import (
	"maps"
	"strconv"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
)

func TestSplicedObjectHasItsRevision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.MapOf(rapid.String(), rapid.String())
		obj := &corev1.ConfigMap{
			Metadata: &metav1.ObjectMeta{
				Name:            rapid.StringN(0, 200, 200).Draw(t, "name"),
				Namespace:       rapid.String().Draw(t, "namespace"),
				ResourceVersion: rapid.SampledFrom([]string{"", "7"}).Draw(t, "old version"),
				Labels:          texts.Draw(t, "labels"),
				Annotations:     texts.Draw(t, "annotations"),
				Generation:      rapid.Int64().Draw(t, "generation"),
			},
			Data: texts.Draw(t, "data"),
		}
		revision := rapid.Int64Range(1, 1<<62).Draw(t, "revision")
		before := proto.Clone(obj)
		stored, err := envelope.Encode(obj)
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(obj, before) {
			t.Fatal("encoding changed the object")
		}
		payload, err := envelope.Open(stored)
		if err != nil {
			t.Fatal(err)
		}
		spliced := envelope.Append(nil, payload, revision)
		if len(spliced) != envelope.Size(payload, revision) {
			t.Fatalf("%d bytes, Size said %d", len(spliced), envelope.Size(payload, revision))
		}
		got := &corev1.ConfigMap{}
		if err := proto.Unmarshal(spliced, got); err != nil {
			t.Fatal(err)
		}
		want, _ := proto.Clone(obj).(*corev1.ConfigMap)
		want.Metadata.ResourceVersion = strconv.FormatInt(revision, 10)
		if !proto.Equal(got, want) {
			t.Fatalf("got %v\nwant %v", got, want)
		}
		decoded := &corev1.ConfigMap{}
		if err := envelope.Decode(stored, revision, decoded); err != nil || !proto.Equal(decoded, want) {
			t.Fatalf("decoded %v, %v", decoded, err)
		}
		labels, err := envelope.Labels(payload)
		if err != nil || !maps.Equal(labels, obj.GetMetadata().GetLabels()) {
			t.Fatalf("labels %v, %v", labels, err)
		}
	})
}

func TestGarbageIsRefused(t *testing.T) {
	for name, stored := range map[string][]byte{
		"nothing":          nil,
		"no envelope":      []byte("hello"),
		"another version":  {1, 9, 0x0a, 0},
		"no metadata":      {1, 1, 0x12, 0},
		"metadata cut off": {1, 1, 0x0a, 9, 1},
	} {
		if _, err := envelope.Open(stored); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		stored := append([]byte{1, 1}, rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")...)
		if payload, err := envelope.Open(stored); err == nil {
			_, _ = envelope.Labels(payload) // must not panic
			envelope.Append(nil, payload, 1)
		}
	})
}
