package manifest_test

import (
	"strings"
	"testing"

	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
)

// The gateway turns an object into JSON and back for every patch; the rest is the CLI's.
func BenchmarkCodec(b *testing.B) {
	registry := kind.Builtin()
	documents, err := manifest.Decode(registry, "web.yaml", strings.NewReader(deployment))
	if err != nil {
		b.Fatal(err)
	}
	k, object := documents[0].Kind, documents[0].Object
	asJSON, err := manifest.ToJSON(object)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("ToJSON", func(b *testing.B) {
		b.SetBytes(int64(len(asJSON)))
		for b.Loop() {
			if _, err := manifest.ToJSON(object); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("FromJSON", func(b *testing.B) {
		b.SetBytes(int64(len(asJSON)))
		for b.Loop() {
			if err := manifest.FromJSON(asJSON, k.Message.New().Interface()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("EncodeYAML", func(b *testing.B) {
		b.SetBytes(int64(len(deployment)))
		for b.Loop() {
			if _, err := manifest.EncodeYAML(k, object); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("DecodeYAML", func(b *testing.B) {
		b.SetBytes(int64(len(deployment)))
		for b.Loop() {
			if _, err := manifest.Decode(registry, "web.yaml", strings.NewReader(deployment)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
