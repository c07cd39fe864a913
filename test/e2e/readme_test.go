//go:build e2e && linux

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"trireme.dev/test/readme"
)

// TestReadme runs the commands of documents on the clusters that they name, in their order.
func TestReadme(t *testing.T) {
	for _, of := range []struct {
		cluster   string
		args      []string
		documents []string
	}{
		{"sim", []string{"--simulate", "4", "--gpus", "8"}, []string{"README.md", "examples/coscheduling/README.md"}},
		{"up", []string{"--gpus", "8"}, []string{"README.md"}},
	} {
		t.Run(of.cluster, func(t *testing.T) {
			c := start(t, of.args...)
			// What the blocks write stays out of the tree: they run in a folder that shows it.
			dir := t.TempDir()
			for _, part := range []string{"bin", "build", "examples"} {
				if err := os.Symlink(filepath.Join(c.root, part), filepath.Join(dir, part)); err != nil {
					t.Fatal(err)
				}
			}
			for _, document := range of.documents {
				runDocument(t, c, document, of.cluster, dir)
			}
		})
	}
}

// runDocument runs those blocks of a document that are for a kind of cluster.
func runDocument(t *testing.T, c *cluster, document, kind, dir string) {
	text, err := os.ReadFile(filepath.Join(c.root, document))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := readme.Blocks(document, text)
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(c.state, "run")
	ran := 0
	for _, b := range blocks {
		if b.Cluster != kind {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		out, err := b.Run(ctx, dir, append(os.Environ(), c.environment()...),
			[]string{"~/.local/state/trireme/run", run, "/var/lib/trireme/run", run})
		cancel()
		t.Logf("%s:%d\n%s%s", document, b.Line, b.Script, out)
		if err != nil {
			t.Fatalf("%s: %v\n%s", document, err, c.tails())
		}
		ran++
	}
	if ran == 0 {
		t.Errorf("%s has no block for this cluster", document)
	}
}
