// Package node makes a machine known to the cluster: it registers the Node object, reports capacity, health and
// addresses, and renews the node's lease.
//
// It writes only what belongs to the agent: labels, taints and annotations that others set stay as they are. It reads
// spec.podCIDR from its own Node and tells the runtime. It knows nothing of pods.
package node

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/informer"
	"trireme.dev/client/quantity"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/loop"
	"trireme.dev/kit/telemetry"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/nodeagent/internal/devices"
	"trireme.dev/services/nodeagent/internal/runtime"
)

const (
	statusPeriod = 10 * time.Second
	// reportPeriod is how old a status that has not changed may get at the gateway.
	reportPeriod = 5 * time.Minute
	retryPeriod  = 500 * time.Millisecond
	callTimeout  = 10 * time.Second
	// writeTries before a node that others keep changing is left to the next round.
	writeTries = 5
	maxPods    = 110
)

// Config says which node this is.
type Config struct {
	// Name of the node.
	Name string
	// IPs at which it is reached, the main one first.
	IPs []string
	// Port of the agent's own TCP server; 0 where it has none.
	Port func() int32
	// Version of the agent.
	Version string
	// Machine fixes what the machine has; nil measures it.
	Machine *Machine
	// StateDir is on the file system that pods' storage is taken from.
	StateDir string
	// Labels that the node gets beside those of its hostname, system and architecture.
	Labels map[string]string
	// Wake is told when something that pods may wait for has become ready: the network, devices.
	Wake func()
}

// Deps are what a Manager works with.
type Deps struct {
	Conn    grpc.ClientConnInterface
	Factory *informer.Factory
	Runtime runtime.Runtime
	Devices *devices.Manager
	Logger  *slog.Logger
}

// Machine is what a machine has.
type Machine struct {
	CPUMillis, MemoryBytes, StorageBytes int64
}

// Manager keeps one Node object.
type Manager struct {
	cfg     Config
	deps    Deps
	nodes   *client.Resource[*corev1.Node]
	machine Machine
	started time.Time
	// poke asks for a status at once.
	poke chan struct{}

	mu sync.Mutex
	// stored is the newest Node known.
	stored *corev1.Node
	// cidr that the runtime has been told.
	cidr string
	// reported is when the status was last written.
	reported time.Time
	// gone says that the node was registered and then deleted.
	gone bool
}

// New measures the machine and adds the watch of the node's object to the factory, which must not run yet.
func New(cfg Config, deps Deps) (*Manager, error) {
	m := &Manager{
		cfg: cfg, deps: deps, started: time.Now(), poke: make(chan struct{}, 1),
		nodes: client.For[*corev1.Node](deps.Conn),
	}
	if cfg.Machine != nil {
		m.machine = *cfg.Machine
	} else {
		var err error
		if m.machine, err = measure(cfg.StateDir); err != nil {
			return nil, fmt.Errorf("measure the machine: %w", err)
		}
	}
	informer.Of[*corev1.Node](deps.Factory, informer.Config{FieldSelector: "metadata.name=" + cfg.Name}).AddHandler(informer.Handler[*corev1.Node]{
		Add:    func(n *corev1.Node, _ bool) { m.observe(n) },
		Update: func(_, n *corev1.Node) { m.observe(n) },
		Delete: func(*corev1.Node) { m.leave() },
	})
	return m, nil
}

// Machine is what the node has.
func (m *Manager) Machine() Machine { return m.machine }

// Allocatable is what pods may be admitted against. Of devices all count: which of them work is the device manager's
// to judge.
func (m *Manager) Allocatable() map[string]quantity.Quantity {
	out := m.capacity()
	for name, r := range m.deps.Devices.Resources() {
		out[name] = quantity.New(r.Capacity)
	}
	return out
}

func (m *Manager) capacity() map[string]quantity.Quantity {
	return map[string]quantity.Quantity{
		"cpu":               quantity.NewMilli(m.machine.CPUMillis),
		"memory":            quantity.NewBytes(m.machine.MemoryBytes),
		"ephemeral-storage": quantity.NewBytes(m.machine.StorageBytes),
		"pods":              quantity.New(maxPods),
	}
}

// Poke asks for the status to be computed at once.
func (m *Manager) Poke() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

func (m *Manager) observe(n *corev1.Node) {
	m.mu.Lock()
	told, back := m.cidr, m.gone
	m.mu.Unlock()
	m.keep(n)
	if cidr := n.GetSpec().GetPodCidr(); back || cidr != "" && cidr != told {
		m.Poke()
	}
}

// leave ends reporting: somebody has deleted the node. To register it again at once would make deleting it useless, and
// what was decided about it (its range of addresses) is no longer its own. The next agent registers it again; so does this
// one take it up where somebody makes the object anew.
func (m *Manager) leave() {
	m.mu.Lock()
	was := m.gone
	m.stored, m.gone = nil, true
	m.mu.Unlock()
	if !was {
		m.deps.Logger.Warn("node was deleted from the cluster: this agent reports it no longer, and registers it again when it is restarted")
	}
}

// left reports whether the node has been deleted.
func (m *Manager) left() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gone
}

// Run registers the node and keeps it up to date until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	return daemon.Run(ctx,
		daemon.Task{Name: "node status", Run: m.keepStatus},
		daemon.Task{Name: "node lease", Run: func(ctx context.Context) error {
			l := newLease(m.deps.Conn, m.cfg.Name)
			return loop.Every(ctx, loop.Config{Name: "renew node lease", Period: leasePeriod, Jitter: 0.04, Logger: m.deps.Logger}, func(ctx context.Context) error {
				return m.untilDone(ctx, func(ctx context.Context) error {
					if m.left() {
						return nil
					}
					return l.renew(ctx, m.uid())
				})
			})
		}},
	)
}

// keepStatus syncs every period, and at once when it is poked or devices change.
func (m *Manager) keepStatus(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	trigger := make(chan struct{}, 1)
	trigger <- struct{}{}
	wg.Go(func() {
		// The error is that of a cancelled context.
		_ = loop.Every(ctx, loop.Config{Name: "node status", Period: statusPeriod, Delay: statusPeriod, Jitter: 0.04}, func(context.Context) error {
			m.Poke()
			return nil
		})
	})
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-trigger:
		case <-m.poke:
		case <-m.deps.Devices.Changed():
			m.cfg.Wake()
		}
		if err := m.untilDone(ctx, m.sync); err != nil {
			return nil
		}
	}
}

// untilDone tries again and again until it is done or ctx has ended.
func (m *Manager) untilDone(ctx context.Context, f func(context.Context) error) error {
	logged := ""
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := f(call)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// Not once for each try: the gateway may be away for long.
		if err.Error() != logged {
			logged = err.Error()
			m.deps.Logger.LogAttrs(ctx, slog.LevelWarn, "node not reported, will retry", slog.Any(telemetry.KeyError, err))
		}
		t := time.NewTimer(retryPeriod)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
}

// Registered reports whether the gateway has the node.
func (m *Manager) Registered() bool { return m.uid() != "" }

func (m *Manager) uid() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stored.GetMetadata().GetUid()
}

// sync tells the runtime its range of addresses, registers the node where it is not there, and writes its status where
// that has changed.
func (m *Manager) sync(ctx context.Context) error {
	for range writeTries {
		m.mu.Lock()
		stored, gone := m.stored, m.gone
		m.mu.Unlock()
		if gone {
			return nil
		}
		if stored == nil {
			fresh, err := m.register(ctx)
			if err != nil {
				return err
			}
			m.keep(fresh)
			stored = fresh
		}
		// A node whose network cannot be set up says so in its status: it must not go on as Ready.
		networkErr := m.giveCIDR(ctx, stored.GetSpec().GetPodCidr())
		status := m.status(ctx, stored.GetStatus())
		if !m.due(stored.GetStatus(), status) {
			return networkErr
		}
		written, err := m.nodes.UpdateStatus(ctx, &corev1.Node{
			Metadata: &metav1.ObjectMeta{Name: m.cfg.Name, ResourceVersion: stored.GetMetadata().GetResourceVersion()},
			Spec:     stored.GetSpec(), Status: status,
		})
		switch {
		case apierr.IsConflict(err):
			fresh, err := m.nodes.Get(ctx, "", m.cfg.Name)
			switch {
			case apierr.IsNotFound(err):
				m.leave()
			case err != nil:
				return fmt.Errorf("get node %s: %w", m.cfg.Name, err)
			default:
				m.keep(fresh)
			}
		case apierr.IsNotFound(err):
			m.leave()
		case err != nil:
			return fmt.Errorf("write status of node %s: %w", m.cfg.Name, err)
		default:
			m.keep(written)
			m.mu.Lock()
			m.reported = time.Now()
			m.mu.Unlock()
			return networkErr
		}
	}
	return fmt.Errorf("write status of node %s: it is changed by others all the time", m.cfg.Name)
}

// keep remembers the node where it is newer than what is known: the answer to a write and the watch race.
func (m *Manager) keep(n *corev1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stored.GetMetadata().GetUid() != n.GetMetadata().GetUid() || revision(n) > revision(m.stored) {
		m.stored, m.gone = n, false
	}
}

func revision(n *corev1.Node) int64 {
	r, err := strconv.ParseInt(n.GetMetadata().GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return r
}

// due reports whether a status is to be written: it says something new, or the last one is old.
func (m *Manager) due(stored, status *corev1.NodeStatus) bool {
	m.mu.Lock()
	reported := m.reported
	m.mu.Unlock()
	if time.Since(reported) >= reportPeriod {
		return true
	}
	a, b := proto.CloneOf(stored), proto.CloneOf(status)
	for _, s := range []*corev1.NodeStatus{a, b} {
		for _, c := range s.GetConditions() {
			c.LastHeartbeatTime = nil
		}
	}
	return !proto.Equal(a, b)
}

// register creates the node, or takes the one there is and gives it the labels that it lacks.
func (m *Manager) register(ctx context.Context) (*corev1.Node, error) {
	stored, err := m.nodes.Get(ctx, "", m.cfg.Name)
	if apierr.IsNotFound(err) {
		stored, err = m.nodes.Create(ctx, &corev1.Node{
			Metadata: &metav1.ObjectMeta{Name: m.cfg.Name, Labels: m.labels()},
			Spec:     &corev1.NodeSpec{}, Status: m.status(ctx, nil),
		})
		if err == nil {
			m.deps.Logger.LogAttrs(ctx, slog.LevelInfo, "node registered")
			return stored, nil
		}
		if apierr.IsAlreadyExists(err) {
			stored, err = m.nodes.Get(ctx, "", m.cfg.Name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("register node %s: %w", m.cfg.Name, err)
	}
	missing := false
	updated := proto.CloneOf(stored)
	for k, v := range m.labels() {
		if updated.GetMetadata().GetLabels()[k] != v {
			missing = true
			if updated.Metadata.Labels == nil {
				updated.Metadata.Labels = map[string]string{}
			}
			updated.Metadata.Labels[k] = v
		}
	}
	if !missing {
		return stored, nil
	}
	if stored, err = m.nodes.Update(ctx, updated); err != nil {
		return nil, fmt.Errorf("label node %s: %w", m.cfg.Name, err)
	}
	return stored, nil
}

func (m *Manager) giveCIDR(ctx context.Context, cidr string) error {
	m.mu.Lock()
	told := m.cidr
	m.mu.Unlock()
	if cidr == "" || cidr == told {
		return nil
	}
	if err := m.deps.Runtime.SetPodCIDR(ctx, cidr); err != nil {
		return fmt.Errorf("set pod CIDR %s: %w", cidr, err)
	}
	m.mu.Lock()
	m.cidr = cidr
	m.mu.Unlock()
	m.cfg.Wake()
	return nil
}
