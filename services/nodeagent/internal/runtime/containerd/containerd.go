//go:build linux

// Package containerd is the runtime that runs pods through containerd and runc.
//
// It owns what a pod has on its node: namespaces pinned by bind mounts, a cgroup, a few files, its place in the
// network, and its containers with their logs. There is no pause process: the namespaces live as long as their pins.
// All of a pod's containers share one shim. It never decides when a pod starts, stops or restarts.
//
// Where things are kept:
//
//	containerd        containers and their snapshots; labels say which pod and attempt each one is
//	StateDir/pods     per pod: sandbox.json, files for /etc, and per container state.json and its termination message
//	RunDir/pods       per pod: the namespaces' pins, /dev/shm, and the containers' FIFOs; gone after a reboot
//	StateDir/network  the pods' addresses
//
// Life of a container: CreateContainer makes containerd's object and a snapshot; StartContainer opens the FIFOs and
// makes and starts the task; the exit event settles it (output drained, message read, exit recorded, task deleted).
package containerd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/opencontainers/go-digest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"trireme.dev/services/nodeagent/internal/logs"
	"trireme.dev/services/nodeagent/internal/network"
	"trireme.dev/services/nodeagent/internal/runtime"
	"trireme.dev/services/nodeagent/internal/runtime/hint"
)

// Config of the runtime.
type Config struct {
	// Address of containerd's socket. Required.
	Address string
	// Namespace in containerd that holds what is ours: trireme.
	Namespace string
	// StateDir keeps what must outlive a reboot. Required.
	StateDir string
	// RunDir keeps mounts and FIFOs, normally on a tmpfs: /run/trireme.
	RunDir string
	// CgroupRoot is the cgroup that holds kubepods; empty means the root.
	CgroupRoot string
	// ShimSocketDir is where containerd has its shims serve: /run/containerd/s, or what a Supervisor says.
	ShimSocketDir string
	// RuncBinary is runc's path; empty means the one in containerd's PATH.
	RuncBinary string
	// Snapshotter is containerd's: overlayfs where it works, else native.
	Snapshotter string
	// Network of the pods. Its StateDir is below ours where empty.
	Network network.Config
	// CDIDirs hold the specifications of CDI devices: /etc/cdi and /var/run/cdi.
	CDIDirs []string
	// LogRotation of containers' logs.
	LogRotation logs.Rotation
}

// Runtime implements runtime.Runtime.
type Runtime struct {
	cfg         Config
	logger      *slog.Logger
	client      *client.Client
	tasks       tasks.TasksClient
	snapshotter snapshots.Snapshotter
	network     *network.Bridge
	cgroups     cgroups
	host        hostFacts
	hints       hint.Hub

	// copies are the goroutines that copy output; they and settling end with done.
	copies sync.WaitGroup
	done   chan struct{}

	mu         sync.Mutex
	pods       map[string]*pod
	containers map[string]*container
	images     map[digest.Digest]*imageConfig
	users      map[userKey]user
	version    string
}

var _ runtime.Runtime = (*Runtime)(nil)

// eagerness is the pause between tries to reach a containerd that went away.
const eagerness = 30 * time.Millisecond

// New connects to containerd, which must be serving, and takes up the pods that it finds there. Run must be called
// then; until it is, exits are noticed only by those who ask.
func New(cfg Config, logger *slog.Logger) (*Runtime, error) {
	if cfg.Address == "" || cfg.StateDir == "" {
		return nil, errors.New("containerd runtime: address and state folder are required")
	}
	if cfg.Namespace == "" {
		cfg.Namespace = "trireme"
	}
	if cfg.RunDir == "" {
		cfg.RunDir = "/run/trireme"
	}
	if cfg.ShimSocketDir == "" {
		cfg.ShimSocketDir = "/run/containerd/s"
	}
	if cfg.Network.StateDir == "" {
		cfg.Network.StateDir = filepath.Join(cfg.StateDir, "network")
	}
	if len(cfg.CDIDirs) == 0 {
		cfg.CDIDirs = []string{"/etc/cdi", "/var/run/cdi"}
	}
	if err := lacks(ownCapabilities()); err != nil {
		return nil, err
	}
	groups := newCgroups(cfg.CgroupRoot)
	if err := groups.claim(); err != nil {
		return nil, err
	}
	for _, dir := range []string{cfg.StateDir, cfg.RunDir, filepath.Join(cfg.StateDir, "pods"), filepath.Join(cfg.RunDir, "pods")} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, fmt.Errorf("containerd runtime: %w", err)
		}
	}
	bridge, err := network.New(cfg.Network, logger)
	if err != nil {
		return nil, err
	}
	// A containerd that was killed is back within a second, and shims tell at once what it missed: whoever listens
	// late doesn't hear it.
	eager := grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: eagerness, Multiplier: 1, MaxDelay: eagerness}, MinConnectTimeout: time.Second,
	})
	c, err := client.New(cfg.Address, client.WithDefaultNamespace(cfg.Namespace), client.WithExtraDialOpts([]grpc.DialOption{eager}))
	if err != nil {
		return nil, fmt.Errorf("connect to containerd: %w", err)
	}
	r := &Runtime{
		cfg: cfg, logger: logger, client: c, tasks: c.TaskService(), network: bridge, cgroups: groups,
		done: make(chan struct{}),
		pods: map[string]*pod{}, containers: map[string]*container{}, images: map[digest.Digest]*imageConfig{},
		users: map[userKey]user{},
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.open(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *Runtime) open(ctx context.Context) error {
	version, err := r.client.Version(ctx)
	if err != nil {
		return fmt.Errorf("containerd at %s: %w", r.cfg.Address, err)
	}
	r.version = version.Version
	if err := r.chooseSnapshotter(ctx); err != nil {
		return err
	}
	r.host = learnHost(ctx, r.cfg.RuncBinary, r.logger)
	if err := r.loadPods(); err != nil {
		return err
	}
	if err := r.loadContainers(ctx); err != nil {
		return err
	}
	keep := map[string]bool{}
	for uid, p := range r.pods {
		if p.sandbox != nil {
			keep[uid] = true
		}
	}
	return r.network.GC(ctx, keep)
}

// chooseSnapshotter takes the configured one, or the best that containerd has.
func (r *Runtime) chooseSnapshotter(ctx context.Context) error {
	names := []string{r.cfg.Snapshotter}
	if r.cfg.Snapshotter == "" {
		names = []string{"overlayfs", "native"}
	}
	var errs []error
	for _, name := range names {
		s := r.client.SnapshotService(name)
		_, err := s.Stat(ctx, "trireme-is-it-there")
		if err == nil || isNotFound(err) {
			if len(errs) > 0 {
				r.logger.Warn("overlayfs is not available; the native snapshotter copies every image's files for each container",
					"error", errors.Join(errs...))
			}
			r.snapshotter, r.cfg.Snapshotter = s, name
			return nil
		}
		errs = append(errs, fmt.Errorf("snapshotter %s: %w", name, err))
	}
	return errors.Join(errs...)
}

// Run handles containerd's events until ctx ends, and then lets go of everything: containers go on running, and what
// they write waits for the next runtime.
func (r *Runtime) Run(ctx context.Context) error {
	defer r.close()
	r.watchEvents(ctx)
	return nil
}

func (r *Runtime) close() {
	close(r.done)
	r.mu.Lock()
	containers := make([]*container, 0, len(r.containers))
	for _, c := range r.containers {
		containers = append(containers, c)
	}
	r.mu.Unlock()
	for _, c := range containers {
		c.closeOutput()
	}
	r.copies.Wait()
	_ = r.client.Close()
}

// Info asks containerd, so it also says whether containerd answers.
func (r *Runtime) Info(ctx context.Context) (runtime.Info, error) {
	version, err := r.client.Version(ctx)
	if err != nil {
		return runtime.Info{}, fmt.Errorf("containerd: %w", err)
	}
	return runtime.Info{Name: "containerd", Version: trimV(version.Version), NetworkReady: r.network.Ready()}, nil
}

func trimV(version string) string {
	if len(version) > 1 && version[0] == 'v' {
		return version[1:]
	}
	return version
}

// SetPodCIDR makes the bridge.
func (r *Runtime) SetPodCIDR(ctx context.Context, cidr string) error {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return fmt.Errorf("pod CIDR: %w", err)
	}
	return r.network.SetCIDR(ctx, prefix)
}

// SetPeers tells which ranges belong to pods of other nodes: see network.Bridge.
func (r *Runtime) SetPeers(ctx context.Context, ranges []netip.Prefix) error {
	return r.network.SetPeers(ctx, ranges)
}

// Events delivers hints. They come from containerd's events and from what this runtime does itself.
func (r *Runtime) Events(ctx context.Context) (<-chan runtime.Event, error) {
	return r.hints.Listen(ctx), nil
}

// Pods reports all pods, compared with containerd's own lists.
func (r *Runtime) Pods(ctx context.Context) ([]*runtime.Pod, error) {
	if err := r.resync(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	uids := make([]string, 0, len(r.pods))
	for uid := range r.pods {
		uids = append(uids, uid)
	}
	r.mu.Unlock()
	sort.Strings(uids)
	list := make([]*runtime.Pod, 0, len(uids))
	for _, uid := range uids {
		if v := r.view(uid); v != nil {
			list = append(list, v)
		}
	}
	return list, nil
}

// Pod reports one pod, comparing its running containers with containerd.
func (r *Runtime) Pod(ctx context.Context, uid string) (*runtime.Pod, error) {
	r.mu.Lock()
	var running []*container
	if p, ok := r.pods[uid]; ok {
		for _, c := range p.containers {
			if c.state == runtime.StateRunning {
				running = append(running, c)
			}
		}
	}
	r.mu.Unlock()
	for _, c := range running {
		if err := r.check(ctx, c); err != nil {
			return nil, err
		}
	}
	if v := r.view(uid); v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("pod %s: %w", uid, runtime.ErrNotFound)
}

// view is a copy of what is known of a pod; nil where that is nothing.
func (r *Runtime) view(uid string) *runtime.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.pods[uid]
	if !ok || (p.sandbox == nil && len(p.containers) == 0) {
		return nil
	}
	v := &runtime.Pod{UID: uid, Namespace: p.namespace, Name: p.name}
	if s := p.sandbox; s != nil {
		v.Sandbox = &runtime.Sandbox{
			Ready: r.ready(p), HostNetwork: s.HostNetwork, IPs: append([]string(nil), s.IPs...), CreatedAt: s.CreatedAt,
		}
	}
	for _, c := range p.containers {
		v.Containers = append(v.Containers, c.view())
	}
	return v
}

func (r *Runtime) pod(uid string) *pod {
	p, ok := r.pods[uid]
	if !ok {
		p = &pod{uid: uid, tasks: map[string]bool{}}
		r.pods[uid] = p
	}
	return p
}

// dropIfEmpty forgets a pod of which nothing is left. The lock is held.
func (r *Runtime) dropIfEmpty(p *pod) {
	if p.sandbox == nil && len(p.containers) == 0 {
		delete(r.pods, p.uid)
	}
}

func (r *Runtime) stateDir(uid string) string { return filepath.Join(r.cfg.StateDir, "pods", uid) }
func (r *Runtime) runDir(uid string) string   { return filepath.Join(r.cfg.RunDir, "pods", uid) }
