// Package simulated is a runtime that runs nothing: no root, any operating system, thousands of containers in little
// memory. It stands behind the same interface as containerd and passes the same suite.
//
// It owns the pretence only: addresses from the pod CIDR, lives of containers, plausible log lines. It never touches
// the machine beyond its state folder and the log files it is told to write.
//
// What a container does is decided by its command (command and args together):
//
//	true, false, exit N, sleep SECONDS, echo [-n] WORDS   as in a shell
//	sh -c SCRIPT    those, separated by semicolons; echo may end in > FILE, where only the termination message path
//	                is kept; trap "" TERM, trap "exit N" TERM; while true; do sleep S; done
//	/absent/...     there is no such executable: the start fails
//	anything else   runs until it is stopped; the stop signal ends it at once (exit code 143)
//
// Any image is present, but for references that begin with "absent/" or end in ":missing", which can't be had. A
// container's log begins with one line that says what was started, with the environment that device plugins gave.
package simulated

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"trireme.dev/client/tracing"
	"trireme.dev/services/nodeagent/internal/runtime"
)

// Config of a simulated runtime.
type Config struct {
	// StateDir keeps what runs, so that an agent that was killed finds its containers still running. Empty keeps
	// nothing.
	StateDir string
	// StartLatency is how long the start of a container takes: 5ms. Negative means none.
	StartLatency time.Duration
	// Host is shared by runtimes that are one node's, one after another in one process; nil makes a new one from
	// StateDir.
	Host *Host
	// Logger may be nil.
	Logger *slog.Logger
}

// Runtime implements runtime.Runtime.
type Runtime struct {
	host    *Host
	latency time.Duration
	own     bool
}

var _ runtime.Runtime = (*Runtime)(nil)

// New makes a runtime, with what its state folder knows already running.
func New(cfg Config) (*Runtime, error) {
	host := cfg.Host
	if host == nil {
		var err error
		if host, err = NewHost(cfg.StateDir, cfg.Logger); err != nil {
			return nil, err
		}
	}
	latency := cfg.StartLatency
	if latency == 0 {
		latency = 5 * time.Millisecond
	}
	return &Runtime{host: host, latency: latency, own: cfg.Host == nil}, nil
}

// Close stops the clock of a host that is this runtime's own. Its containers go on from the state folder with the next
// runtime. A shared host lives on.
func (r *Runtime) Close() {
	if r.own {
		r.host.Close()
	}
}

// Info says that the network is ready once the range of addresses is known.
func (r *Runtime) Info(context.Context) (runtime.Info, error) {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	return runtime.Info{Name: "simulated", Version: "1", NetworkReady: r.host.cidr.IsValid()}, nil
}

// SetPodCIDR decides where later pods' addresses come from.
func (r *Runtime) SetPodCIDR(_ context.Context, cidr string) error {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return fmt.Errorf("pod CIDR: %w", err)
	}
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	r.host.cidr = prefix.Masked()
	return nil
}

// Pods reports all pods.
func (r *Runtime) Pods(context.Context) ([]*runtime.Pod, error) { return r.host.snapshot(), nil }

// Pod reports one pod.
func (r *Runtime) Pod(_ context.Context, uid string) (*runtime.Pod, error) {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	p, ok := r.host.pods[uid]
	if !ok {
		return nil, fmt.Errorf("pod %s: %w", uid, runtime.ErrNotFound)
	}
	return p.view(), nil
}

// Events delivers hints.
func (r *Runtime) Events(ctx context.Context) (<-chan runtime.Event, error) {
	return r.host.hints.Listen(ctx), nil
}

// CreateSandbox gives the pod an address.
func (r *Runtime) CreateSandbox(ctx context.Context, spec runtime.SandboxSpec) (*runtime.Sandbox, error) {
	h := r.host
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.pods[spec.PodUID]
	if ok {
		return p.view().Sandbox, nil
	}
	p = &pod{
		UID: spec.PodUID, Namespace: spec.Namespace, Name: spec.Name, Hostname: spec.Hostname,
		HostNetwork: spec.HostNetwork, CreatedAt: time.Now(),
	}
	if !spec.HostNetwork {
		_, span := tracing.Start(ctx, runtime.NetworkSpan)
		ip, err := h.address()
		tracing.Fail(span, err)
		span.End()
		if err != nil {
			return nil, fmt.Errorf("sandbox of pod %s: %w", spec.PodUID, err)
		}
		p.IPs = []string{ip}
	}
	h.pods[p.UID] = p
	if err := h.save(p); err != nil {
		delete(h.pods, p.UID)
		return nil, err
	}
	h.hints.Notify(p.UID)
	return p.view().Sandbox, nil
}

// RemoveSandbox forgets the pod.
func (r *Runtime) RemoveSandbox(_ context.Context, podUID string) error {
	h := r.host
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.pods[podUID]
	if !ok {
		return nil
	}
	for _, c := range p.Containers {
		if c.State == runtime.StateRunning {
			h.finish(p, c, 137, 9)
		}
		delete(h.containers, c.ID)
	}
	delete(h.pods, podUID)
	h.hints.Notify(podUID)
	return h.forget(podUID)
}

// CreateContainer records a container.
func (r *Runtime) CreateContainer(ctx context.Context, spec runtime.ContainerSpec) (string, error) {
	image, err := r.Images().Get(ctx, spec.Image)
	if err != nil {
		return "", fmt.Errorf("create container %s: %w", spec.Name, err)
	}
	h := r.host
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.pods[spec.PodUID]
	if !ok {
		return "", fmt.Errorf("create container %s: sandbox of pod %s: %w", spec.Name, spec.PodUID, runtime.ErrNotFound)
	}
	for _, c := range p.Containers {
		if c.Name == spec.Name && c.Attempt == spec.Attempt {
			return "", fmt.Errorf("create container %s: attempt %d of it exists", spec.Name, spec.Attempt)
		}
	}
	c := &container{
		Container: runtime.Container{
			ID:   fmt.Sprintf("%s-%s-%d", spec.PodUID, spec.Name, spec.Attempt),
			Name: spec.Name, Attempt: spec.Attempt, SpecHash: spec.SpecHash, Init: spec.Init, Ephemeral: spec.Ephemeral,
			Image: spec.Image, ImageID: image.ID, State: runtime.StateCreated, CreatedAt: time.Now(), LogPath: spec.LogPath,
		},
		Command: append(append([]string{}, spec.Command...), spec.Args...),
		Env:     append(append([]string{}, spec.Env...), spec.Devices.Env...),
		// The path may be a symbolic link in a real image; a simulated one has none.
		TerminationPath: filepath.Clean(spec.TerminationMessagePath),
		done:            make(chan struct{}),
	}
	c.Devices = append(c.Devices, spec.Devices.CDIDevices...)
	for _, d := range spec.Devices.Devices {
		c.Devices = append(c.Devices, d.ContainerPath)
	}
	p.Containers = append(p.Containers, c)
	h.containers[c.ID] = p
	if err := h.save(p); err != nil {
		return "", err
	}
	h.hints.Notify(p.UID)
	return c.ID, nil
}

// StartContainer begins the container's program.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	if r.latency > 0 {
		timer := time.NewTimer(r.latency)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("start container %s: %w", id, ctx.Err())
		}
	}
	h := r.host
	h.mu.Lock()
	defer h.mu.Unlock()
	p, c, err := h.container(id)
	if err != nil {
		return fmt.Errorf("start container: %w", err)
	}
	switch c.State {
	case runtime.StateRunning:
		return nil
	case runtime.StateExited:
		return fmt.Errorf("start container %s: it has exited already", id)
	}
	c.StartedAt = time.Now()
	if missing := parseProgram(c.Command).missing; missing != "" {
		c.StartError = fmt.Sprintf("exec: %q: no such file or directory", missing)
		c.StartedAt = time.Time{}
		h.finish(p, c, 128, 0)
		return fmt.Errorf("start container %s: %s", id, c.StartError)
	}
	c.State, c.resumeAt = runtime.StateRunning, c.StartedAt
	h.logStart(p, c)
	h.resume(p, c)
	h.hints.Notify(p.UID)
	return h.save(p)
}

// StopContainer ends the container's program: at once, or after the grace where it ignores the signal.
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	h := r.host
	h.mu.Lock()
	p, c, err := h.container(id)
	if err != nil || c.State != runtime.StateRunning {
		h.mu.Unlock()
		return nil
	}
	program := parseProgram(c.Command)
	switch {
	case grace <= 0:
		h.finish(p, c, 137, 9)
	case program.onTerm == termKills:
		h.finish(p, c, 143, 15)
	case program.onTerm == termExits:
		h.finish(p, c, program.trapCode, 0)
	}
	h.mu.Unlock()

	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop container %s: %w", id, ctx.Err())
	case <-timer.C:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.State == runtime.StateRunning {
		h.finish(p, c, 137, 9)
	}
	return nil
}

// RemoveContainer forgets a container that doesn't run.
func (r *Runtime) RemoveContainer(_ context.Context, id string) error {
	h := r.host
	h.mu.Lock()
	defer h.mu.Unlock()
	p, c, err := h.container(id)
	if err != nil {
		return nil
	}
	if c.State == runtime.StateRunning {
		return fmt.Errorf("remove container %s: it is running", id)
	}
	delete(h.containers, id)
	for i := range p.Containers {
		if p.Containers[i] == c {
			p.Containers = append(p.Containers[:i], p.Containers[i+1:]...)
			break
		}
	}
	h.hints.Notify(p.UID)
	return h.save(p)
}

// Images is a store that has everything.
func (r *Runtime) Images() runtime.Images { return images{r.host} }
