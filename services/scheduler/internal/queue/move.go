package queue

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"trireme.dev/services/scheduler/framework"
)

// hintResult says what an event makes of a rejection; a larger one is stronger.
type hintResult int

const (
	hintSkip         hintResult = iota // stay
	hintAfterBackoff                   // try again once the backoff is over
	hintNow                            // try again at once
)

// Move tells the queue what happened in the cluster. Entities whose rejection may not hold any more leave the pool;
// those in flight are judged when they come back. except, if not nil, is an attempt in flight that caused the event and
// is not to be woken by it.
func (q *Queue) Move(change framework.Change, except *framework.Queued) {
	q.mu.Lock()
	defer q.mu.Unlock()
	exceptEntity := q.inFlight[except]
	q.record(&change, exceptEntity)
	if len(q.pool) == 0 {
		return
	}
	interested := q.interested(change.Event)
	if len(interested) == 0 {
		return
	}
	type wake struct {
		e   *entity
		how hintResult
	}
	var woken []wake
	for plugin := range interested {
		for e := range q.refused[plugin] {
			if e == exceptEntity {
				continue
			}
			how := hintSkip
			switch {
			case e.gate == nil:
				how = q.hint(e, &change)
			case q.pluginHint(e, plugin, &change):
				how = hintAfterBackoff
			}
			if how != hintSkip {
				woken = append(woken, wake{e, how})
			}
		}
	}
	// In the order of the queue, so that a replay of the same events gives the same order.
	slices.SortFunc(woken, func(a, b wake) int {
		return cmp.Or(a.e.view.InitialTimestamp.Compare(b.e.view.InitialTimestamp), cmp.Compare(a.e.name(), b.e.name()))
	})
	for i, w := range woken {
		if i == 0 || woken[i-1].e != w.e { // more than one of its plugins may be interested
			q.move(w.e, w.how, change.Event.String())
		}
	}
}

func (e *entity) name() string {
	if len(e.view.Pods) == 0 && !e.view.IsGroup() {
		return slices.Min(slices.Collect(maps.Keys(e.held)))
	}
	return e.view.Name()
}

// move takes an entity to active, or to backoff if that is not over and how says so.
func (q *Queue) move(e *entity, how hintResult, event string) {
	q.detach(e)
	q.recheck(e)
	if how == hintNow {
		e.until = e.view.Timestamp
	}
	q.admit(e, false, event)
}

// interested lists the plugins that registered the event.
func (q *Queue) interested(event framework.ClusterEvent) map[string]struct{} {
	if out, ok := q.registered[event]; ok {
		return out
	}
	var out map[string]struct{}
	defer func() { q.registered[event] = out }()
	for plugin, hints := range q.cfg.Events {
		for _, h := range hints {
			if h.Event.Matches(event) {
				if out == nil {
					out = make(map[string]struct{})
				}
				out[plugin] = struct{}{}
				break
			}
		}
	}
	return out
}

// hint asks the plugins that rejected the entity what they make of the change.
func (q *Queue) hint(e *entity, change *framework.Change) hintResult {
	if change.Event.Resource == framework.UnscheduledPod && change.OldPod != nil && !e.owns(change.NewPod.UID()) {
		return hintSkip // an update of a waiting pod concerns nobody else
	}
	for plugin := range e.pendingBy {
		if q.pluginHint(e, plugin, change) {
			return hintNow
		}
	}
	for plugin := range e.rejectedBy {
		if q.pluginHint(e, plugin, change) {
			return hintAfterBackoff
		}
	}
	return hintSkip
}

func (e *entity) owns(uid string) bool {
	return e.held[uid] != nil || slices.ContainsFunc(e.view.Pods, func(p *framework.PodInfo) bool { return p.UID() == uid })
}

// pluginHint reports whether the plugin would have one of the entity's pods tried again.
func (q *Queue) pluginHint(e *entity, plugin string, change *framework.Change) bool {
	for _, h := range q.cfg.Events[plugin] {
		if !h.Event.Matches(change.Event) {
			continue
		}
		if h.Hint == nil || e.any(func(p *framework.PodInfo) bool { return h.Hint(p, change) == framework.Queue }) {
			return true
		}
	}
	return false
}

// podChange says in what way a waiting pod changed; 0 where only its status did.
func podChange(old, pod *framework.PodInfo) framework.Action {
	var action framework.Action
	om, nm := old.Pod.GetMetadata(), pod.Pod.GetMetadata()
	if !maps.Equal(om.GetLabels(), nm.GetLabels()) {
		action |= framework.UpdatePodLabel
	}
	if ScaledDown(old, pod) {
		action |= framework.UpdatePodScaleDown
	}
	os, ns := old.Pod.GetSpec(), pod.Pod.GetSpec()
	if len(os.GetTolerations()) != len(ns.GetTolerations()) {
		action |= framework.UpdatePodToleration
	}
	if len(os.GetSchedulingGates()) > 0 && len(ns.GetSchedulingGates()) == 0 {
		action |= framework.UpdatePodGatesEliminated
	}
	if action == 0 && (!maps.Equal(om.GetAnnotations(), nm.GetAnnotations()) || !proto.Equal(os, ns)) {
		action = framework.UpdateOther
	}
	return action
}

// ScaledDown reports whether the pod asks for less of something than before.
func ScaledDown(old, pod *framework.PodInfo) bool {
	a, b := &old.Request, &pod.Request
	if b.MilliCPU < a.MilliCPU || b.Memory < a.Memory || b.EphemeralStorage < a.EphemeralStorage {
		return true
	}
	for name, v := range a.Scalar {
		if b.Scalar[name] < v {
			return true
		}
	}
	return false
}
