// Package runtimetest is the suite that every runtime passes: what the node agent relies on, said as tests.
//
// It speaks to a runtime through its interface only, so what one runtime does beyond it (cgroups, reachability,
// terminals) is tested beside that runtime.
package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"trireme.dev/services/nodeagent/internal/runtime"
)

// Node is a node whose runtime is tested.
type Node struct {
	// Runtime that has been opened on a node without pods and without a pod CIDR.
	Runtime runtime.Runtime
	// Restart ends the runtime as the agent's death does and opens another one on the same node.
	Restart func(t *testing.T) runtime.Runtime
	// Image is present and has sh, echo, sleep, cat, env and hostname.
	Image string
	// Absent is the reference of an image that is not present.
	Absent string
}

// Timeout bounds everything that a test waits for.
const Timeout = 30 * time.Second

// PodCIDR is the range that the suite gives to the runtime.
const PodCIDR = "10.213.7.0/24"

// Run runs the suite on a node that open makes.
func Run(t *testing.T, open func(t *testing.T) *Node) {
	node := open(t)
	tests := []struct {
		name string
		run  func(t *testing.T, node *Node)
	}{
		{"no network before the CIDR", testNetworkNotReady},
		{"lifecycle", testLifecycle},
		{"what is repeated succeeds", testIdempotent},
		{"exit codes", testExitCodes},
		{"start error", testStartError},
		{"stop", testStop},
		{"attempts keep their order and identity", testAttempts},
		{"one container exits and others stay", testSiblings},
		{"events", testEvents},
		{"logs", testLogs},
		{"exec", testExec},
		{"termination message", testTerminationMessage},
		{"remove a sandbox whose containers run", testRemoveRunning},
		{"images", testImages},
		{"restart", testRestart},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, node) })
	}
	pods, err := node.Runtime.Pods(Context(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		t.Errorf("pod %s is left after the suite", p.UID)
	}
}

// Context ends with the test, or when it takes too long.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	t.Cleanup(cancel)
	return ctx
}

var podNumber atomic.Int64

// Pod is a pod that a test made.
type Pod struct {
	t       testing.TB
	Runtime runtime.Runtime
	Image   string
	UID     string
	LogDir  string
	Sandbox *runtime.Sandbox
	attempt map[string]int
}

// NewPod makes the sandbox of a pod that is removed when the test ends. Change edits its spec; it may be nil.
func (n *Node) NewPod(t testing.TB, change func(*runtime.SandboxSpec)) *Pod {
	t.Helper()
	number := podNumber.Add(1)
	spec := runtime.SandboxSpec{
		PodUID:    fmt.Sprintf("5eed0000-0000-4000-8000-%012x", number),
		Namespace: "default",
		Name:      fmt.Sprintf("pod-%d", number),
		Hostname:  fmt.Sprintf("host-%d", number),
		Cgroup:    runtime.PodCgroup{QOS: runtime.BestEffort},
	}
	if change != nil {
		change(&spec)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Timeout)
		defer cancel()
		if err := n.Runtime.RemoveSandbox(ctx, spec.PodUID); err != nil {
			t.Errorf("remove sandbox: %v", err)
		}
	})
	sandbox, err := n.Runtime.CreateSandbox(Context(t), spec)
	if err != nil {
		t.Fatalf("create sandbox: %v", err)
	}
	return &Pod{
		t: t, Runtime: n.Runtime, Image: n.Image, UID: spec.PodUID, LogDir: t.TempDir(), Sandbox: sandbox,
		attempt: map[string]int{},
	}
}

// Spec is a container's spec that runs a command in the node's image.
func (p *Pod) Spec(name string, command ...string) runtime.ContainerSpec {
	attempt := p.attempt[name]
	p.attempt[name]++
	return runtime.ContainerSpec{
		PodUID: p.UID, Name: name, Attempt: attempt, SpecHash: "hash-" + name, Image: p.Image, Command: command,
		QOS: runtime.BestEffort, LogPath: filepath.Join(p.LogDir, fmt.Sprintf("%s-%d.log", name, attempt)),
		TerminationMessagePath: "/dev/termination-log",
	}
}

// Create creates a container.
func (p *Pod) Create(spec runtime.ContainerSpec) string {
	p.t.Helper()
	id, err := p.Runtime.CreateContainer(Context(p.t), spec)
	if err != nil {
		p.t.Fatalf("create container %s: %v", spec.Name, err)
	}
	return id
}

// Start creates and starts a container.
func (p *Pod) Start(spec runtime.ContainerSpec) string {
	p.t.Helper()
	id := p.Create(spec)
	if err := p.Runtime.StartContainer(Context(p.t), id); err != nil {
		p.t.Fatalf("start container %s: %v", spec.Name, err)
	}
	return id
}

// Shell creates and starts a container that runs a shell script.
func (p *Pod) Shell(name, script string) string {
	p.t.Helper()
	return p.Start(p.Spec(name, "sh", "-c", script))
}

// Container reads one container; it must be there.
func (p *Pod) Container(id string) *runtime.Container {
	p.t.Helper()
	pod, err := p.Runtime.Pod(Context(p.t), p.UID)
	if err != nil {
		p.t.Fatal(err)
	}
	c := find(pod, id)
	if c == nil {
		p.t.Fatalf("container %s is not there", id)
	}
	return c
}

func find(pod *runtime.Pod, id string) *runtime.Container {
	for _, c := range pod.Containers {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// WaitFor reads the pod on every event until a container is as wanted. It reads on nothing else: a runtime whose
// events are missing fails here.
func (p *Pod) WaitFor(id, what string, is func(*runtime.Container) bool) *runtime.Container {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), Timeout)
	defer cancel()
	events, err := p.Runtime.Events(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	for {
		c := p.Container(id)
		if is(c) {
			return c
		}
		for {
			event, ok := <-events
			if !ok {
				p.t.Fatalf("container %s is not %s: %+v", id, what, *p.Container(id))
			}
			if event.PodUID == p.UID {
				break
			}
		}
	}
}

// WaitExit waits until a container has exited.
func (p *Pod) WaitExit(id string) *runtime.Container {
	p.t.Helper()
	return p.WaitFor(id, "exited", func(c *runtime.Container) bool { return c.State == runtime.StateExited })
}

// Stop stops a container.
func (p *Pod) Stop(id string, grace time.Duration) {
	p.t.Helper()
	if err := p.Runtime.StopContainer(Context(p.t), id, grace); err != nil {
		p.t.Fatalf("stop container %s: %v", id, err)
	}
}

func requireGone(t testing.TB, rt runtime.Runtime, uid string) {
	t.Helper()
	if _, err := rt.Pod(Context(t), uid); !errors.Is(err, runtime.ErrNotFound) {
		t.Fatalf("pod %s is still there (error %v)", uid, err)
	}
	pods, err := rt.Pods(Context(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if p.UID == uid {
			t.Fatalf("pod %s is still listed", uid)
		}
	}
}
