package envelope_test

import (
	"bytes"
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
				OwnerReferences: []*metav1.OwnerReference{{Name: "a", Uid: rapid.StringN(1, 40, 40).Draw(t, "owner")}, {Kind: "b", Uid: "2"}},
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
		parts, head := envelope.AppendParts(nil, []byte("used|front"), len("used|"), payload, revision)
		if joined := bytes.Join(parts, nil); string(joined) != "front"+string(spliced) || !bytes.HasPrefix(head, []byte("used|front")) {
			t.Fatalf("parts %q, want %q", joined, spliced)
		}
		for key, want := range obj.GetMetadata().GetLabels() {
			if value, ok, err := envelope.Label(payload, key); err != nil || !ok || value != want {
				t.Fatalf("label %q: %q %v %v, want %q", key, value, ok, err, want)
			}
		}
		if _, ok, err := envelope.Label(payload, "no such label"); ok || err != nil {
			t.Fatalf("a label that is not there: %v %v", ok, err)
		}
		var uids []string
		if err := envelope.OwnerUIDs(payload, func(uid string) { uids = append(uids, uid) }); err != nil {
			t.Fatal(err)
		}
		for i, ref := range obj.GetMetadata().GetOwnerReferences() {
			if len(uids) != len(obj.GetMetadata().GetOwnerReferences()) || uids[i] != ref.GetUid() {
				t.Fatalf("owners %q", uids)
			}
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
			_, _, _ = envelope.Label(payload, "a") // must not panic
			_ = envelope.OwnerUIDs(payload, func(string) {})
			envelope.AppendParts(nil, nil, 0, payload, 1)
			envelope.Append(nil, payload, 1)
		}
	})
}
