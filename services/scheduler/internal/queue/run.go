package queue

import (
	"context"
	"time"

	recordv1 "trireme.dev/proto/gen/trireme/record/v1"
)

// Run lets time pass in the queue: it ends backoffs, flushes what has been in the pool for too long, and reports what is
// held back. It sleeps until the next of these is due.
func (q *Queue) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-q.kick:
		case <-timer.C:
		}
		timer.Reset(q.Tick())
	}
}

// Tick does what is due, in one step, and says after which time to come again.
func (q *Queue) Tick() time.Duration {
	q.cfg.Steps.Begin()
	gated, next, due := q.tick()
	pause := next.Sub(q.now())
	if due {
		q.cfg.Steps.End(&recordv1.Entry{Step: &recordv1.Entry_Tick{Tick: &recordv1.Tick{}}})
	} else {
		q.cfg.Steps.End(nil)
	}
	for _, g := range gated {
		q.cfg.OnGated(g)
	}
	return pause
}

// now is the time of the step under way.
func (q *Queue) now() time.Time { return q.cfg.Steps.Now() }

// tick does what is due and says when to come again, and whether anything was due.
func (q *Queue) tick() (gated []Gated, next time.Time, due bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	next = now.Add(time.Hour)
	for _, h := range []*entityHeap{&q.backoff, &q.failed} {
		for h.Len() > 0 && !now.Before(h.items[0].until) {
			due = true
			e := h.pop()
			e.place = placeNone
			q.recheck(e)
			q.admit(e, false, eventBackoffComplete)
		}
		if h.Len() > 0 {
			next = earlier(next, h.items[0].until)
		}
	}
	if !q.flushAt.IsZero() && !now.Before(q.flushAt) {
		due = true
		q.flushAt = time.Time{}
		for e := range q.pool {
			switch {
			case e.gate != nil:
			case now.Before(e.view.Timestamp.Add(maxUnschedulable)):
				q.flushLater(e)
			default:
				q.move(e, hintAfterBackoff, eventTimeout)
			}
		}
	}
	if !q.flushAt.IsZero() {
		next = earlier(next, q.flushAt)
	}
	for e, at := range q.unsaid {
		if now.Before(at) {
			next = earlier(next, at)
			continue
		}
		due = true
		delete(q.unsaid, e)
		g := Gated{GroupKey: e.view.GroupKey, Group: e.view.Group, Status: e.gate}
		for _, p := range e.gatedPods() {
			if p.Status != nil {
				g.Pods = append(g.Pods, p)
			}
		}
		gated = append(gated, g)
	}
	return gated, next, due
}

// flushLater has an entity of the pool be looked at when it has been there for too long.
func (q *Queue) flushLater(e *entity) {
	due := down(e.view.Timestamp.Add(maxUnschedulable), flushPeriod).Add(flushPeriod)
	if q.flushAt.IsZero() || due.Before(q.flushAt) {
		q.flushAt = due
		q.nudge()
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
