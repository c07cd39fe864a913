//go:build linux && realruntime

package containerd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trireme.dev/services/nodeagent/internal/runtime"
	"trireme.dev/services/nodeagent/internal/runtime/runtimetest"
)

// While no agent reads, a container that writes more than the pipes hold waits, and loses nothing.
func testWriterWaits(t *testing.T, n *testNode) {
	p := n.NewPod(t, nil)
	const lines = 60_000 // of 20 bytes: far more than two pipes hold
	spec := p.Spec("writer", "sh", "-c",
		`trap "exit 7" TERM; echo ready; cat /go; i=0; while [ $i -lt 60000 ]; do echo "line number $((1000000+i))"; i=$((i+1)); done; echo finished; while true; do sleep 0.05; done`)
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	spec.Mounts = []runtime.Mount{{HostPath: gate, ContainerPath: "/go"}}
	id := p.Start(spec)
	if err := runtimetest.WaitForLine(runtimetest.Context(t), spec.LogPath, "ready"); err != nil {
		t.Fatal(err)
	}
	n.stop()
	open(t, gate)
	pid := waitBlocked(t, n.cfg, id)
	before, err := os.Stat(spec.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	n.Runtime = n.Restart(t)
	p.Runtime = n.Runtime
	if err := n.Runtime.SetPodCIDR(runtimetest.Context(t), runtimetest.PodCIDR); err != nil {
		t.Fatal(err)
	}
	if err := runtimetest.WaitForLine(runtimetest.Context(t), spec.LogPath, "finished"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the writer's process is gone: %v", err)
	}
	if before.Size() > 4096 {
		t.Errorf("the log grew to %d bytes while nobody copied", before.Size())
	}
	next := 0
	for line := range strings.Lines(read(t, spec.LogPath)) {
		if strings.HasPrefix(line, "line") {
			if want := fmt.Sprintf("line number %d\n", 1000000+next); line != want {
				t.Fatalf("log has %q, want %q", line, want)
			}
			next++
		}
	}
	if next != lines {
		t.Errorf("log has %d lines, want %d", next, lines)
	}
	p.Stop(id, runtimetest.Timeout)
	if c := p.Container(id); c.ExitCode != 7 {
		t.Errorf("writer %+v, want exit code 7", *c)
	}
}

// waitBlocked waits until a container's first process waits in a write to a pipe, and returns it.
func waitBlocked(t *testing.T, cfg Config, id string) int {
	t.Helper()
	pid := initPID(t, cfg, id)
	ctx := runtimetest.Context(t)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		// The kernel names the system call: write is 1 on amd64, 64 on arm64.
		call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		if err != nil {
			t.Fatal(err)
		}
		if number, _, _ := strings.Cut(string(call), " "); number == strconv.Itoa(unix.SYS_WRITE) {
			return pid
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the writer does not wait: %s", call)
		}
	}
}

// initPID is a container's first process, as the node sees it.
func initPID(t *testing.T, cfg Config, id string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(filepath.Dir(cfg.RunDir), "c/io.containerd.runtime.v2.task/trireme", id, "init.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(data))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// An agent that was killed in the middle leaves states that the next one must take up.
func testHalfWay(t *testing.T, n *testNode) {
	p := n.NewPod(t, nil)
	ctx := runtimetest.Context(t)
	started := running(t, p, nil)
	created := p.Create(p.Spec("created", "sh", "-c", "exit 4"))
	c, err := n.real.find(created)
	if err != nil {
		t.Fatal(err)
	}
	// The task exists and was not started; and a start that was not written down.
	out, err := n.real.openOutput(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.real.createTask(ctx, c, createRequest(c, out)); err != nil {
		t.Fatal(err)
	}
	out.letGo()
	out.close()
	s, err := n.real.find(started)
	if err != nil {
		t.Fatal(err)
	}
	n.stop()
	if err := os.Remove(s.stateFile()); err != nil {
		t.Fatal(err)
	}
	// And half a sandbox of a pod that was never finished.
	half := filepath.Join(n.cfg.StateDir, "pods", "5eed0000-half")
	if err := os.MkdirAll(half, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(n.real.runDir("5eed0000-half"), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := makeNamespaces(n.real.runDir("5eed0000-half"), []string{"net", "uts", "ipc"}, "half"); err != nil {
		t.Fatal(err)
	}
	n.Runtime = n.Restart(t)
	p.Runtime = n.Runtime
	if err := n.Runtime.SetPodCIDR(ctx, runtimetest.PodCIDR); err != nil {
		t.Fatal(err)
	}
	if got := p.Container(started); got.State != runtime.StateRunning || got.StartedAt.IsZero() {
		t.Errorf("container whose start was not written down %+v, want running", *got)
	}
	if got := p.Container(created); got.State != runtime.StateCreated {
		t.Errorf("container that was not started %+v, want created", *got)
	}
	if err := p.Runtime.StartContainer(ctx, created); err != nil {
		t.Fatal(err)
	}
	if got := p.WaitExit(created); got.ExitCode != 4 {
		t.Errorf("container %+v, want code 4", *got)
	}
	if _, err := os.Stat(half); !os.IsNotExist(err) {
		t.Errorf("half a sandbox stays: %v", err)
	}
}

// What containers do while containerd is away is seen when it is back.
func testContainerdDies(t *testing.T, n *testNode) {
	ctx, cancel := context.WithCancel(runtimetest.Context(t))
	p := n.NewPod(t, nil)
	id := running(t, p, nil)
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	spec := p.Spec("ends", "sh", "-c", "echo ready; cat /go; exit 8")
	spec.Mounts = []runtime.Mount{{HostPath: gate, ContainerPath: "/go"}}
	ends := p.Start(spec)
	if err := runtimetest.WaitForLine(ctx, spec.LogPath, "ready"); err != nil {
		t.Fatal(err)
	}
	process, err := openProcess(initPID(t, n.cfg, ends))
	if err != nil {
		t.Fatal(err)
	}
	defer process.close()
	events, err := p.Runtime.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first, err := n.supervisor.pid()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	open(t, gate)
	if err := process.wait(ctx); err != nil {
		t.Fatal(err)
	}

	done := make(chan error, 1)
	go func() { done <- n.supervisor.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for exited := false; !exited; {
		if pod, err := p.Runtime.Pod(ctx, p.UID); err == nil {
			for _, c := range pod.Containers {
				if c.ID == ends && c.State == runtime.StateExited {
					if exited = true; c.ExitCode != 8 {
						t.Errorf("container that ended while containerd was away %+v, want code 8", *c)
					}
				}
			}
		}
		if exited {
			break
		}
		if _, ok := <-events; !ok {
			t.Fatal("no event after containerd came back")
		}
	}
	second, err := n.supervisor.pid()
	if err != nil || second == first {
		t.Errorf("containerd is %d, was %d: %v", second, first, err)
	}
	if got := execute(t, p, id, "echo", "alive"); got != "alive\n" {
		t.Errorf("container after containerd died: %q", got)
	}
	p.Stop(id, runtimetest.Timeout)
	// Another supervisor adopts the one that runs.
	again, err := NewSupervisor(n.supervisor.cfg, n.real.logger)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if pid, err := again.pid(); err != nil || pid != second {
		t.Errorf("the adopted containerd is %d (%v), want %d", pid, err, second)
	}
	// One that dies under a supervisor comes back by itself.
	if err := syscall.Kill(second, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if pid, err := n.supervisor.pid(); err == nil && pid != second && n.supervisor.answers(ctx) == nil {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("containerd does not come back")
		}
	}
}

// open opens a FIFO that a container reads, and closes it.
func open(t *testing.T, gate string) {
	t.Helper()
	file, err := os.OpenFile(gate, os.O_WRONLY, 0)
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func testShimDies(t *testing.T, n *testNode) {
	p := n.NewPod(t, nil)
	id := running(t, p, nil)
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	killed := false
	for _, file := range commands {
		data, _ := os.ReadFile(file)
		if bytes.Contains(data, []byte("containerd-shim")) && bytes.Contains(data, []byte(id)) {
			pid, err := strconv.Atoi(strings.Split(file, "/")[2])
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			killed = true
		}
	}
	if !killed {
		t.Fatal("the container's shim was not found")
	}
	if c := p.WaitExit(id); c.ExitCode != 137 && c.ExitCode != exitUnknown {
		t.Errorf("container whose shim died %+v", *c)
	}
	// The pod goes on with a new shim.
	if c := p.WaitExit(p.Shell("next", "exit 3")); c.ExitCode != 3 {
		t.Errorf("container after the shim died %+v, want code 3", *c)
	}
}
