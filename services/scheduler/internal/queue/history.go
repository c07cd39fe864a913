package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"

	"trireme.dev/client/metrics"
	"trireme.dev/client/tracing"
	"trireme.dev/services/scheduler/framework"
)

// Parts of the queue, as Kubernetes' metrics name them.
const (
	PartActive        = "active"
	PartBackoff       = "backoff"
	PartUnschedulable = "unschedulable"
	PartGated         = "gated"
)

// What moves pods that is no framework.ClusterEvent, as Kubernetes' metrics name it.
const (
	eventPodAdd          = "PodAdd"
	eventPodDelete       = "PodDelete"
	eventAttemptFailure  = "ScheduleAttemptFailure"
	eventBackoffComplete = "BackoffComplete"
	eventTimeout         = "UnschedulableTimeout"
	// eventMembers: members of the gang came, or its group changed, while it was tried.
	eventMembers = "GroupChange"
	eventPop     = "Pop"
)

// Stay is the time that a pod spent in one part of the queue.
type Stay struct {
	Part     string
	From, To time.Time
	// Reason for its being there, Event that ended it.
	Reason, Event string
}

// History is what a pod went through between its last attempt and this one.
type History struct {
	Pod *framework.PodInfo
	// Seen is when the queue first heard of it; zero where an earlier attempt has told already.
	Seen  time.Time
	Stays []Stay
}

// history is the part of it that is in the making. It is kept for pods whose traces are recorded only, seen excepted.
type history struct {
	seen  time.Time
	told  bool
	stay  Stay // without a part while the pod is in flight
	stays []Stay
}

// enter begins a stay and ends the one before; nothing happens where the pod is in that part already.
func (h *history) enter(part, reason, event string, now time.Time) {
	if h.stay.Part == part {
		return
	}
	if now.Before(h.stay.From) {
		now = h.stay.From // it came after the attempt that is being ended had
	}
	if h.stay.Part != "" {
		h.stay.To, h.stay.Event = now, event
		h.stays = append(h.stays, h.stay)
	}
	h.stay = Stay{Part: part, From: now, Reason: reason}
}

// Histories of the pods of an attempt whose traces are recorded. It gives each stay once.
func (q *Queue) Histories(popped *framework.Queued) []History {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.inFlight[popped]
	if e == nil || len(e.traced) == 0 {
		return nil
	}
	var out []History
	for _, rec := range e.traced {
		if rec.stay.Part != "" {
			continue // held back, or come since
		}
		h := History{Pod: rec.pod, Stays: rec.stays}
		if !rec.told {
			h.Seen = rec.seen
		}
		rec.told, rec.stays = true, nil
		out = append(out, h)
	}
	return out
}

// trace begins the history of a pod that came into its entity.
func (q *Queue) trace(rec *record, event string) {
	e := rec.entity
	if e.part != "" {
		q.incoming.add(e.part, event, 1) // else it counts with its entity
	}
	if !tracing.Sampled(rec.pod.Pod.GetMetadata()) {
		return
	}
	e.traced = append(e.traced, rec)
	if e.place == placeInFlight {
		rec.enter(PartActive, event, event, q.now()) // it waits for the attempt to end
	}
}

func (e *entity) untrace(rec *record) {
	if i := slices.Index(e.traced, rec); i >= 0 {
		e.traced = slices.Delete(e.traced, i, i+1)
	}
}

// settle notes that the entity is where it is now, and that event brought it there.
func (q *Queue) settle(e *entity, event string) {
	part := e.partNow()
	if part != e.part {
		q.incoming.add(part, event, len(e.view.Pods)+len(e.held))
		e.part = part
	}
	if len(e.traced) == 0 {
		return
	}
	now, reason := q.now(), ""
	if !e.ended.IsZero() {
		now = e.ended
	}
	for _, rec := range e.traced {
		if h := e.held[rec.pod.UID()]; h != nil {
			rec.enter(PartGated, h.status.Message(), event, now)
			continue
		}
		if rec.stay.Part != part && reason == "" {
			reason = e.reason(part, event)
		}
		rec.enter(part, reason, event, now)
	}
}

// leave notes that the entity is handed out.
func (q *Queue) leave(e *entity) {
	e.part = ""
	if len(e.traced) == 0 {
		return
	}
	now := q.now()
	for _, rec := range e.traced {
		if e.held[rec.pod.UID()] == nil {
			rec.enter("", "", eventPop, now)
		}
	}
}

func (e *entity) partNow() string {
	switch {
	case e.place == placeActive:
		return PartActive
	case e.place == placeBackoff || e.place == placeFailed:
		return PartBackoff
	case e.gate != nil:
		return PartGated
	}
	return PartUnschedulable
}

func (e *entity) reason(part, event string) string {
	switch part {
	case PartGated:
		return e.gate.Message()
	case PartUnschedulable:
		return "rejected by " + strings.Join(e.refusers(), ", ")
	case PartBackoff:
		return fmt.Sprintf("after attempt %d", e.view.Attempts)
	}
	return event
}

func (e *entity) refusers() []string { return slices.Sorted(maps.Keys(e.rejectedBy)) }

// Pending counts the pods that wait, by part.
func (q *Queue) Pending() map[string]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := map[string]int{PartActive: 0, PartBackoff: 0, PartUnschedulable: 0, PartGated: 0}
	count := func(e *entity) {
		out[e.partNow()] += len(e.view.Pods)
		out[PartGated] += len(e.held)
	}
	for _, h := range []*entityHeap{&q.active, &q.backoff, &q.failed} {
		for _, e := range h.items {
			count(e)
		}
	}
	for e := range q.pool {
		count(e)
	}
	return out
}

// Refusal is by whom a pod was refused: a plugin of the profile that the pod names.
type Refusal struct{ Plugin, Profile string }

// Unschedulable counts the pods that wait for something to change, by who refused them.
func (q *Queue) Unschedulable() map[Refusal]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := map[Refusal]int{}
	count := func(plugin string, pod *framework.PodInfo) {
		out[Refusal{plugin, pod.Pod.GetSpec().GetSchedulerName()}]++
	}
	for e := range q.pool {
		plugins := e.refusers()
		if e.gate != nil {
			plugins = []string{e.gate.Plugin()}
		}
		for _, pod := range e.view.Pods {
			for _, plugin := range plugins {
				count(plugin, pod)
			}
		}
		for _, h := range e.held {
			count(h.status.Plugin(), h.pod)
		}
	}
	return out
}

// incoming counts the pods that come into a part of the queue. The queue's lock guards it.
type incoming struct {
	counter metric.Int64Counter
	labels  map[[2]string]metric.MeasurementOption // by part and event
}

func newIncoming() incoming {
	return incoming{
		counter: metrics.Counter("scheduler_queue_incoming_pods_total", "Pods that came into a part of the scheduling queue, by the event that brought them."),
		labels:  map[[2]string]metric.MeasurementOption{},
	}
}

func (i *incoming) add(part, event string, pods int) {
	key := [2]string{part, event}
	labels, ok := i.labels[key]
	if !ok {
		labels = metrics.Labels("queue", part, "event", event)
		i.labels[key] = labels
	}
	i.counter.Add(context.Background(), int64(pods), labels)
}
