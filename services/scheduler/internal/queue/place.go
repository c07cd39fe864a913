package queue

import (
	"maps"
	"slices"
	"time"

	"trireme.dev/services/scheduler/framework"
)

// detach takes the entity out of the place that it is in.
func (q *Queue) detach(e *entity) {
	switch e.place {
	case placeActive:
		q.unready(e)
	case placeBackoff:
		q.backoff.remove(e)
	case placeFailed:
		q.failed.remove(e)
	case placePool:
		q.unpool(e)
	case placeInFlight:
		delete(q.inFlight, e.popped)
		e.popped = nil
	}
	e.place = placeNone
}

// putInPool puts an entity into the pool, where an event in which one of the plugins is interested finds it.
func (q *Queue) putInPool(e *entity, plugins ...string) {
	e.place, e.pooledBy = placePool, plugins
	q.pool[e] = struct{}{}
	for _, p := range plugins {
		if q.refused[p] == nil {
			q.refused[p] = make(map[*entity]struct{})
		}
		q.refused[p][e] = struct{}{}
	}
}

func (q *Queue) unpool(e *entity) {
	delete(q.pool, e)
	for _, p := range e.pooledBy {
		if delete(q.refused[p], e); len(q.refused[p]) == 0 {
			delete(q.refused, p)
		}
	}
	e.pooledBy = nil
}

// discard forgets an empty entity.
func (q *Queue) discard(e *entity) {
	q.detach(e)
	delete(q.unsaid, e)
	if e.view.IsGroup() {
		delete(q.gangs, e.view.GroupKey)
	}
}

// readmit decides anew after something about the entity itself changed: its pods or its group. It is not for entities in
// flight.
func (q *Queue) readmit(e *entity, event string) {
	failed := e.place == placeFailed
	q.detach(e)
	q.admit(e, failed, event)
}

// admit puts an entity that is in no place where it belongs, as far as gates and backoff go: the pool, a backoff heap,
// or active. event is what brought it there.
func (q *Queue) admit(e *entity, failed bool, event string) {
	if e.empty() {
		q.discard(e)
		return
	}
	defer q.settle(e, event)
	if e.gate = q.gateOf(e); e.gate != nil {
		q.putInPool(e, e.gate.Plugin())
		if _, ok := q.unsaid[e]; !ok {
			q.unsaid[e] = q.now().Add(gateReportDelay)
			q.nudge()
		}
		return
	}
	delete(q.unsaid, e)
	if len(e.held) > 0 {
		q.unsaid[e] = q.now().Add(gateReportDelay)
		q.nudge()
	}
	switch {
	case !q.now().Before(e.until):
		q.makeReady(e)
		q.signal()
	case failed:
		e.place = placeFailed
		q.failed.push(e)
		q.nudge()
	default:
		e.place = placeBackoff
		q.backoff.push(e)
		q.nudge()
		q.signal() // Pop may take it if nothing else is ready
	}
}

// gateOf asks the gates of the entity as a whole.
func (q *Queue) gateOf(e *entity) *framework.Status {
	if e.view.IsGroup() {
		e.view.Scheduled = q.cfg.Scheduled(e.view.GroupKey)
		if st := q.cfg.PreEnqueueGroup(&e.view); !st.IsSuccess() {
			return st
		}
	}
	if len(e.view.Pods) > 0 {
		return nil
	}
	uid := slices.Min(slices.Collect(maps.Keys(e.held)))
	return e.held[uid].status
}

// recheck runs PreEnqueue of all pods again: what held one back may be over, or have come up.
func (q *Queue) recheck(e *entity) {
	all := slices.Clone(e.view.Pods)
	for _, h := range e.held {
		all = append(all, h.pod)
	}
	for _, pod := range all {
		st := q.cfg.PreEnqueue(pod)
		if st.IsSuccess() != (e.held[pod.UID()] == nil) {
			e.replace(pod, st)
		}
	}
}

// park puts a rejected entity into the pool.
func (q *Queue) park(e *entity) {
	q.putInPool(e, e.refusers()...)
	q.flushLater(e)
	q.settle(e, eventAttemptFailure)
}

// pause is the backoff after the n-th attempt that failed in the same way: 1, 2, 4, 8, 10, 10 s by default.
func (q *Queue) pause(n int) time.Duration {
	if n <= 0 {
		return 0
	}
	d := q.cfg.InitialBackoff
	for range n - 1 {
		if d >= q.cfg.MaxBackoff {
			break
		}
		d *= 2
	}
	return min(d, q.cfg.MaxBackoff)
}

// setBackoff computes when the entity may be tried again. Whole seconds, rounded down, put those that come due
// together into the order of the queue rather than of their milliseconds.
func (q *Queue) setBackoff(e *entity) {
	n := e.unschedulable
	if e.errors > 0 {
		n = e.errors
	}
	e.until = down(e.view.Timestamp.Add(q.pause(n)), time.Second)
}

// down rounds a time down and, unlike Truncate, keeps its reading of the monotonic clock: a wall clock that jumps moves no
// deadline.
func down(t time.Time, to time.Duration) time.Time { return t.Add(-t.Sub(t.Truncate(to))) }

func (q *Queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *Queue) nudge() {
	select {
	case q.kick <- struct{}{}:
	default:
	}
}
