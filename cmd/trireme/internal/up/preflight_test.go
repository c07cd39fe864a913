package up

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func programs(t *testing.T, dir string, names ...string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if err := os.WriteFile(filepath.Join(dir, n), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindRuntime(t *testing.T) {
	root := t.TempDir()
	exe := filepath.Join(programs(t, filepath.Join(root, "bin"), "trireme"), "trireme")
	whole := programs(t, filepath.Join(root, "whole"), runtimePrograms...)
	half := programs(t, filepath.Join(root, "half"), "containerd", "runc")
	none := programs(t, filepath.Join(root, "none"))

	if dir, missing := findRuntime("", exe, half+":"+whole); dir != whole || missing != nil {
		t.Errorf("on PATH: %q, %v, want %s", dir, missing, whole)
	}
	_, missing := findRuntime("", exe, half+":"+none)
	if len(missing) != 1 || !strings.Contains(missing[0], "make runtimes") || !strings.Contains(missing[0], half+" (lacks containerd-shim-runc-v2)") {
		t.Errorf("nowhere: %v", missing)
	}
	built := programs(t, filepath.Join(root, "build", "runtime", "bin"), runtimePrograms...)
	if dir, missing := findRuntime("", exe, whole); dir != built || missing != nil {
		t.Errorf("beside the program: %q, %v, want %s", dir, missing, built)
	}
	if dir, missing := findRuntime(half, exe, whole); dir != "" || len(missing) != 1 || !strings.Contains(missing[0], half+" (--runtime-bin)") {
		t.Errorf("given and incomplete: %q, %v", dir, missing)
	}
}

func TestClaim(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	_, err = claim("--node-listen", taken)
	if err == nil || !strings.Contains(err.Error(), taken+" is in use") || !strings.Contains(err.Error(), "--node-listen") {
		t.Errorf("a taken port: %v", err)
	}
	free, err := claim("--listen", "127.0.0.1:0")
	if err != nil || strings.HasSuffix(free, ":0") {
		t.Errorf("port 0: %q, %v", free, err)
	}
	if again, err := claim("--listen", free); err != nil || again != free {
		t.Errorf("the same again: %q, %v", again, err)
	}
	if _, err := claim("--listen", "nonsense"); err == nil || !strings.Contains(err.Error(), "--listen nonsense") {
		t.Errorf("no address: %v", err)
	}
}

func TestMissingErrorListsAllAndOffersSimulation(t *testing.T) {
	got := (&missingError{[]string{"not root", "no cgroups"}}).Error()
	for _, want := range []string{"  - not root\n", "  - no cgroups\n", "trireme up --simulate 4"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

func TestNodeName(t *testing.T) {
	for host, want := range map[string]string{"Box_1.lan": "box-1.lan", "gpu-07": "gpu-07", "-": "node", "ÄÖ": "node"} {
		if got := nodeName(host); got != want {
			t.Errorf("nodeName(%q) = %q, want %q", host, got, want)
		}
	}
}
