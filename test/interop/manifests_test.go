package interop

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
)

var rewrite = flag.Bool("rewrite", false, "write what the tests got into their golden files")

// TestManifests takes manifests as people keep them. Kubernetes' own decoder must read what we print of them, and we
// must read it as the same objects.
func TestManifests(t *testing.T) {
	registry, scheme := kind.Builtin(), kubernetesScheme(t)
	files, err := manifest.Files([]string{"manifests"}, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 5 {
		t.Fatalf("only %d files", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			documents, err := manifest.Read(registry, []string{file}, nil)
			if err != nil {
				t.Fatal(err)
			}
			var printed []byte
			for _, d := range documents {
				asYAML, err := manifest.EncodeYAML(d.Kind, d.Object)
				if err != nil {
					t.Fatal(err)
				}
				printed = append(append(printed, "---\n"...), asYAML...)

				asJSON, err := manifest.EncodeJSON(d.Kind, d.Object)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range pairs(t) {
					if p.kind.Name == d.Kind.Name && p.apiVersion == d.APIVersion {
						if err := strictly(asJSON, p.fresh(t, scheme)); err != nil {
							t.Errorf("%s: Kubernetes cannot read it: %v", d.Source, err)
						}
					}
				}
			}
			again, err := manifest.Decode(registry, "printed", bytes.NewReader(printed))
			if err != nil {
				t.Fatalf("%v\n%s", err, printed)
			}
			for i := range documents {
				if diff := cmp.Diff(documents[i].Object, again[i].Object, protocmp.Transform()); diff != "" {
					t.Errorf("%s: read again it differs (-first +second):\n%s", documents[i].Source, diff)
				}
			}
			golden(t, strings.TrimSuffix(filepath.Join("manifests", "printed", filepath.Base(file)), filepath.Ext(file))+".golden", printed)
		})
	}
}

// TestBadManifests holds the messages about bad manifests: each file in manifests/bad has beside it what a user is told.
func TestBadManifests(t *testing.T) {
	registry := kind.Builtin()
	files, err := manifest.Files([]string{"manifests/bad"}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			documents, err := manifest.Decode(registry, filepath.Base(file), bytes.NewReader(text))
			if err == nil {
				t.Fatalf("it was accepted, as %d objects", len(documents))
			}
			if documents != nil {
				t.Errorf("%d objects came with the error", len(documents))
			}
			golden(t, file+".golden", []byte(err.Error()+"\n"))
		})
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; go test -rewrite writes it", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// TestExamples reads the examples that the documentation shows.
func TestExamples(t *testing.T) {
	documents, err := manifest.Read(kind.Builtin(), []string{filepath.Join("..", "..", "examples")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(documents) == 0 {
		t.Error("no example")
	}
}
