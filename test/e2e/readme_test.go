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

// TestReadme runs the commands of README.md on the clusters that it names, in its order.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := readme.Blocks("README.md", text)
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"sim": {"--simulate", "4", "--gpus", "8"}, "up": {"--gpus", "8"}} {
		t.Run(name, func(t *testing.T) {
			c := start(t, args...)
			// What the blocks write stays out of the tree: they run in a folder that shows it.
			dir := t.TempDir()
			for _, part := range []string{"bin", "build", "examples"} {
				if err := os.Symlink(filepath.Join(c.root, part), filepath.Join(dir, part)); err != nil {
					t.Fatal(err)
				}
			}
			run := filepath.Join(c.state, "run")
			ran := 0
			for _, b := range blocks {
				if b.Cluster != name {
					continue
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				out, err := b.Run(ctx, dir, append(os.Environ(), c.environment()...),
					[]string{"~/.local/state/trireme/run", run, "/var/lib/trireme/run", run})
				cancel()
				t.Logf("README.md:%d\n%s%s", b.Line, b.Script, out)
				if err != nil {
					t.Fatalf("README.md: %v\n%s", err, c.tails())
				}
				ran++
			}
			if ran == 0 {
				t.Error("README.md has no block for this cluster")
			}
		})
	}
}
