package queue

import (
	"context"
	"slices"
	"time"

	"trireme.dev/services/scheduler/framework"
)

// Outcome is how an attempt ended.
type Outcome struct {
	// Scheduled are the uids of the pods that are bound, or as good as bound; the queue forgets them.
	Scheduled []string
	// Rejected is set where pods of the attempt remain because they were refused.
	Rejected bool
	// Plugins that refused, and those of them that wait for someone outside.
	Plugins, Pending []string
	// Failed is set where pods remain because of an unexpected error.
	Failed bool
	// Ended is when the attempt ended, for the histories of the pods that remain; the time of Done where zero.
	Ended time.Time
}

// logged is an event in the log, which except is not to be shown.
type logged struct {
	change *framework.Change
	except *entity
}

// Wait waits until there may be something to Pop, or ctx has ended.
func (q *Queue) Wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-q.ready:
	}
}

// Pop takes out the next entity and returns what it is made of; nil where nothing is ready. Every Pop must be answered by
// exactly one Done. What waits out a rejection is handed out early where nothing else is ready; what waits out an error is
// not.
func (q *Queue) Pop() *framework.Queued {
	q.mu.Lock()
	defer q.mu.Unlock()
	var e *entity
	switch {
	case q.active.Len() > 0:
		e = q.next()
		q.unready(e)
	case q.backoff.Len() > 0:
		e = q.backoff.pop()
	default:
		return nil
	}
	e.view.Attempts++
	if e.view.InitialAttempt.IsZero() {
		e.view.InitialAttempt = q.now()
	}
	if e.view.IsGroup() {
		e.view.Scheduled = q.cfg.Scheduled(e.view.GroupKey)
	}
	popped := e.view
	popped.Pods = slices.Clone(e.view.Pods)
	e.place, e.popped, e.changed, e.forced = placeInFlight, &popped, false, false
	q.inFlight[&popped] = e
	e.marker = q.log.PushBack(e)
	q.leave(e)
	return &popped
}

// Done ends the attempt that Pop began. Pods that remain wait for an event that could turn the rejection, unless one
// came meanwhile; after an error, for time.
func (q *Queue) Done(popped *framework.Queued, o Outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.inFlight[popped]
	if e == nil {
		return
	}
	if o.Rejected && len(o.Plugins)+len(o.Pending) == 0 {
		o.Failed = true // nobody could say what would help, so time must
	}
	q.detach(e)
	e.ended = o.Ended
	defer func() { e.ended = time.Time{} }()
	how, event := q.replay(e, &o)
	for _, uid := range o.Scheduled {
		if rec := q.pods[uid]; rec != nil && rec.entity == e {
			q.drop(uid)
		}
	}
	if e.empty() {
		q.discard(e)
		return
	}
	q.recheck(e)
	switch {
	case o.Failed:
		e.errors++
		e.view.Timestamp = q.now()
		e.rejectedBy, e.pendingBy = nil, nil
		q.setBackoff(e)
		if e.forced {
			e.until = e.view.Timestamp
			q.admit(e, false, eventActivate)
			break
		}
		q.admit(e, true, eventAttemptFailure)
	case o.Rejected:
		e.errors = 0
		e.unschedulable++
		e.view.Timestamp = q.now()
		q.setBackoff(e)
		if e.forced {
			how, event = hintNow, eventActivate
		}
		if e.changed && how == hintSkip {
			how, event = hintAfterBackoff, eventMembers
		}
		if how == hintSkip && q.gateOf(e) == nil {
			q.park(e)
			break
		}
		q.move(e, how, event)
	default:
		// Members that came meanwhile, or that the attempt left out: their turn, with the time that they have waited.
		e.until = time.Time{}
		q.admit(e, false, eventMembers)
	}
	// The group's object may have come, gone or changed its policy while the attempt was in flight.
	e.any(func(p *framework.PodInfo) bool {
		if key, ok := p.Group(); ok {
			q.regroup(key, eventMembers, false)
		}
		return true
	})
}

// replay closes the entity's window on the log and says what the events in it make of the rejection, and which of them
// did.
func (q *Queue) replay(e *entity, o *Outcome) (how hintResult, event string) {
	e.rejectedBy, e.pendingBy = set(o.Plugins), set(o.Pending)
	event = eventAttemptFailure
	if o.Rejected && !o.Failed {
		for el := e.marker.Next(); el != nil && how != hintNow; el = el.Next() {
			if l, ok := el.Value.(logged); ok && l.except != e {
				if h := q.hint(e, l.change); h > how {
					how, event = h, l.change.Event.String()
				}
			}
		}
	}
	q.log.Remove(e.marker)
	e.marker = nil
	for el := q.log.Front(); el != nil; el = q.log.Front() {
		if _, ok := el.Value.(logged); !ok {
			break // someone popped earlier still needs what follows
		}
		q.log.Remove(el)
	}
	return how, event
}

// record keeps an event for those in flight.
func (q *Queue) record(change *framework.Change, except *entity) {
	if len(q.inFlight) > 0 {
		q.log.PushBack(logged{change, except})
	}
}

func set(names []string) map[string]struct{} {
	if len(names) == 0 {
		return nil
	}
	s := make(map[string]struct{}, len(names))
	for _, n := range names {
		s[n] = struct{}{}
	}
	return s
}
