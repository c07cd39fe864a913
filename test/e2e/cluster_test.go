//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// cluster is one `trireme up`.
type cluster struct {
	root   string // of the repository
	state  string
	run    string // where its node agent keeps sockets and namespaces
	config string
	killed map[string]int
}

// start brings a cluster up in a state folder of its own and takes it down when the test ends.
func start(t *testing.T, args ...string) *cluster {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{root: root, killed: map[string]int{}}
	if _, err := os.Stat(c.binary("trireme")); err != nil {
		t.Fatalf("bin/trireme is missing: run `make build` first (%v)", err)
	}
	// Unix sockets have short paths: the state cannot live under the long name of t.TempDir.
	if c.state, err = os.MkdirTemp("", "trireme-e2e-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(c.state); err != nil {
			t.Errorf("state folder cannot be removed: %v", err)
		}
	})
	c.config = filepath.Join(t.TempDir(), "config.yaml")
	t.Cleanup(func() {
		if out, err := c.command("down", "--purge", "--state-dir", c.state).CombinedOutput(); err != nil {
			t.Errorf("trireme down: %v\n%s\n%s", err, out, c.tails())
		}
	})
	out, err := c.command(append([]string{"up", "--detach", "--state-dir", c.state, "--listen", "127.0.0.1:0", "--node-listen", "127.0.0.1:0"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("trireme up: %v\n%s\n%s", err, out, c.tails())
	}
	t.Logf("%s", out)
	text, err := os.ReadFile(filepath.Join(c.state, "nodeagent.json"))
	if err != nil {
		t.Fatal(err)
	}
	var agent struct{ RunDir string }
	if err := json.Unmarshal(text, &agent); err != nil || agent.RunDir == "" {
		t.Fatalf("nodeagent.json has no RunDir (%v)", err)
	}
	c.run = agent.RunDir
	return c
}

func (c *cluster) binary(name string) string { return filepath.Join(c.root, "bin", name) }

func (c *cluster) command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.binary("trireme"), args...)
	cmd.Env = append(os.Environ(), "TRIREME_CONFIG="+c.config)
	return cmd
}

// environment that scripts see.
func (c *cluster) environment() []string {
	bin := filepath.Join(c.root, "bin")
	return []string{
		"TRIREME_CONFIG=" + c.config,
		"STATE=" + c.state,
		"BIN=" + bin,
		"ROOT=" + c.root,
		"PATH=" + strings.Join([]string{bin, filepath.Join(c.root, "build", "tools"), os.Getenv("PATH")}, string(os.PathListSeparator)),
	}
}

// tails are the last lines of each service's log.
func (c *cluster) tails() string {
	files, err := filepath.Glob(filepath.Join(c.state, "log", "*.log"))
	if err != nil {
		return err.Error()
	}
	var all bytes.Buffer
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			text = []byte(err.Error())
		}
		const most = 6000
		if len(text) > most {
			text = text[len(text)-most:]
		}
		fmt.Fprintf(&all, "--- %s\n%s\n", filepath.Base(file), text)
	}
	return all.String()
}
