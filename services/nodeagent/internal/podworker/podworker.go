// Package podworker brings each pod of a node to where its spec wants it, and to its end.
//
// One goroutine per pod UID looks at what is wanted and what is seen, has package plan decide, and acts:
//
//	        deletion, end of all containers, rejection
//	syncing ──────────────────────────────────────────▶ terminating ───────────▶ terminated
//	start, restart, keep                                stop containers          remove sandbox, volumes,
//	                                                                             release devices, last status
//
// States never go back. Updates are coalesced: a worker looks at the newest. It wakes on a change at the gateway, on a
// hint of the runtime, when an operation of its own is over and when a back-off expires; a relist of the runtime every
// 10 s catches what was lost. What runs is known from the runtime alone, so that an agent that was killed finds its
// pods and leaves them as they are.
//
// Slow work (pulling, starting, stopping) is done by operations, goroutines that a worker owns, so that it always hears
// of a pod's deletion at once.
package podworker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/client/event"
	"trireme.dev/client/quantity"
	"trireme.dev/kit/loop"
	"trireme.dev/kit/telemetry"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/nodeagent/internal/containerspec"
	"trireme.dev/services/nodeagent/internal/devices"
	"trireme.dev/services/nodeagent/internal/runtime"
	"trireme.dev/services/nodeagent/internal/status"
	"trireme.dev/services/nodeagent/internal/volume"
)

// Config of a Manager.
type Config struct {
	// Node is what pods learn of the node.
	Node func() containerspec.Node
	// Allocatable is what the node has for pods, by resource; nil where it is not known yet.
	Allocatable func() map[string]quantity.Quantity
	// LogDir holds a folder for each pod with the output of its containers.
	LogDir string
	// RuntimeName prefixes container IDs in statuses: containerd.
	RuntimeName string
}

// Deps are what a Manager works with.
type Deps struct {
	Conn    grpc.ClientConnInterface
	Runtime runtime.Runtime
	Devices *devices.Manager
	Volumes *volume.Manager
	Events  *event.Recorder
	Logger  *slog.Logger
}

const (
	relistPeriod = 10 * time.Second
	// retrySoon is the wait after an error of the runtime that is likely to pass.
	retrySoon = time.Second
)

// Manager owns the workers of a node's pods.
type Manager struct {
	cfg    Config
	deps   Deps
	status *status.Manager
	images *puller
	count  *metrics
	fit    ledger
	wg     sync.WaitGroup

	mu      sync.Mutex
	workers map[string]*worker
	// ctx of running workers; nil until Run has looked at the runtime for the first time.
	ctx context.Context
	// relisted is when the runtime's pods were last looked at.
	relisted time.Time
	// first are the pods that the runtime had when Run began: of any other it has nothing until a worker makes it.
	first map[string]bool
	// synced says that every pod of the gateway has been delivered.
	synced bool
}

// New returns a manager; pods may be delivered at once.
func New(cfg Config, deps Deps) *Manager {
	m := &Manager{cfg: cfg, deps: deps, count: newMetrics(), workers: map[string]*worker{}}
	m.status = status.New(deps.Conn, deps.Logger, m.flushed)
	m.images = newPuller(deps.Runtime.Images())
	return m
}

// Update delivers a pod that is new or changed.
func (m *Manager) Update(pod *corev1.Pod) {
	m.status.Observe(pod)
	m.mu.Lock()
	defer m.mu.Unlock()
	uid := pod.GetMetadata().GetUid()
	if w := m.workers[uid]; w != nil {
		w.deliver(pod, false)
		return
	}
	w := newWorker(m, pod)
	m.workers[uid] = w
	if m.ctx != nil {
		m.launch(w)
	}
}

// Delete tells that the gateway has a pod no more.
func (m *Manager) Delete(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[pod.GetMetadata().GetUid()]; w != nil {
		w.deliver(pod, true)
	}
}

// Synced tells that all pods have been delivered: what else the runtime has is left over.
func (m *Manager) Synced() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.synced = true
	if m.ctx != nil {
		m.settle()
	}
}

// settle gives up what belongs to no pod, once both the gateway's pods and the runtime's are known. The lock is held:
// a pod that came meanwhile would lose devices that it has just been given.
func (m *Manager) settle() {
	pods := map[string]bool{}
	for uid := range m.workers {
		pods[uid] = true
	}
	// What the runtime has of pods that are gone keeps its devices until it is stopped.
	for uid := range m.first {
		pods[uid] = true
	}
	m.deps.Devices.Retain(pods)
	ctx := m.ctx
	m.wg.Go(func() { m.logIfFailed(ctx, "remove leftovers", m.relist(ctx)) })
}

// Wake has every pod that waits for devices or the network try again.
func (m *Manager) Wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.workers {
		w.poked.Store(true)
		w.nudge()
	}
}

func (m *Manager) lookAgain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.workers {
		w.changed()
	}
}

func (m *Manager) flushed(uid string) {
	m.mu.Lock()
	w := m.workers[uid]
	m.mu.Unlock()
	if w != nil && w.awaitsFlush.Load() {
		w.nudge()
	}
}

// Pod returns a pod of this node by UID.
func (m *Manager) Pod(uid string) (*corev1.Pod, bool) {
	m.mu.Lock()
	w := m.workers[uid]
	m.mu.Unlock()
	if w == nil {
		return nil, false
	}
	pod, _ := w.wanted()
	return pod, true
}

// launch starts a worker's goroutine. The lock is held.
func (m *Manager) launch(w *worker) {
	w.begin(w.gone || m.first[w.uid])
	delete(m.first, w.uid)
	ctx := m.ctx
	m.wg.Go(func() {
		if w.run(ctx) {
			m.ended(w)
		}
	})
}

// ended forgets a pod that is gone everywhere.
func (m *Manager) ended(w *worker) {
	m.mu.Lock()
	delete(m.workers, w.uid)
	m.mu.Unlock()
	m.status.Forget(w.uid)
	m.fit.release(w.uid)
	pod, _ := w.wanted()
	if err := m.removeLogs(pod); err != nil {
		m.deps.Logger.Warn("logs of a removed pod stay", slog.String(telemetry.KeyPodUID, w.uid), slog.Any(telemetry.KeyError, err))
	}
}

// Run works until ctx ends, then waits for its workers. Containers keep running.
func (m *Manager) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer m.wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { m.logIfFailed(ctx, "write pod statuses", m.status.Run(ctx)) })
	wg.Go(func() { m.listen(ctx) })
	if err := m.start(ctx); err != nil {
		return err
	}
	return loop.Every(ctx, loop.Config{Name: "relist", Period: relistPeriod, Jitter: 0.1, Delay: relistPeriod, Logger: m.deps.Logger}, m.relist)
}

// start looks at what the runtime has, however often it takes, and lets the workers begin.
func (m *Manager) start(ctx context.Context) error {
	pods, err := m.deps.Runtime.Pods(ctx)
	for err != nil {
		m.logIfFailed(ctx, "list pods of the runtime", err)
		if !pause(ctx, retrySoon) {
			return ctx.Err()
		}
		pods, err = m.deps.Runtime.Pods(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.first = map[string]bool{}
	for _, p := range pods {
		m.first[p.UID] = true
	}
	m.ctx = ctx
	m.images.ctx = ctx
	for _, w := range m.workers {
		m.launch(w)
	}
	if m.synced {
		m.settle()
	}
	return nil
}

// listen hands the runtime's hints to workers, and begins anew when the runtime goes away and comes back.
func (m *Manager) listen(ctx context.Context) {
	for {
		events, err := m.deps.Runtime.Events(ctx)
		if err != nil {
			m.logIfFailed(ctx, "listen to the runtime", err)
		} else {
			// Of what happened before there is no hint.
			m.lookAgain()
			for e := range events {
				m.hint(e.PodUID)
			}
		}
		if !pause(ctx, retrySoon) {
			return
		}
	}
}

func (m *Manager) hint(uid string) {
	m.mu.Lock()
	w := m.workers[uid]
	m.mu.Unlock()
	// An operation that is changing the runtime right now ends with a look at it anyway.
	if w != nil && w.acting.Load() == 0 {
		w.changed()
	}
}

// relist compares what the runtime has with what the workers saw last, and removes pods that nobody wants.
func (m *Manager) relist(ctx context.Context) error {
	begin := time.Now()
	pods, err := m.deps.Runtime.Pods(ctx)
	if err != nil {
		return fmt.Errorf("list pods of the runtime: %w", err)
	}
	uids, err := m.deps.Volumes.UIDs()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.relisted.IsZero() {
		m.count.relistInterval.Record(ctx, begin.Sub(m.relisted).Seconds())
	}
	m.relisted = begin
	m.count.relist.Record(ctx, time.Since(begin).Seconds())
	seen := map[string]bool{}
	for _, p := range pods {
		seen[p.UID] = true
		w := m.workers[p.UID]
		switch {
		case w != nil && w.print() != fingerprint(p):
			w.changed()
		case w == nil && m.synced:
			m.orphan(p)
		}
	}
	for uid, w := range m.workers {
		if !seen[uid] && w.print() != "" {
			w.changed()
		}
	}
	for _, uid := range uids {
		if m.workers[uid] == nil && m.synced && !seen[uid] {
			m.wg.Go(func() { m.logIfFailed(ctx, "remove leftover volumes", m.deps.Volumes.Teardown(uid)) })
		}
	}
	return nil
}

// orphan ends a pod that the runtime has and the gateway has not. The lock is held.
func (m *Manager) orphan(p *runtime.Pod) {
	w := newWorker(m, podOf(p))
	w.gone = true
	m.workers[p.UID] = w
	m.launch(w)
}

func (m *Manager) logIfFailed(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		m.deps.Logger.LogAttrs(ctx, slog.LevelWarn, "operation failed",
			slog.String(telemetry.KeyMessage, what), slog.Any(telemetry.KeyError, err))
	}
}

// pause waits and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// fingerprint differs where a worker that saw one state has to look at the other.
func fingerprint(p *runtime.Pod) string {
	if p == nil {
		return ""
	}
	s := "no sandbox"
	if p.Sandbox != nil {
		s = fmt.Sprint(p.Sandbox.Ready)
	}
	for _, c := range p.Containers {
		s += fmt.Sprintf(" %s=%d", c.ID, c.State)
	}
	return s
}
