// Package inmemory is the scheduler's chain without a gateway: what informers would tell it is told by method calls, and
// bindings, as soon as they are made, are what its watch would bring. It is for benchmarks and for trying things out; it
// writes nothing and reports nothing.
package inmemory

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/telemetry"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	recordv1 "trireme.dev/proto/gen/trireme/record/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cache"
	"trireme.dev/services/scheduler/internal/chain"
	"trireme.dev/services/scheduler/internal/recording"
	"trireme.dev/services/scheduler/plugins"
)

// Config says what is run.
type Config struct {
	// Profile of the scheduler; the default one where it has no plugins.
	Profile framework.Profile
	// OtherProfiles that pods may choose.
	OtherProfiles []framework.Profile
	// Objects are the listers that plugins may ask for, by kind. Where it is nil, or there is a Record, those that Object and
	// Group were told of.
	Objects map[string]any
	// Seed says where ties begin.
	Seed uint64
	// NoBatching has each pod looked at all by itself.
	NoBatching bool
	// Bound is told of each pod that was bound, from one goroutine. It may be nil.
	Bound func(pod *corev1.Pod)
	// Refuse is asked about each group before it is bound, from several goroutines: an error fails its binding. It may be nil.
	Refuse func(group []*corev1.Binding) error
	// Record is a file for what the scheduler sees and decides; empty for none.
	Record string
	// Configuration of the profiles, as it is to stand in the record; empty for the default profile.
	Configuration []byte
}

// Scheduler is a scheduler over a cluster in memory. Make it with New, Run it once; its methods may be called beside it.
type Scheduler struct {
	cfg    Config
	chain  *chain.Chain
	record *recording.File // nil for none

	mu       sync.Mutex
	pods     map[string]*corev1.Pod // by uid
	bound    []*corev1.Binding
	boundNow chan struct{}
}

// New builds the chain.
func New(cfg Config) (*Scheduler, error) {
	if len(cfg.Profile.Plugins) == 0 {
		cfg.Profile = plugins.Default("default-scheduler")
	}
	s := &Scheduler{cfg: cfg, pods: make(map[string]*corev1.Pod), boundNow: make(chan struct{}, 1)}
	logger := slog.New(slog.DiscardHandler)
	deps := chain.Deps{Binder: binder{s}, Evictor: evictor{s}, Objects: cfg.Objects, Logger: logger}
	if cfg.Record != "" {
		var err error
		if s.record, err = recording.Create(cfg.Record, &recordv1.Header{
			Program: telemetry.Version(), Seed: cfg.Seed, SchedulerName: cfg.Profile.SchedulerName, Config: cfg.Configuration,
		}, logger); err != nil {
			return nil, err
		}
		deps.Steps = recording.NewSteps(s.record.Take)
	}
	var err error
	s.chain, err = chain.New(chain.Config{
		Profiles: append([]framework.Profile{cfg.Profile}, cfg.OtherProfiles...), Seed: cfg.Seed, NoBatching: cfg.NoBatching,
	}, deps)
	return s, err
}

// Run schedules until ctx ends.
func (s *Scheduler) Run(ctx context.Context) error {
	if s.record != nil {
		defer s.record.Close()
	}
	return daemon.Run(ctx,
		daemon.Task{Name: "queue", Run: s.chain.Queue.Run},
		daemon.Task{Name: "confirm", Run: s.confirm},
		daemon.Task{Name: "cycle", Run: s.chain.Cycles.Run},
	)
}

// Node takes in a change of a node: before is nil where it came, after where it went.
func (s *Scheduler) Node(before, after *corev1.Node) { tell(s, before, after) }

// Group takes in a change of a group in the same way.
func (s *Scheduler) Group(before, after *schedulingv1.PodGroup) { tell(s, before, after) }

// Queue takes in a change of a Queue object in the same way.
func (s *Scheduler) Queue(before, after *schedulingv1.Queue) { tell(s, before, after) }

// Object takes in a change of an object of another kind that plugins may ask for in the same way.
func (s *Scheduler) Object(before, after client.Object) { s.chain.Intake.Change(before, after, false) }

func tell[T any, P interface {
	*T
	client.Object
}](s *Scheduler, before, after P) {
	var was, is client.Object
	if before != nil {
		was = before
	}
	if after != nil {
		is = after
	}
	s.chain.Intake.Change(was, is, false)
}

// Create takes in a pod, which waits, or is on the node that its spec names.
func (s *Scheduler) Create(pod *corev1.Pod) {
	s.mu.Lock()
	s.pods[pod.GetMetadata().GetUid()] = pod
	s.mu.Unlock()
	s.chain.Intake.Change(nil, pod, false)
}

// Delete takes a pod away.
func (s *Scheduler) Delete(uid string) {
	s.mu.Lock()
	pod := s.pods[uid]
	delete(s.pods, uid)
	s.mu.Unlock()
	if pod != nil {
		s.chain.Intake.Change(pod, nil, false)
	}
}

// Waiting counts what is ready, in backoff, and in the pool of what is unschedulable: pods, and gangs.
func (s *Scheduler) Waiting() (active, backoff, pool int) { return s.chain.Queue.Len() }

// Snapshot of the cluster as the scheduler believes it to be.
func (s *Scheduler) Snapshot() (*framework.Snapshot, error) {
	var snapshot cache.Snapshot
	err := s.chain.Cache.Update(&snapshot)
	return &snapshot.Snapshot, err
}

// binder implements framework.Binder.
type binder struct{ s *Scheduler }

// Bind implements framework.Binder.
func (b binder) Bind(_ context.Context, group []*corev1.Binding) error {
	if b.s.cfg.Refuse != nil {
		if err := b.s.cfg.Refuse(group); err != nil {
			return err
		}
	}
	b.s.mu.Lock()
	b.s.bound = append(b.s.bound, group...)
	b.s.mu.Unlock()
	select {
	case b.s.boundNow <- struct{}{}:
	default:
	}
	return nil
}

// evictor implements framework.Evictor: a victim is gone at once.
type evictor struct{ s *Scheduler }

// Evict implements framework.Evictor.
func (e evictor) Evict(_ context.Context, victim *framework.PodInfo, _ string) error {
	e.s.Delete(victim.UID())
	return nil
}

// MarkGroup implements framework.Evictor: there is no status here that it could be said in.
func (evictor) MarkGroup(context.Context, *schedulingv1.PodGroup, string) error { return nil }

// confirm is the watch: it tells what was bound.
func (s *Scheduler) confirm(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.boundNow:
		}
		s.mu.Lock()
		bound := s.bound
		s.bound = nil
		s.mu.Unlock()
		for _, b := range bound {
			s.mu.Lock()
			before := s.pods[b.GetPodUid()]
			if before == nil {
				s.mu.Unlock()
				continue
			}
			after := boundTo(before, b.GetNodeName())
			s.pods[b.GetPodUid()] = after
			s.mu.Unlock()
			s.chain.Intake.Change(before, after, false)
			if s.cfg.Bound != nil {
				s.cfg.Bound(after)
			}
		}
	}
}

// boundTo is a copy of a pod with another node that shares the rest: none of it ever changes.
func boundTo(pod *corev1.Pod, node string) *corev1.Pod {
	out := &corev1.Pod{Metadata: pod.GetMetadata(), Spec: &corev1.PodSpec{}, Status: pod.GetStatus()}
	spec := out.Spec.ProtoReflect()
	pod.GetSpec().ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		spec.Set(field, value)
		return true
	})
	out.Spec.NodeName = proto.String(node)
	return out
}
