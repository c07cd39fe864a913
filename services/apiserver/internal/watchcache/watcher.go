package watchcache

import (
	"context"
	"math"
	"sync"
	"time"
)

const (
	// maxPending is how many events may wait for a watcher. It is four times the largest transaction, so no single one
	// ends a watcher.
	maxPending = 20000
	// maxPendingBytes bounds the objects that wait for a watcher, unless they are of one revision.
	maxPendingBytes = 64 << 20
	// A watcher is served at once as long as that happens seldom: atOnce times in each window. Beyond, it waits for the
	// next pulse of its kind, so that under load a response carries many events, and as long as a pulse brings it as many.
	window = 50 * time.Millisecond
	atOnce = 5
	// Pulses come at least gatherLeast apart. Messages cost more than the events in them, so with more watchers of
	// everything they come further apart, gatherEach for each, up to gatherMost.
	gatherLeast = 20 * time.Millisecond
	gatherEach  = time.Millisecond
	gatherMost  = 100 * time.Millisecond
	// maxBacklog is how many events of the backlog Next returns at once, unless one revision has more.
	maxBacklog = 1000
	// maxSpare is how large a list of events is kept for the next call of Next.
	maxSpare = 4096
)

// Watcher receives the events of one kind after one revision. It must be closed. Next is for one goroutine.
type Watcher struct {
	cache *Cache
	topic *topic
	scope Scope
	after int64

	slot   int      // in the list of its scope; the topic's
	staged []*Event // of the revision at hand; the topic's

	signal chan struct{}

	mu      sync.Mutex
	pending []*Event
	bytes   int
	err     error

	backlog []*batch // history since after, as it was when the watcher came, whatever the scope

	spare  []*Event  // the list that Next returned last
	since  time.Time // begin of the window
	served int       // in the window
}

// push adds events of one revision, all that the watcher will get of it. The topic is locked.
func (w *Watcher) push(revision int64, events []*Event) {
	// The cache may not have reached the watcher's revision when it came.
	if revision <= w.after || len(events) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	size := 0
	for _, e := range events {
		size += e.size()
	}
	if len(w.pending) > 0 && (len(w.pending)+len(events) > maxPending || w.bytes+size > maxPendingBytes) {
		w.topic.counts.terminated++
		w.failLocked(ErrSlow)
		return
	}
	w.pending = append(w.pending, events...)
	w.bytes += size
	w.topic.counts.dispatched += int64(len(events))
	w.wake()
}

func (w *Watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failLocked(err)
}

func (w *Watcher) failLocked(err error) {
	if w.err == nil {
		w.err = err
		w.pending, w.bytes = nil, 0
		w.wake()
	}
}

func (w *Watcher) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// Next returns what happened since the last call, whole revisions in order, and the revision up to which that is
// everything. It blocks until something has happened, ctx ends, or bookmark delivers: then it may return no events. The
// list is valid until the next call.
func (w *Watcher) Next(ctx context.Context, bookmark <-chan time.Time) ([]*Event, int64, error) {
	clear(w.spare)
	if len(w.backlog) > 0 {
		events := w.spare[:0]
		var revision int64
		for len(w.backlog) > 0 && len(events) < maxBacklog {
			events = append(events, w.backlog[0].events...)
			revision = w.backlog[0].revision
			w.backlog = w.backlog[1:]
		}
		w.spare = events
		return events, revision, nil
	}
	for {
		asked := false
		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-w.signal:
		case <-bookmark:
			asked = true
		}
		until := int64(math.MaxInt64)
		if !asked && w.busy(time.Now()) {
			p := w.topic.nextPulse()
			select {
			case <-ctx.Done():
				return nil, 0, ctx.Err()
			case <-p.done:
				until = p.until
			}
		}
		// Before what waits is taken: all events up to there have been pushed by then.
		position := min(w.cache.Position(), until)
		events, err := w.take(until)
		if err != nil {
			return nil, 0, err
		}
		if n := len(events); n > 0 {
			w.count(n, until != math.MaxInt64)
			return events, max(position, events[n-1].Revision), nil
		}
		if asked {
			return nil, position, nil
		}
	}
}

// take returns what waits of the revisions until one, and leaves the rest.
func (w *Watcher) take(until int64) ([]*Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	events := w.pending
	n := len(events)
	for n > 0 && events[n-1].Revision > until {
		n--
	}
	w.pending = append(w.spare[:0], events[n:]...)
	w.bytes = 0
	for _, e := range w.pending {
		w.bytes += e.size()
	}
	if len(w.pending) > 0 {
		w.wake()
	}
	w.spare = events
	if cap(events) > maxSpare {
		w.spare = nil
	}
	return events[:n], nil
}

// busy reports whether the watcher has been served often of late.
func (w *Watcher) busy(now time.Time) bool {
	if now.Sub(w.since) > window {
		w.since, w.served = now, 0
	}
	return w.served >= atOnce
}

// count notes that the watcher was served so many events, at a pulse or at once.
func (w *Watcher) count(events int, pulse bool) {
	w.served++
	if pulse && events >= atOnce {
		w.since, w.served = time.Now(), atOnce // still busy
	}
}

// pulse is a moment up to which all busy watchers of a kind are served. Those with the same filter so are sent the same.
type pulse struct {
	done  chan struct{}
	until int64 // revision; set when done is closed
}

// nextPulse returns the pulse to come, of which there is one at a time and none while nobody waits for it.
func (t *topic) nextPulse() *pulse {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pulse == nil {
		p := &pulse{done: make(chan struct{})}
		t.pulse = p
		gather := min(max(gatherLeast, time.Duration(len(t.offers.all))*gatherEach), gatherMost)
		time.AfterFunc(gather, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			p.until, t.pulse = t.last, nil
			close(p.done)
		})
	}
	return t.pulse
}

// Close takes the watcher off the cache.
func (w *Watcher) Close() {
	w.topic.mu.Lock()
	defer w.topic.mu.Unlock()
	w.topic.offers.remove(w)
}
