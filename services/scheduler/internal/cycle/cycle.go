// Package cycle is the middle of the scheduler's chain: it takes one pod or gang at a time from the queue, decides where
// it goes, and has it bound while it turns to the next. Decider is the pure part; Cycle is the loop around it.
package cycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/telemetry"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cache"
	"trireme.dev/services/scheduler/internal/queue"
	"trireme.dev/services/scheduler/internal/recording"
	"trireme.dev/services/scheduler/internal/report"
	"trireme.dev/services/scheduler/internal/runtime"
)

// Deps are the parts that a cycle works with.
type Deps struct {
	Queue     *queue.Queue
	Cache     *cache.Cache
	Framework *runtime.Framework
	Reporter  *report.Reporter
	Logger    *slog.Logger
	// Profile names the scheduler in metrics.
	Profile string
	// NoBatching has each pod looked at all by itself.
	NoBatching bool
	// Steps of the scheduler.
	Steps *recording.Steps
	// Ended is told of attempts, placed ones too, from several goroutines. It may be nil.
	Ended func(Attempt)
}

// Cycle is the scheduling loop.
type Cycle struct {
	Deps
	snapshot cache.Snapshot
	decider  *Decider
	bindings workers
	binding  atomic.Int64 // how many of them are under way
	counters *counters
	watch    Watch
	count    int // attempts
	idle     bool
}

// New returns a loop whose ties begin at seed.
func New(deps Deps, seed uint64) *Cycle {
	c := &Cycle{Deps: deps, counters: newCounters(deps.Profile)}
	c.decider = NewDecider(deps.Framework, &c.snapshot, seed)
	if deps.NoBatching {
		c.decider.NoBatching()
	}
	return c
}

// groupGone stands for a plugin in the rejection of a group that was deleted meanwhile; the queue itself knows what it waits
// for.
const groupGone = "GangScheduling"

// finish is how long bindings that are being written when Run's ctx ends may take to come to their end. Where a lost lease
// is what ended it, no other scheduler can have begun before: that takes what is left between the deadline of a renewal
// and the end of the lease, five seconds.
const finish = 3 * time.Second

// Run schedules until ctx ends, then waits for the bindings under way: what waits for permission is given up, what is
// being written is finished. It may run again after that.
func (c *Cycle) Run(ctx context.Context) error { return Profiles{c}.Run(ctx) }

// Profiles are the cycles of one scheduler's profiles, which share its queue and cache; at least one.
type Profiles []*Cycle

// Run is Cycle.Run over all of them: one entity at a time, by the profile that its pods name.
func (p Profiles) Run(ctx context.Context) error {
	writing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(finish, cancel)
		context.AfterFunc(writing, func() { timer.Stop() })
	})
	defer func() {
		for _, c := range p {
			c.bindings.Wait()
		}
		stop()
		cancel()
	}()
	for ctx.Err() == nil {
		if !p.Attempt(ctx, writing) {
			p[0].Queue.Wait(ctx)
		}
	}
	return nil
}

// Attempt tries what is next, in one step, and reports whether there was anything.
func (p Profiles) Attempt(ctx, writing context.Context) bool {
	first := p[0]
	first.Steps.Begin()
	q := first.Queue.Pop()
	if q == nil {
		first.Steps.End(first.nothing())
		return false
	}
	c, err := p.of(q)
	if err != nil {
		a := c.begin(q)
		c.over(a)
		c.fail(a, err)
		first.Steps.End(first.attempted(q, Decision{Err: err}, nil))
		return true
	}
	d, refusal := c.scheduleOne(ctx, writing, q)
	first.Steps.End(first.attempted(q, d, refusal))
	return true
}

// of is the cycle of an entity's profile, with an error where its pods do not agree on one.
func (p Profiles) of(q *framework.Queued) (*Cycle, error) {
	c := p[0]
	if len(p) == 1 || len(q.Pods) == 0 {
		return c, nil
	}
	name := q.Pods[0].Pod.GetSpec().GetSchedulerName()
	if i := slices.IndexFunc(p, func(c *Cycle) bool { return c.Profile == name }); i >= 0 {
		c = p[i]
	}
	for _, other := range q.Pods[1:] {
		if have := other.Pod.GetSpec().GetSchedulerName(); have != name {
			return c, fmt.Errorf("pods of one group name different schedulers: %s of pod %s, %s of pod %s", name,
				framework.Key(q.Pods[0].Pod), have, framework.Key(other.Pod))
		}
	}
	return c, nil
}

// scheduleOne is one attempt at one pod or gang: snapshot, decide, assume, reserve, permit; the rest goes on beside the
// next attempt, and is written under the context writing. It returns what was decided, and what refused that at once.
func (c *Cycle) scheduleOne(ctx, writing context.Context, q *framework.Queued) (d Decision, refusal *framework.Status) {
	defer c.Framework.End()
	a := c.begin(q)
	if err := c.Cache.Update(&c.snapshot); err != nil {
		c.over(a)
		c.fail(a, err)
		return Decision{Err: err}, nil
	}
	d = c.decider.Decide(ctx, q, &c.watch)
	switch {
	case d.Err != nil:
		c.over(a)
		c.fail(a, d.Err)
		return d, nil
	case len(d.Placed) == 0:
		c.over(a)
		c.reject(a, d)
		return d, nil
	}
	st := c.commit(ctx, d.Placed)
	c.over(a)
	if !st.IsSuccess() {
		if st.IsRejected() {
			c.refuse(a, st)
		} else {
			c.fail(a, st.Err())
		}
		return d, st
	}
	c.binding.Add(1)
	c.Steps.Beside(c.bindings.Go, q.Pods[0].UID(),
		func() *framework.Status { return c.tryBind(ctx, writing, a, d.Placed) },
		func(st *framework.Status) {
			defer c.binding.Add(-1)
			c.bound(ctx, a, d, st)
		})
	return d, nil
}

// commit assumes all pods in the cache, reserves and asks for permission. On failure nothing of it is left.
func (c *Cycle) commit(ctx context.Context, group []framework.Assignment) (st *framework.Status) {
	defer func() {
		if p := recover(); p != nil {
			c.rollback(ctx, group, nil)
			st = framework.AsStatus(fmt.Errorf("panic while reserving: %v", p))
		}
	}()
	for i, a := range group {
		if err := c.Cache.Assume(a.Pod, a.Node); err != nil {
			c.rollback(ctx, group[:i], nil)
			return framework.AsStatus(err)
		}
		c.Framework.Nominator().Forget(a.Pod.UID()) // the cache keeps its place now
	}
	noted := c.watch.pods
	for _, a := range group {
		for len(noted) > 0 && noted[0].pod != a.Pod {
			noted = noted[1:] // one that found no place
		}
		var w *podWatch
		if len(noted) > 0 {
			w = &noted[0]
		}
		begun := w.begin()
		st := c.Framework.RunReserve(ctx, a)
		w.end(reserve, begun, st.Code())
		if st.IsSuccess() {
			begun = w.begin()
			st = c.Framework.RunPermit(ctx, a)
			w.end(permit, begun, st.Code())
		}
		if !st.IsSuccess() && !st.IsWait() {
			c.rollback(ctx, group, nil)
			return st
		}
	}
	return nil
}

// rollback takes back what commit did. The room that it frees is news to all but the attempt itself.
func (c *Cycle) rollback(ctx context.Context, group []framework.Assignment, self *framework.Queued) {
	for _, a := range slices.Backward(group) {
		c.Framework.RunUnreserve(ctx, a)
		c.Framework.ReleasePermit(a.Pod.UID())
		if c.Cache.Forget(a.Pod) && self != nil {
			c.Queue.Move(framework.Change{
				Event:  framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete},
				OldPod: a.Pod,
			}, self)
		}
	}
}

// bound ends an attempt by what came of its binding. All pods of a group share its fate.
func (c *Cycle) bound(ctx context.Context, a *attempt, d Decision, st *framework.Status) {
	q := a.Queued
	if !st.IsSuccess() {
		a.rest = time.Now()
		c.rollback(ctx, d.Placed, q)
		if st.IsRejected() {
			c.refuse(a, st)
		} else {
			c.fail(a, st.Err())
		}
		return
	}
	c.ended(a, d, nil)
	c.counters.scheduled(q, len(d.Placed), a.begun)
	c.counters.ended(resultUnschedulable, len(d.Failed), a.begun)
	uids := make([]string, len(d.Placed))
	for i, p := range d.Placed {
		uids[i] = p.Pod.UID()
		c.postBind(ctx, p)
		c.Reporter.Scheduled(p.Pod.Pod, p.Node)
	}
	if q.IsGroup() {
		c.Reporter.Group(q.Group, report.Verdict{
			Scheduled: true, Reason: report.ReasonScheduled,
			Message: fmt.Sprintf("%d pods scheduled, %d needed", q.Scheduled+len(d.Placed), q.MinCount()),
		})
	}
	c.say(d.Failed, report.ReasonUnschedulable)
	c.Queue.Done(q, queue.Outcome{
		Scheduled: uids, Rejected: len(d.Failed) > 0, Plugins: d.Plugins, Pending: d.Pending,
	})
	if c.Logger.Enabled(ctx, slog.LevelInfo) {
		c.Logger.LogAttrs(ctx, slog.LevelInfo, "scheduled", append(about(q), slog.Int(telemetry.KeyCount, len(d.Placed)),
			slog.String(telemetry.KeyNode, d.Placed[0].Node))...)
	}
	a.tell(d.Failed, nil)
}

// postBind tells plugins. The pod is bound whatever becomes of that.
func (c *Cycle) postBind(ctx context.Context, a framework.Assignment) {
	defer func() {
		if p := recover(); p != nil {
			c.Logger.LogAttrs(ctx, slog.LevelError, "panic after binding",
				slog.String(telemetry.KeyPod, a.Pod.Name()), slog.Any(telemetry.KeyError, p))
		}
	}()
	c.Framework.RunPostBind(ctx, a)
}

// tryBind waits for permission, prepares and binds.
func (c *Cycle) tryBind(ctx, writing context.Context, a *attempt, group []framework.Assignment) (st *framework.Status) {
	defer func() {
		if p := recover(); p != nil {
			st = framework.AsStatus(fmt.Errorf("panic while binding: %v", p))
		}
	}()
	work := make([]runtime.PreBinding, len(group))
	waits := false
	for i, p := range group {
		if work[i], st = c.Framework.RunPreBindPreFlight(ctx, p); !st.IsSuccess() {
			return st
		}
		waits = waits || work[i].Work || c.Framework.WaitingPod(p.Pod.UID()) != nil
	}
	if waits {
		if st = c.prepare(ctx, writing, a, group, work); !st.IsSuccess() {
			return st
		}
	} else {
		c.counters.extension(runtime.WaitOnPermit, 0, framework.Success)
		c.counters.extension(runtime.PreBind, 0, framework.Success)
	}
	if a.IsGroup() && !c.Queue.Stands(a.Queued) {
		return framework.NewStatus(framework.Unschedulable,
			fmt.Sprintf("pod group %s was deleted while its pods were being placed", a.GroupKey)).WithPlugin(groupGone)
	}
	for _, p := range group {
		if !c.Cache.HasNode(p.Node) {
			return framework.AsStatus(fmt.Errorf("node %s was deleted while pod %s was being placed on it", p.Node, p.Pod.Name()))
		}
	}
	begun := time.Now()
	st = c.Framework.RunBind(a.traced(writing), group)
	c.counters.extension(runtime.Bind, time.Since(begun), st.Code())
	return st
}

// prepare waits for permission and runs PreBind. Meanwhile the pods' nodes are known as nominated, and a preemptor may call
// the binding off.
func (c *Cycle) prepare(ctx, writing context.Context, a *attempt, group []framework.Assignment, work []runtime.PreBinding) (st *framework.Status) {
	for _, p := range group {
		c.Reporter.Nominated(p.Pod.Pod, p.Node)
	}
	preparing, written := c.Framework.Cancellable(writing, group)
	defer func() {
		if err := written(); err != nil {
			st = framework.AsStatus(err)
		}
	}()
	for _, step := range []struct {
		name string
		run  func(int, framework.Assignment) *framework.Status
	}{
		{runtime.WaitOnPermit, func(_ int, p framework.Assignment) *framework.Status { return c.Framework.WaitOnPermit(ctx, p.Pod) }},
		{runtime.PreBind, func(i int, p framework.Assignment) *framework.Status {
			return c.Framework.RunPreBind(preparing, p, work[i])
		}},
	} {
		begun := time.Now()
		for i, p := range group {
			if st = step.run(i, p); !st.IsSuccess() {
				break
			}
		}
		c.counters.extension(step.name, time.Since(begun), st.Code())
		a.waited(step.name, begun)
		if !st.IsSuccess() {
			return st
		}
	}
	return nil
}

// reject ends an attempt that found no place.
func (c *Cycle) reject(a *attempt, d Decision) {
	q := a.Queued
	c.counters.ended(resultUnschedulable, len(d.Failed), a.begun)
	c.counters.preempted(len(d.Victims))
	c.ended(a, d, nil)
	c.later(a, d.Failed, nil)
	c.Logger.LogAttrs(context.Background(), slog.LevelDebug, "unschedulable",
		append(about(q), slog.String(telemetry.KeyMessage, d.Failed[0].Message))...)
	c.say(d.Failed, report.ReasonUnschedulable)
	if q.IsGroup() {
		c.Reporter.Group(q.Group, report.Verdict{Reason: report.ReasonUnschedulable, Message: d.Message})
	}
	c.Queue.Done(q, queue.Outcome{Rejected: true, Plugins: d.Plugins, Pending: d.Pending, Ended: a.rest})
}

// refuse ends an attempt that a plugin refused after a place was found.
func (c *Cycle) refuse(a *attempt, st *framework.Status) {
	d := Decision{Plugins: []string{st.Plugin()}, Message: st.Message()}
	if st.Code() == framework.Pending {
		d.Pending = d.Plugins
	}
	for _, p := range a.Pods {
		d.Failed = append(d.Failed, Failure{Pod: p, Message: d.Message})
	}
	c.reject(a, d)
}

// fail ends an attempt that ran into an unexpected error.
func (c *Cycle) fail(a *attempt, err error) {
	q := a.Queued
	c.ended(a, Decision{}, err)
	c.later(a, nil, err)
	// Who no longer leads has nothing to tell.
	if !errors.Is(err, context.Canceled) && !apierr.IsFailedPrecondition(err) {
		c.counters.ended(resultError, len(q.Pods), a.begun)
		c.Logger.LogAttrs(context.Background(), slog.LevelWarn, "scheduling failed, will be tried again",
			append(about(q), slog.Any(telemetry.KeyError, err))...)
		var failed []Failure
		for _, p := range q.Pods {
			failed = append(failed, Failure{Pod: p, Message: err.Error()})
		}
		c.say(failed, report.ReasonSchedulerError)
		if q.IsGroup() {
			c.Reporter.Group(q.Group, report.Verdict{Reason: report.ReasonSchedulerError, Message: err.Error()})
		}
	}
	c.Queue.Done(q, queue.Outcome{Failed: true, Ended: a.rest})
}

// later tells traces, beside the next attempt.
func (c *Cycle) later(a *attempt, failed []Failure, err error) {
	if len(a.histories) > 0 {
		c.bindings.Go(func() { a.tell(failed, err) })
	}
}

// say tells people, for the pods that still wait: one that is gone or bound meanwhile has no use for it.
func (c *Cycle) say(failed []Failure, reason string) {
	for _, f := range failed {
		if pod := c.Queue.Pod(f.Pod.UID()); pod != nil {
			c.nominate(f, pod)
			c.Reporter.FailedScheduling(pod, report.Verdict{Reason: reason, Message: f.Message, NominatedNode: f.NominatedNode, ClearNomination: f.Clear})
		}
	}
}

// nominate remembers where room is being made for a pod that was not placed.
func (c *Cycle) nominate(f Failure, pod *corev1.Pod) {
	node := f.NominatedNode
	switch {
	case f.Clear:
		node = ""
	case node == "":
		node = pod.GetStatus().GetNominatedNodeName() // as it was before this attempt
	}
	c.Framework.Nominate(f.Pod, node)
}

func about(q *framework.Queued) []slog.Attr {
	key := telemetry.KeyPod
	if q.IsGroup() {
		key = telemetry.KeyPodGroup
	}
	return []slog.Attr{slog.String(key, q.Name()), slog.Int(telemetry.KeyAttempt, q.Attempts)}
}
