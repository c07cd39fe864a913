//go:build compose && linux

package compose

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// project is a clone's deploy/compose, used from the clone's root.
type project struct {
	*engine
	clone string
	// files to give with -f, in order.
	files []string
	env   []string
}

// newProject copies what a clone has, so that nothing is written to the tree, and takes the project down with the test.
func newProject(t *testing.T, e *engine, overrides ...string) *project {
	t.Helper()
	p := &project{engine: e, clone: t.TempDir(), files: append([]string{"compose.yaml"}, overrides...)}
	copyTree(t, filepath.Join(e.root, "deploy", "compose"), filepath.Join(p.clone, "deploy", "compose"))
	copyTree(t, filepath.Join(e.root, "examples"), filepath.Join(p.clone, "examples"))
	// A clone's folder of state belongs to somebody, and is empty.
	state := filepath.Join(p.clone, "deploy", "compose", "state")
	if err := errors.Join(os.RemoveAll(state), os.Mkdir(state, 0o755), os.Chown(state, owner, owner)); err != nil {
		t.Fatal(err)
	}
	if p.old(t) {
		p.files = append(p.files, "compose.engine24.yaml")
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := p.compose("logs", "--no-color", "--tail=30").CombinedOutput()
			t.Logf("logs:\n%s", out)
		}
		if out, err := p.compose("down", "--volumes", "--timeout=10").CombinedOutput(); err != nil {
			t.Errorf("docker compose down: %v\n%s", err, out)
		}
		for _, kind := range []string{"container", "volume", "network"} {
			left := p.run(t, "docker", kind, "ls", "--quiet", "--filter", "label=com.docker.compose.project")
			if left != "" {
				t.Errorf("%ss left after down: %s", kind, left)
			}
		}
	})
	return p
}

// owner of the folder of state: nobody's number in particular, but not root's.
const owner = 1234

// old reports an engine that does not know start_interval.
func (p *project) old(t *testing.T) bool {
	t.Helper()
	version := p.run(t, "docker", "version", "--format", "{{.Server.Version}}")
	major, err := strconv.Atoi(strings.Split(strings.TrimSpace(version), ".")[0])
	if err != nil {
		t.Fatalf("version %q: %v", version, err)
	}
	return major < 25
}

// compose is docker compose in the project's folder.
func (p *project) compose(args ...string) *exec.Cmd {
	all := []string{"docker", "compose", "--progress=plain", "--env-file=local.env"}
	for _, f := range p.files {
		all = append(all, "--file="+f)
	}
	c := p.command(append(all, args...)...)
	c.Dir = filepath.Join(p.clone, "deploy", "compose")
	c.Env = append(c.Env, p.env...)
	return c
}

// up brings the project, or some of its services, up and waits until all are healthy.
func (p *project) up(t *testing.T, services ...string) {
	t.Helper()
	began := time.Now()
	args := append([]string{"up", "--detach", "--no-build", "--wait", "--wait-timeout=240"}, services...)
	if out, err := p.compose(args...).CombinedOutput(); err != nil {
		t.Fatalf("docker compose up: %v\n%s", err, out)
	}
	t.Logf("docker compose up: healthy after %.1f s", time.Since(began).Seconds())
}

// do runs a command of compose that must succeed.
func (p *project) do(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.compose(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker compose %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// sh runs a line as a user types it in the clone's root.
func (p *project) sh(line string) (string, error) {
	c := p.command("sh", "-c", line)
	c.Dir = p.clone
	out, err := c.CombinedOutput()
	return string(out), err
}

// trireme runs the CLI on the machine, with the context that the project has written.
func (p *project) trireme(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.tryTrireme(args...)
	if err != nil {
		t.Fatalf("trireme %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (p *project) tryTrireme(args ...string) (string, error) {
	c := p.command(append([]string{"trireme"}, args...)...)
	c.Dir = p.clone
	c.Env = append(c.Env, "TRIREME_CONFIG=deploy/compose/state/config.yaml")
	out, err := c.CombinedOutput()
	return string(out), err
}

// pod is what the tests want to know of one.
type pod struct {
	Metadata struct{ Name, UID string }
	Spec     struct{ NodeName string }
	Status   struct {
		Phase, PodIP      string
		ContainerStatuses []struct {
			Ready        bool
			RestartCount int
		}
	}
}

func (p pod) restarts() int {
	n := 0
	for _, c := range p.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

func (p *project) pods(t *testing.T, selector string) []pod {
	t.Helper()
	var list struct{ Items []pod }
	out := p.trireme(t, "get", "pods", "--selector="+selector, "--output=json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return list.Items
}

// nodesReady waits until both nodes are Ready with eight GPUs each.
func (p *project) nodesReady(t *testing.T) {
	t.Helper()
	p.eventually(t, "two Ready nodes of 8 GPUs", func() (bool, string) {
		out, err := p.tryTrireme("get", "nodes")
		if err != nil {
			return false, out
		}
		ready := 0
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			if len(f) > 2 && slices.Contains([]string{"node-1", "node-2"}, f[0]) && f[1] == "Ready" && strings.HasSuffix(f[2], "/8") {
				ready++
			}
		}
		return ready == 2, out
	})
}

// running waits until so many pods of a selector are ready, and returns them.
func (p *project) running(t *testing.T, selector string, want int) []pod {
	t.Helper()
	var all []pod
	p.eventually(t, strconv.Itoa(want)+" ready pods of "+selector, func() (bool, string) {
		out, err := p.tryTrireme("get", "pods", "--selector="+selector, "--output=wide")
		if err != nil {
			return false, out
		}
		all = p.pods(t, selector)
		ready := 0
		for _, one := range all {
			if one.Status.Phase == "Running" && len(one.Status.ContainerStatuses) > 0 && one.Status.ContainerStatuses[0].Ready {
				ready++
			}
		}
		return ready == want && len(all) == want, out
	})
	return all
}

func (p *project) eventually(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	const patience = 150 * time.Second
	began := time.Now()
	for {
		done, seen := ok()
		if done {
			t.Logf("%s after %.1f s", what, time.Since(began).Seconds())
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("no %s within %s; last seen:\n%s", what, patience, seen)
		}
		time.Sleep(pollEvery)
	}
}

// override writes a compose file into the project and uses it.
func (p *project) override(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.clone, "deploy", "compose", name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.files = append(p.files, name)
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if d.IsDir() {
			if d.Name() == "state" {
				return fs.SkipDir
			}
			return os.MkdirAll(target, 0o755)
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = in.Close() }()
		out, err := os.Create(target)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		return errors.Join(err, out.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}
