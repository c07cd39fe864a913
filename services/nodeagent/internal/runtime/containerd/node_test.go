//go:build linux && realruntime

package containerd

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"trireme.dev/kit/mounts"
	"trireme.dev/kit/ociarchive"
	"trireme.dev/services/nodeagent/internal/logs"
	"trireme.dev/services/nodeagent/internal/runtime"
	"trireme.dev/services/nodeagent/internal/runtime/runtimetest"
)

const (
	testImage  = "trireme.dev/busybox:latest"
	otherImage = "trireme.dev/user:latest"
)

// TestMain runs the tests with a network and mounts of their own, so that the machine's stay as they are.
func TestMain(m *testing.M) {
	const inside = "TRIREME_TEST_INSIDE"
	if os.Getenv(inside) == "" {
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "tests of the containerd runtime need root:", err)
			os.Exit(1)
		}
		return
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		var lo netlink.Link
		if lo, err = netlink.LinkByName("lo"); err == nil {
			err = netlink.LinkSetUp(lo)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// binaries finds the folder of containerd, its shim and runc.
func binaries(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("TRIREME_RUNTIME_DIR")
	if dir == "" {
		root, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for root != "/" {
			if _, err := os.Stat(filepath.Join(root, "go.work")); err == nil {
				break
			}
			root = filepath.Dir(root)
		}
		dir = filepath.Join(root, "build/runtime/bin")
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Fatalf("%s is missing: run \"make runtimes\", or set TRIREME_RUNTIME_DIR to the folder that has it: %v", name, err)
		}
	}
	return dir
}

// testNode is a node of its own, with a containerd of its own.
type testNode struct {
	runtimetest.Node
	t          testing.TB
	cfg        Config
	supervisor *Supervisor
	real       *Runtime
	stop       func()
	log        *syncBuffer
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newNode(t testing.TB) *testNode {
	t.Helper()
	bin := binaries(t)
	// A short path: sockets lie in it.
	run, err := os.MkdirTemp("/run", "tr-")
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	n := &testNode{t: t, log: &syncBuffer{}}
	logger := slog.New(slog.NewTextHandler(n.log, nil))
	if n.supervisor, err = NewSupervisor(SupervisorConfig{
		Binary: filepath.Join(bin, "containerd"), RootDir: filepath.Join(state, "containerd"), StateDir: filepath.Join(run, "c"),
	}, logger); err != nil {
		t.Fatal(err)
	}
	n.cfg = Config{
		Address: n.supervisor.Socket(), ShimSocketDir: n.supervisor.ShimSocketDir(), StateDir: filepath.Join(state, "runtime"), RunDir: filepath.Join(run, "r"),
		CgroupRoot: "trireme-test" + strings.ReplaceAll(run, "/", "-"), RuncBinary: filepath.Join(bin, "runc"),
		LogRotation: logs.Rotation{},
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the runtime's log:\n%s", n.log)
			if data, err := os.ReadFile(filepath.Join(state, "containerd/containerd.log")); err == nil {
				t.Logf("containerd's log:\n%s", data)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), runtimetest.Timeout)
		defer cancel()
		if n.stop != nil {
			n.stop()
		}
		if err := n.supervisor.Stop(ctx); err != nil {
			t.Error(err)
		}
		n.cleanCgroups()
		// What is left below is reported by the test that looks for it; here it only must not stay for the next.
		_ = mounts.Unmount(run)
		_ = os.RemoveAll(run)
	})
	if err := n.supervisor.Start(runtimetest.Context(t)); err != nil {
		t.Fatal(err)
	}
	n.open(logger)
	n.Node = runtimetest.Node{
		Runtime: n.real, Image: testImage, Absent: "trireme.dev/absent:1",
		Restart: func(*testing.T) runtime.Runtime {
			n.stop()
			n.open(logger)
			return n.real
		},
	}
	n.load(testImage, "")
	n.load(otherImage, "worker")
	return n
}

func (n *testNode) open(logger *slog.Logger) {
	n.t.Helper()
	rt, err := New(n.cfg, logger)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- rt.Run(ctx) }()
	n.real = rt
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
	})
}

// load imports an image of busybox.
func (n *testNode) load(name, user string) {
	n.t.Helper()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		n.t.Fatalf("a static busybox is needed (Debian: busybox-static): %v", err)
	}
	files := map[string]ociarchive.File{
		"/bin/busybox": {Data: busybox, Mode: 0o755},
		"/tmp":         {Dir: true, Mode: 0o1777},
		"/etc/passwd":  {Data: []byte("root:x:0:0:root:/root:/bin/sh\nworker:x:1234:2345:worker:/home/worker:/bin/sh\n")},
		"/etc/group":   {Data: []byte("root:x:0:\nworkers:x:2345:\nextra:x:77:worker\n")},
	}
	for _, applet := range []string{
		"sh", "echo", "sleep", "cat", "env", "hostname", "true", "false", "id", "ls", "test", "stty", "head", "nc", "dd",
		"wc", "grep", "mount", "touch", "ps", "kill", "ip", "yes", "tail", "tr",
	} {
		files["/bin/"+applet] = ociarchive.File{Link: "busybox"}
	}
	var archive bytes.Buffer
	if err := ociarchive.Write(&archive, ociarchive.Spec{
		Name: name, Files: files, User: user, Entrypoint: []string{"/bin/echo", "entrypoint"}, Cmd: []string{"cmd"},
		Env: []string{"PATH=/bin", "FROM_IMAGE=yes", "BOTH=image"},
	}); err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.real.Images().Import(runtimetest.Context(n.t), &archive); err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) cleanCgroups() {
	root := n.real.cgroups
	if root.unified {
		_ = removeTree(filepath.Join(cgroupMount, root.root))
	}
	for _, controller := range root.controllers {
		_ = removeTree(filepath.Join(cgroupMount, controller, root.root))
	}
}

// requireNothing looks at the machine itself: with no pod left there is nothing of pods left either.
func (n *testNode) requireNothing() {
	n.t.Helper()
	run := filepath.Dir(n.cfg.RunDir)
	left := func() []string {
		var found []string
		add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
		mounted, err := mounts.Below(run)
		if err != nil {
			n.t.Fatal(err)
		}
		for _, m := range mounted {
			add("mount %s", m)
		}
		_ = filepath.WalkDir(cgroupMount, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.Contains(path, n.real.cgroups.root) && strings.HasPrefix(d.Name(), "pod") {
				add("cgroup %s", path)
			}
			return nil
		})
		links, err := netlink.LinkList()
		if err != nil {
			n.t.Fatal(err)
		}
		for _, link := range links {
			if strings.HasPrefix(link.Attrs().Name, "tr-") {
				add("interface %s", link.Attrs().Name)
			}
		}
		objects, err := n.real.client.ContainerService().List(runtimetest.Context(n.t))
		if err != nil {
			n.t.Fatal(err)
		}
		for _, o := range objects {
			add("container %s", o.ID)
			if err := n.walkSnapshots(func(name string) {
				if name == o.ID {
					add("snapshot %s", name)
				}
			}); err != nil {
				n.t.Fatal(err)
			}
		}
		for _, dir := range []string{
			filepath.Join(n.cfg.RunDir, "pods"), filepath.Join(n.cfg.RunDir, "runc/trireme"), filepath.Join(n.cfg.StateDir, "pods"),
			filepath.Join(n.cfg.StateDir, "network"), filepath.Join(run, "c/io.containerd.runtime.v2.task/trireme"),
			filepath.Join(run, "c/s"),
		} {
			entries, err := os.ReadDir(dir)
			if err != nil && !os.IsNotExist(err) {
				n.t.Fatal(err)
			}
			for _, e := range entries {
				add("file %s/%s", dir, e.Name())
			}
		}
		commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			n.t.Fatal(err)
		}
		for _, file := range commands {
			data, err := os.ReadFile(file)
			if err == nil && bytes.Contains(data, []byte("containerd-shim")) && bytes.Contains(data, []byte(n.cfg.Address)) {
				add("process %s %q", file, data)
			}
		}
		return found
	}
	// A shim leaves a moment after its last task.
	deadline := time.Now().Add(runtimetest.Timeout)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		found := left()
		if len(found) == 0 {
			break
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("left behind:\n%s", strings.Join(found, "\n"))
		}
		<-tick.C
	}
	if err := n.real.network.Teardown(runtimetest.Context(n.t)); err != nil {
		n.t.Fatal(err)
	}
	tables, err := (&nftables.Conn{}).ListTables()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, table := range tables {
		n.t.Errorf("nftables table %s is left", table.Name)
	}
	if _, err := netlink.LinkByName("trireme0"); err == nil {
		n.t.Error("the bridge is left")
	}
}
