// Package inmemory is the scheduler's chain without a gateway: what informers would tell it is told by method calls, and
// bindings, as soon as they are made, are what its watch would bring. It is for benchmarks and for trying things out; it
// writes nothing and reports nothing.
package inmemory

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client/selector"
	"trireme.dev/kit/daemon"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cache"
	"trireme.dev/services/scheduler/internal/cycle"
	"trireme.dev/services/scheduler/internal/intake"
	"trireme.dev/services/scheduler/internal/queue"
	"trireme.dev/services/scheduler/internal/runtime"
	"trireme.dev/services/scheduler/plugins"
)

// Config says what is run.
type Config struct {
	// Profile of the scheduler; the default one where it has no plugins.
	Profile framework.Profile
	// Objects are the listers that plugins may ask for, by kind; that of groups is there anyway.
	Objects map[string]any
	// Seed says where ties begin.
	Seed uint64
	// NoBatching has each pod looked at all by itself.
	NoBatching bool
	// Bound is told of each pod that was bound, from one goroutine. It may be nil.
	Bound func(pod *corev1.Pod)
}

// Scheduler is a scheduler over a cluster in memory. Make it with New, Run it once; its methods may be called beside it.
type Scheduler struct {
	cfg    Config
	intake *intake.Intake
	queue  *queue.Queue
	cache  *cache.Cache
	loop   *cycle.Cycle

	mu       sync.Mutex
	pods     map[string]*corev1.Pod // by uid
	groups   map[framework.GroupKey]*schedulingv1.PodGroup
	bound    []*corev1.Binding
	boundNow chan struct{}
}

// New builds the chain.
func New(cfg Config) (*Scheduler, error) {
	if len(cfg.Profile.Plugins) == 0 {
		cfg.Profile = plugins.Default("default-scheduler")
	}
	s := &Scheduler{cfg: cfg, pods: make(map[string]*corev1.Pod), groups: make(map[framework.GroupKey]*schedulingv1.PodGroup), boundNow: make(chan struct{}, 1)}
	objects := map[string]any{"PodGroup": groupLister{s}}
	maps.Copy(objects, cfg.Objects)
	fw, err := runtime.New(cfg.Profile, runtime.Deps{Binder: binder{s}, Evictor: evictor{s}, Objects: objects})
	if err != nil {
		return nil, err
	}
	logger := slog.New(slog.DiscardHandler)
	s.cache = cache.New(logger)
	events := maps.Clone(fw.Events())
	events[cycle.NoNodes] = []framework.EventHint{{
		Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add},
	}}
	s.queue = queue.New(queue.Config{
		Less: fw.Less, PreEnqueue: fw.RunPreEnqueue, PreEnqueueGroup: fw.RunPreEnqueueGroup,
		Events: events, Scheduled: s.cache.Scheduled, Team: s.cache.QueueOf, FirstTeam: s.cache.FirstQueue, OnGated: func(queue.Gated) {},
	})
	fw.OnActivate(s.queue.Activate)
	s.intake = &intake.Intake{SchedulerNames: []string{cfg.Profile.SchedulerName}, Queue: s.queue, Cache: s.cache, Framework: fw, Logger: logger}
	s.loop = cycle.New(cycle.Deps{
		Queue: s.queue, Cache: s.cache, Framework: fw, Logger: logger,
		Profile: cfg.Profile.SchedulerName, NoBatching: cfg.NoBatching,
	}, cfg.Seed)
	return s, nil
}

// Run schedules until ctx ends.
func (s *Scheduler) Run(ctx context.Context) error {
	return daemon.Run(ctx,
		daemon.Task{Name: "queue", Run: s.queue.Run},
		daemon.Task{Name: "confirm", Run: s.confirm},
		daemon.Task{Name: "cycle", Run: s.loop.Run},
	)
}

// Node takes in a change of a node: before is nil where it came, after where it went.
func (s *Scheduler) Node(before, after *corev1.Node) { s.intake.Node(before, after) }

// Group takes in a change of a group in the same way.
func (s *Scheduler) Group(before, after *schedulingv1.PodGroup) {
	s.mu.Lock()
	if after != nil {
		s.groups[keyOf(after)] = after
	} else {
		delete(s.groups, keyOf(before))
	}
	s.mu.Unlock()
	s.intake.Group(before, after)
}

func keyOf(g *schedulingv1.PodGroup) framework.GroupKey {
	return framework.GroupKey{Namespace: g.GetMetadata().GetNamespace(), Name: g.GetMetadata().GetName()}
}

// Queue takes in a change of a Queue object in the same way.
func (s *Scheduler) Queue(before, after *schedulingv1.Queue) { s.intake.QueueObject(before, after) }

// Create takes in a pod, which waits, or is on the node that its spec names.
func (s *Scheduler) Create(pod *corev1.Pod) {
	s.mu.Lock()
	s.pods[pod.GetMetadata().GetUid()] = pod
	s.mu.Unlock()
	s.intake.Pod(nil, pod, time.Now())
}

// Delete takes a pod away.
func (s *Scheduler) Delete(uid string) {
	s.mu.Lock()
	pod := s.pods[uid]
	delete(s.pods, uid)
	s.mu.Unlock()
	if pod != nil {
		s.intake.Pod(pod, nil, time.Time{})
	}
}

// Waiting counts what is ready, in backoff, and in the pool of what is unschedulable: pods, and gangs.
func (s *Scheduler) Waiting() (active, backoff, pool int) { return s.queue.Len() }

// Snapshot of the cluster as the scheduler believes it to be.
func (s *Scheduler) Snapshot() (*framework.Snapshot, error) {
	var snapshot cache.Snapshot
	err := s.cache.Update(&snapshot)
	return &snapshot.Snapshot, err
}

// groupLister implements framework.Lister.
type groupLister struct{ s *Scheduler }

// Get implements framework.Lister.
func (l groupLister) Get(namespace, name string) (*schedulingv1.PodGroup, bool) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	g, ok := l.s.groups[framework.GroupKey{Namespace: namespace, Name: name}]
	return g, ok
}

// List implements framework.Lister.
func (l groupLister) List(namespace string, labels *selector.Labels) []*schedulingv1.PodGroup {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	var out []*schedulingv1.PodGroup
	for key, g := range l.s.groups {
		if (namespace == "" || key.Namespace == namespace) && (labels == nil || labels.Matches(g.GetMetadata().GetLabels())) {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b *schedulingv1.PodGroup) int { return strings.Compare(keyOf(a).String(), keyOf(b).String()) })
	return out
}

// binder implements framework.Binder.
type binder struct{ s *Scheduler }

// Bind implements framework.Binder.
func (b binder) Bind(_ context.Context, group []*corev1.Binding) error {
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
			s.intake.Pod(before, after, time.Time{})
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
