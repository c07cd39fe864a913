// Package tally writes how many pods a group has, and what a queue uses, into their statuses: for people, and at a bounded
// rate. Nothing is decided by it. It stands beside the scheduler's chain, of which it reads the books.
package tally

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/informer"
	"trireme.dev/kit/loop"
	"trireme.dev/kit/telemetry"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cache"
	"trireme.dev/services/scheduler/internal/queue"
	"trireme.dev/services/scheduler/internal/quota"
)

// period between two looks; what changed since is written once.
const period = time.Second

const byGroup = "podGroup"

// Tally counts. Make it with New before the factory runs, and Run it where it leads.
type Tally struct {
	cache  *cache.Cache
	queue  *queue.Queue
	pods   *informer.Lister[*corev1.Pod]
	groups *informer.Lister[*schedulingv1.PodGroup]
	logger *slog.Logger

	writeGroup *client.Resource[*schedulingv1.PodGroup]
	writeQueue *client.Resource[*schedulingv1.Queue]

	mu    sync.Mutex
	dirty map[framework.GroupKey]struct{}
}

// New subscribes to pods and groups.
func New(conn grpc.ClientConnInterface, f *informer.Factory, c *cache.Cache, q *queue.Queue, logger *slog.Logger) *Tally {
	pods, groups := informer.Of[*corev1.Pod](f, informer.Config{}), informer.Of[*schedulingv1.PodGroup](f, informer.Config{})
	t := &Tally{
		cache: c, queue: q, pods: pods.Lister(), groups: groups.Lister(), logger: logger,
		writeGroup: client.For[*schedulingv1.PodGroup](conn), writeQueue: client.For[*schedulingv1.Queue](conn),
		dirty: make(map[framework.GroupKey]struct{}),
	}
	pods.AddIndex(byGroup, func(p *corev1.Pod) []string {
		if key, ok := framework.GroupOf(p); ok {
			return []string{key.String()}
		}
		return nil
	})
	pods.AddHandler(informer.Handler[*corev1.Pod]{
		Add:    func(p *corev1.Pod, _ bool) { t.pod(p) },
		Update: func(_, p *corev1.Pod) { t.pod(p) },
		Delete: t.pod,
	})
	groups.AddHandler(informer.Handler[*schedulingv1.PodGroup]{
		Add:    func(g *schedulingv1.PodGroup, _ bool) { t.group(g) },
		Update: func(_, g *schedulingv1.PodGroup) { t.group(g) },
	})
	return t
}

func (t *Tally) pod(p *corev1.Pod) {
	if key, ok := framework.GroupOf(p); ok {
		t.mark(key)
	}
}

func (t *Tally) group(g *schedulingv1.PodGroup) {
	t.mark(framework.GroupKey{Namespace: g.GetMetadata().GetNamespace(), Name: g.GetMetadata().GetName()})
}

func (t *Tally) mark(key framework.GroupKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirty[key] = struct{}{}
}

// Run writes until ctx ends.
func (t *Tally) Run(ctx context.Context) error {
	return loop.Every(ctx, loop.Config{Name: "statuses of groups and queues", Period: period, Logger: t.logger}, func(ctx context.Context) error {
		t.mu.Lock()
		dirty := t.dirty
		t.dirty = make(map[framework.GroupKey]struct{})
		t.mu.Unlock()
		var errs []error
		for key := range dirty {
			if err := t.countGroup(ctx, key); err != nil {
				t.mark(key) // next time
				errs = append(errs, err)
			}
		}
		return errors.Join(append(errs, t.countQueues(ctx))...)
	})
}

// countGroup writes a group's figures where they are others than it has.
func (t *Tally) countGroup(ctx context.Context, key framework.GroupKey) error {
	group, ok := t.groups.Get(key.Namespace, key.Name)
	if !ok {
		return nil
	}
	var known, scheduled, running int32
	for _, p := range t.pods.ByIndex(byGroup, key.String()) {
		phase := p.GetStatus().GetPhase()
		if phase == "Succeeded" || phase == "Failed" {
			continue
		}
		known++
		if p.GetSpec().GetNodeName() != "" {
			scheduled++
		}
		if phase == "Running" {
			running++
		}
	}
	minCount := group.GetSpec().GetSchedulingPolicy().GetGang().GetMinCount()
	s := group.GetStatus()
	if s.GetKnown() == known && s.GetScheduled() == scheduled && s.GetRunning() == running && s.GetMinCount() == minCount {
		return nil
	}
	group = proto.CloneOf(group)
	if group.Status == nil {
		group.Status = &schedulingv1.PodGroupStatus{}
	}
	group.Status.Known, group.Status.Scheduled, group.Status.Running, group.Status.MinCount = known, scheduled, running, minCount
	_, err := t.writeGroup.UpdateStatus(ctx, group)
	return t.unless(key.String(), err)
}

// unless is the error of a write that says more than that the object is another by now: then its news bring it here again.
func (t *Tally) unless(key string, err error) error {
	if apierr.IsNotFound(err) || apierr.IsConflict(err) {
		t.logger.Debug("status changed meanwhile", slog.String(telemetry.KeyKey, key))
		return nil
	}
	return err
}

// countQueues writes what queues use where it is other than they say.
func (t *Tally) countQueues(ctx context.Context) error {
	uses := t.cache.QueueUses()
	if len(uses) == 0 {
		return nil
	}
	pending := t.queue.PendingByTeam(t.cache.QueueOf)
	var errs []error
	for _, u := range uses {
		name := u.Queue.GetMetadata().GetName()
		fresh := proto.CloneOf(u.Queue)
		fresh.Status = &schedulingv1.QueueStatus{
			ObservedGeneration: u.Queue.GetMetadata().GetGeneration(),
			Used:               quota.FormatAll(u.Used), Borrowed: quota.FormatAll(u.Borrowed),
			Pending: int32(pending[name]), Admitted: int32(u.Pods),
			Conditions: []*metav1.Condition{active(u.Queue, u.Broken)},
		}
		if proto.Equal(fresh.Status, u.Queue.GetStatus()) {
			continue
		}
		written, err := t.writeQueue.UpdateStatus(ctx, fresh)
		if err = t.unless(name, err); err != nil {
			errs = append(errs, err)
		}
		if written != nil {
			t.cache.QueueStatus(written)
		}
	}
	return errors.Join(errs...)
}

// active is the condition of a queue, which keeps its time while it stays.
func active(q *schedulingv1.Queue, broken string) *metav1.Condition {
	c := &metav1.Condition{Type: "Active", Status: "True", Reason: "Ready", ObservedGeneration: q.GetMetadata().GetGeneration(), LastTransitionTime: timestamppb.Now()}
	if broken != "" {
		c.Status, c.Reason, c.Message = "False", "NoPlaceInTree", broken
	}
	for _, old := range q.GetStatus().GetConditions() {
		if old.GetType() == c.Type && old.GetStatus() == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return c
}
