//go:build linux && realruntime

package containerd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"trireme.dev/services/nodeagent/internal/logs"
	"trireme.dev/services/nodeagent/internal/runtime"
	"trireme.dev/services/nodeagent/internal/runtime/runtimetest"
)

// TestReal tests what only a runtime with real processes has.
func TestReal(t *testing.T) {
	n := newNode(t)
	if err := n.real.SetPodCIDR(runtimetest.Context(t), runtimetest.PodCIDR); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		run  func(t *testing.T, n *testNode)
	}{
		{"namespaces", testNamespaces},
		{"image configuration", testImageConfiguration},
		{"user", testUser},
		{"mounts", testMounts},
		{"confinement", testConfinement},
		{"privileged", testPrivileged},
		{"devices", testDevices},
		{"resources", testResources},
		{"memory limit", testMemoryLimit},
		{"terminal", testTerminal},
		{"exec is cancelled", testExecCancelled},
		{"host port", testHostPort},
		{"writer waits for the agent", testWriterWaits},
		{"agent killed half way", testHalfWay},
		{"containerd dies", testContainerdDies},
		{"shim dies", testShimDies},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, n) })
	}
	if !t.Failed() {
		n.requireNothing()
	}
}

// outputOf runs a container to its end and returns what it wrote.
func outputOf(t *testing.T, p *runtimetest.Pod, spec runtime.ContainerSpec) string {
	t.Helper()
	if c := p.WaitExit(p.Start(spec)); c.ExitCode != 0 {
		text := read(t, spec.LogPath)
		t.Fatalf("container %+v:\n%s", *c, text)
	}
	return read(t, spec.LogPath)
}

func read(t *testing.T, path string) string {
	t.Helper()
	var buf bytes.Buffer
	if err := logs.Read(runtimetest.Context(t), path, logs.Options{}, &buf); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

func shell(p *runtimetest.Pod, script string) runtime.ContainerSpec {
	return p.Spec("main", "sh", "-c", script)
}

const forever = `trap "exit 0" TERM; echo ready; while true; do sleep 0.05; done`

// running starts a container that runs until it is stopped.
func running(t *testing.T, p *runtimetest.Pod, change func(*runtime.ContainerSpec)) string {
	t.Helper()
	spec := p.Spec("forever", "sh", "-c", forever)
	if change != nil {
		change(&spec)
	}
	id := p.Start(spec)
	if err := runtimetest.WaitForLine(runtimetest.Context(t), spec.LogPath, "ready"); err != nil {
		t.Fatal(err)
	}
	return id
}

func execute(t *testing.T, p *runtimetest.Pod, id string, command ...string) string {
	t.Helper()
	var out bytes.Buffer
	code, err := p.Runtime.Exec(runtimetest.Context(t), id, runtime.ExecSpec{Command: command, Stdout: &out, Stderr: &out})
	if err != nil || code != 0 {
		t.Fatalf("exec %q: %d %v\n%s", command, code, err, out.String())
	}
	return out.String()
}

func testNamespaces(t *testing.T, n *testNode) {
	p := n.NewPod(t, nil)
	first := running(t, p, nil)
	spec := p.Spec("second", "sh", "-c", forever)
	second := p.Start(spec)
	links := func(id string) string {
		return execute(t, p, id, "ls", "-l", "/proc/self/ns/net", "/proc/self/ns/ipc", "/proc/self/ns/uts")
	}
	inode := func(list string) (inodes []string) {
		for line := range strings.Lines(list) {
			if _, id, ok := strings.Cut(strings.TrimSpace(line), "-> "); ok {
				inodes = append(inodes, id)
			}
		}
		return inodes
	}
	a, b := inode(links(first)), inode(links(second))
	if len(a) != 3 || fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("namespaces of two containers of one pod: %v and %v", a, b)
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if own == a[0] {
		t.Error("the pod is in the node's network namespace")
	}
	execute(t, p, first, "sh", "-c", "echo shared > /dev/shm/note")
	if got := execute(t, p, second, "cat", "/dev/shm/note"); got != "shared\n" {
		t.Errorf("/dev/shm in the second container has %q", got)
	}
	if got := execute(t, p, first, "cat", "/etc/hosts"); !strings.Contains(got, p.Sandbox.IPs[0]+"\thost-") {
		t.Errorf("/etc/hosts lacks the pod's own address:\n%s", got)
	}
	pids := func(id string) string { return fmt.Sprint(inode(execute(t, p, id, "ls", "-l", "/proc/self/ns/pid"))) }
	if one, two := pids(first), pids(second); one == two {
		t.Errorf("two containers share the PID namespace %s", one)
	}

	host := n.NewPod(t, func(s *runtime.SandboxSpec) { s.HostNetwork, s.HostPID = true, true })
	id := running(t, host, nil)
	if got := inode(execute(t, host, id, "ls", "-l", "/proc/self/ns/net")); len(got) != 1 || got[0] != own {
		t.Errorf("network namespace of a pod in the node's network is %v, want %s", got, own)
	}
	if got := strings.TrimSpace(execute(t, host, id, "sh", "-c", "ls /proc | grep -c '^[0-9]'")); len(got) < 2 {
		t.Errorf("a pod in the node's PID namespace sees %s processes", got)
	}
}

func testImageConfiguration(t *testing.T, n *testNode) {
	p := n.NewPod(t, nil)
	for _, tt := range []struct {
		name          string
		command, args []string
		want          string
	}{
		{"image's own", nil, nil, "entrypoint cmd\n"},
		{"args", nil, []string{"mine"}, "entrypoint mine\n"},
		{"command", []string{"echo", "only"}, nil, "only\n"},
		{"both", []string{"echo", "one"}, []string{"two"}, "one two\n"},
	} {
		spec := p.Spec(strings.ReplaceAll(tt.name, " ", "-"))
		spec.Command, spec.Args = tt.command, tt.args
		if got := outputOf(t, p, spec); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	spec := p.Spec("environment", "env")
	spec.Env = []string{"BOTH=container", "OWN=1", "DEVICE=container"}
	spec.Devices.Env = []string{"DEVICE=plugin"}
	got := "\n" + outputOf(t, p, spec)
	for _, want := range []string{"PATH=/bin", "FROM_IMAGE=yes", "BOTH=container", "OWN=1", "DEVICE=plugin", "HOSTNAME=host-"} {
		if !strings.Contains(got, "\n"+want) {
			t.Errorf("environment lacks %s:%s", want, got)
		}
	}
	spec = p.Spec("directory", "sh", "-c", "pwd")
	spec.WorkingDir = "/srv/here"
	if got := outputOf(t, p, spec); got != "/srv/here\n" {
		t.Errorf("working directory %q", got)
	}
}

func testUser(t *testing.T, n *testNode) {
	p := n.NewPod(t, nil)
	uid, gid := int64(1234), int64(99)
	for i, tt := range []struct {
		image    string
		security runtime.Security
		want     string
	}{
		{testImage, runtime.Security{}, "uid=0(root) gid=0(root)"},
		{otherImage, runtime.Security{}, "uid=1234(worker) gid=2345(workers) groups=77(extra),2345(workers)"},
		{testImage, runtime.Security{RunAsUser: &uid}, "uid=1234(worker) gid=2345(workers) groups=77(extra),2345(workers)"},
		{testImage, runtime.Security{RunAsUser: &uid, RunAsGroup: &gid, Groups: []int64{55}}, "uid=1234(worker) gid=99 groups=55,77(extra),99"},
	} {
		spec := p.Spec(fmt.Sprintf("user-%d", i), "id")
		spec.Image, spec.Security = tt.image, tt.security
		got := strings.TrimSpace(outputOf(t, p, spec))
		head, groups, _ := strings.Cut(got, " groups=")
		wantHead, wantGroups, _ := strings.Cut(tt.want, " groups=")
		if head != wantHead {
			t.Errorf("%+v is %q, want %q", tt.security, got, tt.want)
		}
		for g := range strings.SplitSeq(wantGroups, ",") {
			if !strings.Contains(","+groups+",", g) {
				t.Errorf("%+v is %q, want group %s", tt.security, got, g)
			}
		}
	}
	spec := p.Spec("nobody", "id")
	spec.Image = otherImage
	bad := int64(-5)
	spec.Security.RunAsUser = &bad
	if _, err := p.Runtime.CreateContainer(runtimetest.Context(t), spec); err == nil {
		t.Error("a negative user is accepted")
	}
}

func testMounts(t *testing.T, n *testNode) {
	p := n.NewPod(t, nil)
	outer, inner := t.TempDir(), t.TempDir()
	for dir, text := range map[string]string{outer: "outer", inner: "inner"} {
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	spec := shell(p, "cat /data/file /data/below/file; echo -n new > /data/new; (echo x > /data/below/x) 2>/dev/null || echo refused; cat /etc/hosts")
	if err := os.Mkdir(filepath.Join(outer, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	spec.Mounts = []runtime.Mount{
		{HostPath: inner, ContainerPath: "/data/below", ReadOnly: true},
		{HostPath: outer, ContainerPath: "/data"},
		{HostPath: filepath.Join(outer, "file"), ContainerPath: "/etc/hosts", ReadOnly: true},
	}
	got := outputOf(t, p, spec)
	if !strings.HasPrefix(got, "outerinner") || !strings.Contains(got, "refused") || !strings.HasSuffix(got, "outer\n") {
		t.Errorf("output %q", got)
	}
	if data, err := os.ReadFile(filepath.Join(outer, "new")); string(data) != "new" {
		t.Errorf("file written in the container: %q %v", data, err)
	}
	spec = shell(p, "(echo x > /file) 2>/dev/null || echo refused; echo y > /dev/shm/y && echo kept")
	spec.Name, spec.Security.ReadOnlyRootFS = "read-only", true
	if got := outputOf(t, p, spec); !strings.HasSuffix(got, "refused\nkept\n") {
		t.Errorf("read-only root: %q", got)
	}
}

func testConfinement(t *testing.T, n *testNode) {
	p := n.NewPod(t, nil)
	status := func(security runtime.Security, name string) map[string]string {
		spec := p.Spec(name, "cat", "/proc/self/status")
		spec.Security = security
		fields := map[string]string{}
		for line := range strings.Lines(outputOf(t, p, spec)) {
			key, value, _ := strings.Cut(line, ":")
			fields[key] = strings.TrimSpace(value)
		}
		return fields
	}
	if got := status(runtime.Security{}, "default"); got["CapEff"] != "00000000a80425fb" || got["Seccomp"] != "2" || got["NoNewPrivs"] != "0" {
		t.Errorf("default: capabilities %s, seccomp %s, no new privileges %s", got["CapEff"], got["Seccomp"], got["NoNewPrivs"])
	}
	got := status(runtime.Security{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_ADMIN"}, NoNewPrivileges: true}, "dropped")
	if got["CapEff"] != "0000000000001000" || got["NoNewPrivs"] != "1" {
		t.Errorf("dropped all but NET_ADMIN: capabilities %s, no new privileges %s", got["CapEff"], got["NoNewPrivs"])
	}
	spec := p.Spec("masked", "sh", "-c", "wc -c < /proc/timer_list; (echo 1 > /proc/sys/kernel/panic) 2>/dev/null || echo refused; ls /dev")
	out := outputOf(t, p, spec)
	if !strings.HasPrefix(out, "0\nrefused\n") || strings.Contains(out, "mem\n") {
		t.Errorf("masked paths: %q", out)
	}
}

func testPrivileged(t *testing.T, n *testNode) {
	p := n.NewPod(t, nil)
	spec := p.Spec("privileged", "sh", "-c", "grep -E 'CapEff|Seccomp:' /proc/self/status; ls /dev/kmsg /dev/loop-control 2>&1; echo 1 > /proc/sys/net/ipv4/ip_forward && echo written")
	spec.Security.Privileged = true
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(own), "CapEff:")
	capabilities := strings.Fields(rest)[0]
	out := outputOf(t, p, spec)
	if !strings.Contains(out, capabilities) || !strings.Contains(out, "Seccomp:\t0") || !strings.HasSuffix(out, "written\n") {
		t.Errorf("privileged container: %q, want capabilities %s and no seccomp", out, capabilities)
	}
	if _, err := os.Stat("/dev/kmsg"); err == nil && !strings.Contains(out, "/dev/kmsg\n") {
		t.Errorf("privileged container lacks the node's devices: %q", out)
	}
}

func testDevices(t *testing.T, n *testNode) {
	p := n.NewPod(t, nil)
	dir := t.TempDir()
	node := filepath.Join(dir, "nvidia0")
	if err := unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))); err != nil { // a second /dev/zero
		t.Fatal(err)
	}
	spec := shell(p, "head -c 3 /dev/nvidia0 | wc -c; ls /dev | grep -c nvidia; cat /given")
	spec.Devices = runtime.DeviceOptions{
		Devices: []runtime.Device{{HostPath: node, ContainerPath: "/dev/nvidia0", Permissions: "rw"}},
		Mounts:  []runtime.Mount{{HostPath: "/etc/hostname", ContainerPath: "/given", ReadOnly: true}},
	}
	if got := outputOf(t, p, spec); !strings.HasPrefix(got, "3\n1\n") {
		t.Errorf("device in the container: %q", got)
	}

	cdiDir := t.TempDir()
	cdiSpec := map[string]any{
		"cdiVersion": "0.6.0", "kind": "example.com/gpu",
		"devices": []any{map[string]any{"name": "one", "containerEdits": map[string]any{
			"env":         []string{"FROM_CDI=yes"},
			"deviceNodes": []any{map[string]any{"path": "/dev/gpu-one", "hostPath": node, "type": "c", "major": 1, "minor": 5}},
		}}},
	}
	data, err := json.Marshal(cdiSpec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cdiDir, "example.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	n.real.cfg.CDIDirs = []string{cdiDir}
	spec = p.Spec("cdi", "sh", "-c", "echo $FROM_CDI; head -c 2 /dev/gpu-one | wc -c")
	spec.Devices.CDIDevices = []string{"example.com/gpu=one"}
	if got := outputOf(t, p, spec); got != "yes\n2\n" {
		t.Errorf("CDI device in the container: %q", got)
	}
	spec = p.Spec("cdi-absent", "true")
	spec.Devices.CDIDevices = []string{"example.com/gpu=two"}
	if _, err := p.Runtime.CreateContainer(runtimetest.Context(t), spec); err == nil || !strings.Contains(err.Error(), "example.com/gpu=two") {
		t.Errorf("an unknown CDI device: %v", err)
	}
}

// setting reads a file of a cgroup, by its v1 or v2 name.
func cgroupFile(t *testing.T, c cgroups, path, controller, legacy, unified string) string {
	t.Helper()
	file := filepath.Join(cgroupMount, path, unified)
	if !c.unified {
		file = filepath.Join(c.controllerDir(controller), path, legacy)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func testResources(t *testing.T, n *testNode) {
	limits := runtime.Resources{CPUShares: 512, CPUQuotaMicros: 50_000, MemoryLimitBytes: 64 << 20, PidsLimit: 50, OOMScoreAdj: 900}
	p := n.NewPod(t, func(s *runtime.SandboxSpec) {
		s.Cgroup = runtime.PodCgroup{QOS: runtime.Burstable, Resources: runtime.Resources{MemoryLimitBytes: 128 << 20, CPUShares: 1024}}
	})
	id := running(t, p, func(s *runtime.ContainerSpec) { s.QOS, s.Resources = runtime.Burstable, limits })
	c := n.real.cgroups
	pod := c.root + "/kubepods/burstable/pod" + p.UID
	if got := cgroupFile(t, c, pod, "memory", "memory.limit_in_bytes", "memory.max"); got != strconv.Itoa(128<<20) {
		t.Errorf("pod's memory limit %s", got)
	}
	own := pod + "/" + id
	if got := cgroupFile(t, c, own, "memory", "memory.limit_in_bytes", "memory.max"); got != strconv.Itoa(64<<20) {
		t.Errorf("container's memory limit %s", got)
	}
	if got := cgroupFile(t, c, own, "cpu", "cpu.cfs_quota_us", "cpu.max"); got != "50000" && got != "50000 100000" {
		t.Errorf("container's CPU quota %s", got)
	}
	if got := cgroupFile(t, c, own, "pids", "pids.max", "pids.max"); got != "50" {
		t.Errorf("container's process limit %s", got)
	}
	if got := execute(t, p, id, "cat", "/proc/1/oom_score_adj"); got != "900\n" {
		t.Errorf("oom_score_adj %q", got)
	}
	// Lower than this process' own needs a capability; the container must start with or without it.
	low := p.Spec("low", "cat", "/proc/self/oom_score_adj")
	low.Resources.OOMScoreAdj = -997
	got, err := strconv.Atoi(strings.TrimSpace(outputOf(t, p, low)))
	if err != nil || got > max(-997, n.real.host.oomScoreAdj) {
		t.Errorf("oom_score_adj %d, want -997 or this process' own", got)
	}
}

func testMemoryLimit(t *testing.T, n *testNode) {
	p := n.NewPod(t, nil)
	spec := shell(p, "tail /dev/zero")
	spec.Command = []string{"tail", "/dev/zero"}
	spec.Resources.MemoryLimitBytes = 24 << 20
	if c := p.WaitExit(p.Start(spec)); c.ExitCode != 137 || !c.OOMKilled {
		t.Errorf("container %+v, want killed for memory", *c)
	}
}

// transcript collects a terminal's output and tells who waits for a text.
type transcript struct {
	lines chan string
}

func (r transcript) Write(b []byte) (int, error) {
	r.lines <- string(b)
	return len(b), nil
}

func testTerminal(t *testing.T, n *testNode) {
	p := n.NewPod(t, nil)
	id := running(t, p, nil)
	ctx := runtimetest.Context(t)
	stdin, typed := io.Pipe()
	screen := transcript{lines: make(chan string, 1000)}
	sizes := make(chan runtime.TerminalSize, 1)
	type result struct {
		code int
		err  error
	}
	done := make(chan result, 1)
	go func() {
		code, err := p.Runtime.Exec(ctx, id, runtime.ExecSpec{
			Command: []string{"sh"}, TTY: true, Stdin: stdin, Stdout: screen, Resize: sizes,
		})
		done <- result{code, err}
	}()
	seen := ""
	await := func(text string) {
		t.Helper()
		for !strings.Contains(seen, text) {
			select {
			case s := <-screen.lines:
				seen += s
			case <-ctx.Done():
				t.Fatalf("terminal does not show %q:\n%s", text, seen)
			}
		}
		seen = ""
	}
	await("# ")
	sizes <- runtime.TerminalSize{Width: 101, Height: 37}
	// The shell is asked until the size has come through.
	if _, err := io.WriteString(typed, "until [ \"$(stty size)\" = '37 101' ]; do sleep 0.01; done; test -t 1 && echo \"re\"sized yes\n"); err != nil {
		t.Fatal(err)
	}
	await("resized yes")
	if _, err := io.WriteString(typed, "exit 5\n"); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.code != 5 || r.err != nil {
		t.Errorf("shell ended with %d %v, want 5", r.code, r.err)
	}

	// A container with a terminal has its output in its log, with the terminal's line ends.
	spec := p.Spec("terminal", "sh", "-c", "test -t 1 && echo a terminal; exit 3")
	spec.TTY = true
	if c := p.WaitExit(p.Start(spec)); c.ExitCode != 3 {
		t.Errorf("container %+v", *c)
	}
	if got := read(t, spec.LogPath); !strings.Contains(got, "a terminal") {
		t.Errorf("log of a container with a terminal: %q", got)
	}
	// Standard input that is kept open is silent, not ended.
	spec = p.Spec("stdin", "sh", "-c", "echo ready; cat; echo ended")
	spec.Stdin = true
	id = p.Start(spec)
	if err := runtimetest.WaitForLine(ctx, spec.LogPath, "ready"); err != nil {
		t.Fatal(err)
	}
	p.Stop(id, 200*time.Millisecond)
	if got := read(t, spec.LogPath); strings.Contains(got, "ended") {
		t.Error("standard input ended by itself")
	}
}

func testExecCancelled(t *testing.T, n *testNode) {
	p := n.NewPod(t, nil)
	id := running(t, p, nil)
	ctx, cancel := context.WithCancel(runtimetest.Context(t))
	screen := transcript{lines: make(chan string, 10)}
	done := make(chan error, 1)
	go func() {
		_, err := p.Runtime.Exec(ctx, id, runtime.ExecSpec{Command: []string{"sh", "-c", "echo up; sleep 987"}, Stdout: screen})
		done <- err
	}()
	<-screen.lines
	cancel()
	if err := <-done; err == nil {
		t.Error("a cancelled exec returns no error")
	}
	if got := execute(t, p, id, "ps"); strings.Contains(got, "sh -c echo up") {
		t.Errorf("a cancelled exec goes on:\n%s", got)
	}
}

func testHostPort(t *testing.T, n *testNode) {
	p := n.NewPod(t, func(s *runtime.SandboxSpec) {
		s.HostPorts = []runtime.HostPort{{HostPort: 18080, ContainerPort: 8080, Protocol: "TCP"}}
	})
	running(t, p, nil)
	spec := p.Spec("server", "sh", "-c", "echo ready; while true; do echo served | nc -l -p 8080; done")
	p.Start(spec)
	if err := runtimetest.WaitForLine(runtimetest.Context(t), spec.LogPath, "ready"); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{p.Sandbox.IPs[0] + ":8080", "127.0.0.1:18080", "10.213.7.1:18080"} {
		ctx := runtimetest.Context(t)
		tick := time.NewTicker(20 * time.Millisecond)
		// The little server listens for one client at a time.
		for {
			got, err := ask(address)
			if got == "served\n" {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("%s answers %q, %v", address, got, err)
			}
		}
		tick.Stop()
	}
}

func ask(address string) (string, error) {
	conn, err := net.DialTimeout("tcp4", address, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	data := make([]byte, 7)
	count, err := io.ReadFull(conn, data)
	return string(data[:count]), err
}
