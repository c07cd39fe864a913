package runtimetest

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"trireme.dev/services/nodeagent/internal/runtime"
)

// waits is a script that runs until it is told to stop, and then exits with 7.
const waits = `trap "exit 7" TERM; echo waiting; while true; do sleep 0.05; done`

func testNetworkNotReady(t *testing.T, node *Node) {
	ctx, rt := Context(t), node.Runtime
	info, err := rt.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if info.Name == "" || info.Version == "" || info.NetworkReady {
		t.Errorf("info %+v, want a name, a version and no network", info)
	}
	spec := runtime.SandboxSpec{
		PodUID: "5eed0000-0000-4000-8000-00000000dead", Namespace: "default", Name: "early", Hostname: "early",
		Cgroup: runtime.PodCgroup{QOS: runtime.BestEffort},
	}
	if _, err := rt.CreateSandbox(ctx, spec); !errors.Is(err, runtime.ErrNetworkNotReady) {
		t.Errorf("create sandbox: %v, want %v", err, runtime.ErrNetworkNotReady)
	}
	requireGone(t, rt, spec.PodUID)
	host := node.NewPod(t, func(s *runtime.SandboxSpec) { s.HostNetwork = true })
	if !host.Sandbox.Ready || !host.Sandbox.HostNetwork || len(host.Sandbox.IPs) != 0 {
		t.Errorf("host network sandbox %+v", *host.Sandbox)
	}
	if err := rt.SetPodCIDR(ctx, "no range"); err == nil {
		t.Error("a malformed range is accepted")
	}
	for range 2 {
		if err := rt.SetPodCIDR(ctx, PodCIDR); err != nil {
			t.Fatal(err)
		}
	}
	if info, err = rt.Info(ctx); err != nil || !info.NetworkReady {
		t.Errorf("info %+v %v, want the network ready", info, err)
	}
}

func testLifecycle(t *testing.T, node *Node) {
	p := node.NewPod(t, nil)
	if !p.Sandbox.Ready || p.Sandbox.HostNetwork || p.Sandbox.CreatedAt.IsZero() {
		t.Errorf("sandbox %+v", *p.Sandbox)
	}
	if len(p.Sandbox.IPs) != 1 {
		t.Fatalf("addresses %v, want one", p.Sandbox.IPs)
	}
	if ip, err := netip.ParseAddr(p.Sandbox.IPs[0]); err != nil || !netip.MustParsePrefix(PodCIDR).Contains(ip) {
		t.Errorf("address %s is not in %s", p.Sandbox.IPs[0], PodCIDR)
	}

	spec := p.Spec("main", "sh", "-c", waits)
	id := p.Create(spec)
	c := p.Container(id)
	if c.State != runtime.StateCreated || c.CreatedAt.IsZero() || !c.StartedAt.IsZero() || !c.FinishedAt.IsZero() {
		t.Errorf("created container %+v", *c)
	}
	if c.Name != "main" || c.Attempt != 0 || c.SpecHash != spec.SpecHash || c.LogPath != spec.LogPath ||
		c.Image != spec.Image || c.ImageID == "" {
		t.Errorf("container's identity %+v does not match its spec", *c)
	}

	if err := p.Runtime.StartContainer(Context(t), id); err != nil {
		t.Fatal(err)
	}
	if c = p.Container(id); c.State != runtime.StateRunning || c.StartedAt.Before(c.CreatedAt) || !c.FinishedAt.IsZero() {
		t.Errorf("started container %+v", *c)
	}
	if err := p.Runtime.RemoveContainer(Context(t), id); err == nil {
		t.Error("a running container can be removed")
	}

	p.waitForLog(spec.LogPath, "waiting")
	p.Stop(id, Timeout)
	if c = p.Container(id); c.State != runtime.StateExited || c.ExitCode != 7 || c.FinishedAt.Before(c.StartedAt) {
		t.Errorf("stopped container %+v, want exit code 7", *c)
	}
	if err := p.Runtime.RemoveContainer(Context(t), id); err != nil {
		t.Fatal(err)
	}
	pod, err := p.Runtime.Pod(Context(t), p.UID)
	if err != nil {
		t.Fatal(err)
	}
	if len(pod.Containers) != 0 || pod.Sandbox == nil || pod.Namespace != "default" || !strings.HasPrefix(pod.Name, "pod-") {
		t.Errorf("pod %+v after its container was removed", *pod)
	}
	if err := p.Runtime.RemoveSandbox(Context(t), p.UID); err != nil {
		t.Fatal(err)
	}
	requireGone(t, p.Runtime, p.UID)
}

func testIdempotent(t *testing.T, node *Node) {
	ctx, rt := Context(t), node.Runtime
	var spec runtime.SandboxSpec
	p := node.NewPod(t, func(s *runtime.SandboxSpec) { spec = *s })
	again, err := rt.CreateSandbox(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	if again.IPs[0] != p.Sandbox.IPs[0] || !again.CreatedAt.Equal(p.Sandbox.CreatedAt) {
		t.Errorf("the second sandbox %+v is not the first %+v", *again, *p.Sandbox)
	}

	id := p.Shell("main", "exit 0")
	p.WaitExit(id)
	p.Stop(id, time.Second)
	for range 2 {
		if err := rt.RemoveContainer(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	p.Stop(id, time.Second)
	for range 2 {
		if err := rt.RemoveSandbox(ctx, p.UID); err != nil {
			t.Fatal(err)
		}
	}
	if err := rt.RemoveSandbox(ctx, "5eed0000-0000-4000-8000-0000000000ff"); err != nil {
		t.Errorf("remove an unknown sandbox: %v", err)
	}
	if _, err := rt.CreateContainer(ctx, p.Spec("late", "true")); err == nil {
		t.Error("a container can be created without a sandbox")
	}
	if err := rt.StartContainer(ctx, id); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("start an unknown container: %v, want %v", err, runtime.ErrNotFound)
	}
}

func testExitCodes(t *testing.T, node *Node) {
	p := node.NewPod(t, nil)
	for _, tt := range []struct {
		name    string
		command []string
		code    int
	}{
		{"zero", []string{"true"}, 0},
		{"one", []string{"false"}, 1},
		{"three", []string{"sh", "-c", "exit 3"}, 3},
		{"later", []string{"sh", "-c", "sleep 0.2; exit 4"}, 4},
	} {
		id := p.Start(p.Spec(tt.name, tt.command...))
		c := p.WaitExit(id)
		if c.ExitCode != tt.code || c.OOMKilled || c.StartError != "" || c.FinishedAt.IsZero() {
			t.Errorf("%s: container %+v, want exit code %d", tt.name, *c, tt.code)
		}
	}
}

func testStartError(t *testing.T, node *Node) {
	p := node.NewPod(t, nil)
	id := p.Create(p.Spec("wrong", "/absent/program"))
	err := p.Runtime.StartContainer(Context(t), id)
	if err == nil {
		t.Fatal("a program that does not exist was started")
	}
	c := p.Container(id)
	if c.State != runtime.StateExited || !strings.Contains(c.StartError, "/absent/program") || c.ExitCode != 128 {
		t.Errorf("container %+v, want exited with a start error that names the program and code 128", *c)
	}
	if err := p.Runtime.RemoveContainer(Context(t), id); err != nil {
		t.Errorf("remove it: %v", err)
	}
	if _, err := p.Runtime.CreateContainer(Context(t), func() runtime.ContainerSpec {
		s := p.Spec("absent", "true")
		s.Image = node.Absent
		return s
	}()); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("create with an absent image: %v, want %v", err, runtime.ErrNotFound)
	}
}

func testStop(t *testing.T, node *Node) {
	const ignores = `trap "" TERM; echo waiting; while true; do sleep 0.05; done`
	for _, tt := range []struct {
		name, script string
		grace        time.Duration
		code         int
		atLeast      time.Duration
	}{
		{"obedient", waits, Timeout, 7, 0},
		{"stubborn", ignores, 300 * time.Millisecond, 137, 300 * time.Millisecond},
		{"at once", waits, 0, 137, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := node.NewPod(t, nil)
			spec := p.Spec("main", "sh", "-c", tt.script)
			id := p.Start(spec)
			p.waitForLog(spec.LogPath, "waiting")
			begin := time.Now()
			p.Stop(id, tt.grace)
			took := time.Since(begin)
			if c := p.Container(id); c.State != runtime.StateExited || c.ExitCode != tt.code {
				t.Errorf("container %+v, want exit code %d", *c, tt.code)
			}
			if took < tt.atLeast || took > tt.atLeast+Timeout/2 {
				t.Errorf("stopping took %s, want a little more than %s", took, tt.atLeast)
			}
		})
	}
}

func testAttempts(t *testing.T, node *Node) {
	p := node.NewPod(t, nil)
	setup := p.Spec("setup", "true")
	setup.Init = true
	p.WaitExit(p.Start(setup))
	for range 3 {
		p.WaitExit(p.Shell("main", "exit 1"))
	}
	pod, err := p.Runtime.Pod(Context(t), p.UID)
	if err != nil {
		t.Fatal(err)
	}
	if len(pod.Containers) != 4 {
		t.Fatalf("%d containers, want 4", len(pod.Containers))
	}
	if c := pod.Containers[0]; c.Name != "setup" || !c.Init || c.ExitCode != 0 {
		t.Errorf("first container %+v, want setup", *c)
	}
	for i, c := range pod.Containers[1:] {
		if c.Name != "main" || c.Init || c.Attempt != i || c.ExitCode != 1 || c.SpecHash != "hash-main" {
			t.Errorf("container %d is %+v, want attempt %d of main", i+1, *c, i)
		}
	}
}

func testSiblings(t *testing.T, node *Node) {
	p := node.NewPod(t, nil)
	first := p.Spec("first", "sh", "-c", waits)
	a := p.Start(first)
	p.waitForLog(first.LogPath, "waiting")
	b := p.Shell("second", waits)

	p.Stop(a, Timeout)
	if c := p.Container(b); c.State != runtime.StateRunning {
		t.Fatalf("the second container %+v, want running after the first exited", *c)
	}
	if code, err := p.Runtime.Exec(Context(t), b, runtime.ExecSpec{Command: []string{"true"}}); code != 0 || err != nil {
		t.Fatalf("exec in the second: %d %v", code, err)
	}
	if err := p.Runtime.RemoveContainer(Context(t), a); err != nil {
		t.Fatal(err)
	}
	a = p.Shell("first", waits)
	p.Stop(b, 0)
	if c := p.Container(a); c.State != runtime.StateRunning || c.Attempt != 1 {
		t.Fatalf("the first container's second life %+v, want running", *c)
	}
	p.Stop(a, 0)
	// All have exited: the next start finds nothing of the pod running.
	for range 3 {
		c := p.WaitExit(p.Shell("third", "exit 5"))
		if c.ExitCode != 5 {
			t.Fatalf("a container after all others exited %+v, want exit code 5", *c)
		}
	}
}

func testRemoveRunning(t *testing.T, node *Node) {
	p := node.NewPod(t, nil)
	p.Shell("one", `trap "" TERM; while true; do sleep 0.05; done`)
	p.Shell("two", waits)
	p.Create(p.Spec("three", "true"))
	p.WaitExit(p.Shell("four", "exit 0"))
	if err := p.Runtime.RemoveSandbox(Context(t), p.UID); err != nil {
		t.Fatal(err)
	}
	requireGone(t, p.Runtime, p.UID)
}

func testRestart(t *testing.T, node *Node) {
	p := node.NewPod(t, nil)
	spec := p.Spec("main", "sh", "-c", waits)
	running := p.Start(spec)
	p.waitForLog(spec.LogPath, "waiting")
	exited := p.Shell("done", `echo -n bye > /dev/termination-log; exit 9`)
	p.WaitExit(exited)
	created := p.Create(p.Spec("created", "sh", "-c", "exit 2"))
	ends := p.Shell("ends", "sleep 0.5; exit 6")
	before, err := p.Runtime.Pod(Context(t), p.UID)
	if err != nil {
		t.Fatal(err)
	}

	node.Runtime = node.Restart(t)
	p.Runtime = node.Runtime
	// The new one has not been told of the range again; what exists must not need it.
	pods, err := p.Runtime.Pods(Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) != 1 || pods[0].UID != p.UID || pods[0].Name != before.Name || pods[0].Namespace != before.Namespace {
		t.Fatalf("pods after the restart %+v, want the one before", pods)
	}
	after := pods[0]
	if after.Sandbox == nil || !after.Sandbox.Ready || after.Sandbox.IPs[0] != before.Sandbox.IPs[0] ||
		!after.Sandbox.CreatedAt.Equal(before.Sandbox.CreatedAt) {
		t.Errorf("sandbox after the restart %+v, want %+v", after.Sandbox, before.Sandbox)
	}
	if len(after.Containers) != 4 {
		t.Fatalf("%d containers after the restart, want 4", len(after.Containers))
	}
	for i, c := range after.Containers {
		if b := before.Containers[i]; c.ID != b.ID || c.Name != b.Name || c.SpecHash != b.SpecHash || c.LogPath != b.LogPath ||
			c.ImageID != b.ImageID || !c.CreatedAt.Equal(b.CreatedAt) || (c.ID != ends && c.State != b.State) {
			t.Errorf("container after the restart %+v, want %+v", *c, *b)
		}
	}
	if c := find(after, running); c.StartedAt.IsZero() {
		t.Errorf("running container after the restart %+v, want its start", *c)
	}
	if c := find(after, exited); c.ExitCode != 9 || c.TerminationMessage != "bye" || c.FinishedAt.IsZero() {
		t.Errorf("exited container after the restart %+v, want code 9 and its message", *c)
	}

	if err := p.Runtime.SetPodCIDR(Context(t), PodCIDR); err != nil {
		t.Fatal(err)
	}
	if c := p.WaitExit(ends); c.ExitCode != 6 {
		t.Errorf("container that ended after the restart %+v, want code 6", *c)
	}
	if err := p.Runtime.StartContainer(Context(t), created); err != nil {
		t.Fatal(err)
	}
	if c := p.WaitExit(created); c.ExitCode != 2 {
		t.Errorf("container started after the restart %+v, want code 2", *c)
	}
	other := node.NewPod(t, nil)
	if other.Sandbox.IPs[0] == p.Sandbox.IPs[0] {
		t.Errorf("address %s was given twice", p.Sandbox.IPs[0])
	}
	p.Stop(running, Timeout)
	if c := p.Container(running); c.ExitCode != 7 {
		t.Errorf("container stopped after the restart %+v, want code 7", *c)
	}
}
