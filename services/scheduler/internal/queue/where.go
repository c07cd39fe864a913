package queue

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"trireme.dev/services/scheduler/framework"
)

// Parts that metrics do not count by.
const (
	// PartInFlight is that of pods that are being tried or bound.
	PartInFlight = "in flight"
	// PartError is that of pods that wait out an error.
	PartError = "error"
)

// Where is where a pod waits.
type Where struct {
	// Part of the queue: one of the Part constants.
	Part string
	// Ahead are how many pods and groups are tried before it; of those that are active.
	Ahead int
	// Since is when it last entered the queue.
	Since time.Time
	// Until is when its backoff ends; zero where it is in none.
	Until time.Time
	// Gate is what holds it back; nil where nothing does.
	Gate *framework.Status
	// Attempts so far.
	Attempts int
	// Wakes are what would have it tried again.
	Wakes []Wake
	// Entity is what it is tried as: the pod alone, or the members of its gang that wait and are not held back.
	Entity framework.Queued
	// Held are the members of its gang that are held back.
	Held int
}

// Wake is an event that a plugin waits for.
type Wake struct{ Event, Plugin string }

// Where tells where the waiting pod with this uid is; false where there is none.
func (q *Queue) Where(uid string) (Where, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	rec := q.pods[uid]
	if rec == nil {
		return Where{}, false
	}
	e := rec.entity
	w := Where{Since: e.view.Timestamp, Attempts: e.view.Attempts, Entity: q.viewOf(e), Held: len(e.held)}
	switch e.place {
	case placeInFlight:
		w.Part = PartInFlight
	case placeFailed:
		w.Part, w.Until = PartError, e.until
	case placeBackoff:
		w.Part, w.Until = PartBackoff, e.until
	case placeActive:
		w.Part = PartActive
		for _, other := range q.active.items {
			if other != e && q.before(other, e) {
				w.Ahead++
			}
		}
	default:
		w.Part = e.partNow()
	}
	switch held := e.held[uid]; {
	case held != nil:
		w.Part, w.Gate = PartGated, held.status
	case w.Part == PartGated:
		w.Gate = e.gate
	}
	if w.Gate != nil {
		w.Wakes = q.wakes([]string{w.Gate.Plugin()})
	} else if w.Part == PartUnschedulable {
		w.Wakes = q.wakes(e.refusers())
	}
	return w, true
}

func (q *Queue) viewOf(e *entity) framework.Queued {
	view := e.view
	view.Pods = slices.Clone(e.view.Pods)
	if view.IsGroup() {
		view.Scheduled = q.cfg.Scheduled(view.GroupKey)
	}
	return view
}

// wakes lists the events that the plugins registered, each kind of change by itself.
func (q *Queue) wakes(plugins []string) []Wake {
	seen := map[Wake]struct{}{}
	for _, plugin := range plugins {
		for _, h := range q.cfg.Events[plugin] {
			if h.Event.Resource == framework.AnyResource {
				seen[Wake{"any change", plugin}] = struct{}{}
				continue
			}
			for _, e := range h.Event.Kinds() {
				seen[Wake{e.String(), plugin}] = struct{}{}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b Wake) int {
		return cmp.Or(strings.Compare(a.Plugin, b.Plugin), strings.Compare(a.Event, b.Event))
	})
}

// Waiting are all pods and gangs that wait or are in flight, in the order of the queue.
func (q *Queue) Waiting() []framework.Queued {
	q.mu.Lock()
	defer q.mu.Unlock()
	found := map[*entity]struct{}{}
	for _, rec := range q.pods {
		if len(rec.entity.view.Pods) > 0 || rec.entity.view.IsGroup() {
			found[rec.entity] = struct{}{}
		}
	}
	all := slices.SortedFunc(maps.Keys(found), func(a, b *entity) int {
		switch {
		case q.before(a, b):
			return -1
		case q.before(b, a):
			return 1
		}
		return 0
	})
	out := make([]framework.Queued, len(all))
	for i, e := range all {
		out[i] = q.viewOf(e)
	}
	return out
}

// GroupMembers are the pods of a group that wait, held back ones included, in order.
func (q *Queue) GroupMembers(key framework.GroupKey) []*framework.PodInfo {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []*framework.PodInfo
	for _, rec := range sortedRecords(q.members[key]) {
		out = append(out, rec.pod)
	}
	return out
}
