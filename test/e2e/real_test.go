//go:build e2e && linux

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestReal is one node with real containers and eight simulated GPUs: containerd, network, volumes, devices. It needs
// root and what `make runtimes image` builds.
func TestReal(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("real containers need root")
	}
	for _, image := range []string{"gpu-worker.tar", "busybox.tar"} {
		if _, err := os.Stat(filepath.Join("..", "..", "build", "images", image)); err != nil {
			t.Fatalf("image is missing: run `make images` first (%v)", err)
		}
	}
	before := bridges(t)
	var c *cluster
	t.Cleanup(func() { // after down --purge: nothing at all is left
		if c != nil {
			if left, err := c.traces(); err != nil || len(left) > 0 {
				t.Errorf("left after down --purge: %v\n%s", err, strings.Join(left, "\n"))
			}
		}
		if left := bridges(t); len(left) > len(before) {
			t.Errorf("bridges left on the machine: %v", left)
		}
		if tables := tables(t); len(tables) > 0 {
			t.Errorf("nft tables left on the machine: %v", tables)
		}
	})
	c = start(t, "--gpus", "8")
	runScenario(t, "real", c)
}

// leftNothing waits until no trace of any pod of the cluster is left on the machine.
func (c *cluster) leftNothing(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: leftnothing")
	}
	var left []string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(pollEvery) {
		var err error
		if left, err = c.traces(); err == nil && len(left) == 0 {
			return
		} else if err != nil {
			left = []string{err.Error()}
		}
	}
	ts.Fatalf("left behind by pods:\n%s", strings.Join(left, "\n"))
}

// traces lists what pods of the cluster have left: shims, mounts, folders, cgroups, network interfaces.
func (c *cluster) traces() ([]string, error) {
	var left []string
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, p := range processes {
		text, err := os.ReadFile(p)
		if err != nil {
			continue // it has ended
		}
		if line := strings.ReplaceAll(string(text), "\x00", " "); strings.Contains(line, "containerd-shim") && strings.Contains(line, c.run) {
			left = append(left, "process: "+line)
		}
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 &&
			(strings.HasPrefix(fields[1], c.state) || strings.HasPrefix(fields[1], c.run)) {
			left = append(left, "mount: "+line)
		}
	}
	for _, pattern := range []string{
		filepath.Join(c.state, "nodes", "*", "pods", "*"),
		filepath.Join(c.run, "pods", "*"),
		"/sys/fs/cgroup/kubepods/*/pod*", "/sys/fs/cgroup/kubepods/pod*",
		"/sys/fs/cgroup/*/kubepods/*/pod*", "/sys/fs/cgroup/*/kubepods/pod*",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pattern, err)
		}
		left = append(left, found...)
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range interfaces {
		if strings.HasPrefix(i.Name, "tr-") {
			left = append(left, "interface: "+i.Name)
		}
	}
	return left, nil
}

func bridges(t *testing.T) []string {
	t.Helper()
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range interfaces {
		if strings.HasPrefix(i.Name, "trireme") {
			names = append(names, i.Name)
		}
	}
	return names
}

func tables(t *testing.T) []string {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	all, err := conn.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range all {
		if strings.HasPrefix(table.Name, "trireme") {
			names = append(names, table.Name)
		}
	}
	return names
}
