package watchcache

import (
	"context"
	"sync"
	"time"
)

const (
	// maxPending is how many events may wait for a watcher. It is four times the largest transaction, so no single one
	// ends a watcher.
	maxPending = 20000
	// maxPendingBytes bounds the objects that wait for a watcher, unless they are of one revision.
	maxPendingBytes = 64 << 20
	// A watcher is served at once as long as that happens seldom: atOnce times in each window. Beyond, it gathers for a
	// while first, so that under load a response carries many events.
	window = 50 * time.Millisecond
	atOnce = 5
	gather = 20 * time.Millisecond
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
		if e.Now != nil {
			size += len(e.Now.stored)
		}
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
		if !asked && w.busy(time.Now()) {
			timer := time.NewTimer(gather)
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil, 0, ctx.Err()
			case <-timer.C:
			}
		}
		// Before what waits is taken: all events up to there have been pushed by then.
		position := w.cache.Position()
		w.mu.Lock()
		events, err := w.pending, w.err
		w.pending, w.bytes = w.spare[:0], 0
		w.mu.Unlock()
		w.spare = events
		if cap(events) > maxSpare {
			w.spare = nil
		}
		if err != nil {
			return nil, 0, err
		}
		if n := len(events); n > 0 {
			w.served++
			return events, max(position, events[n-1].Revision), nil
		}
		if asked {
			return nil, position, nil
		}
	}
}

// busy reports whether the watcher has been served often of late.
func (w *Watcher) busy(now time.Time) bool {
	if now.Sub(w.since) > window {
		w.since, w.served = now, 0
	}
	return w.served >= atOnce
}

// Close takes the watcher off the cache.
func (w *Watcher) Close() {
	w.topic.mu.Lock()
	defer w.topic.mu.Unlock()
	w.topic.offers.remove(w)
}
