package watchcache

import (
	"slices"
	"sync"
	"time"

	"github.com/google/btree"

	"trireme.dev/services/apiserver/internal/storage"
)

const (
	// degree of the trees. A write after a snapshot copies a node on each level, so nodes are small.
	degree = 16
	// ringFloor is how much history a kind keeps however old it is: enough for the gap between a list and the watch
	// after it.
	ringFloor = 1 << 20
	// ringCeiling bounds history however young it is.
	ringCeiling = 16 << 20
	// young history is kept up to the ceiling: whoever lists, pages or reconnects is back within that time.
	young = 75 * time.Second
	// eventOverhead is what an event takes besides the bytes of superseded objects.
	eventOverhead = 320
	// maxKept is how many snapshots a kind keeps for pages of lists.
	maxKept = 8
)

type tree = btree.BTreeG[*Object]

func newTree() *tree {
	return btree.NewG(degree, func(a, b *Object) bool { return a.Key < b.Key })
}

// topic is one kind.
type topic struct {
	prefix          string
	group, resource string // for metrics
	indexes         map[string]Index
	lookups         map[string]*lookup // read with mu

	mu       sync.Mutex
	state    *tree
	last     int64     // revision of the last event in state, or that it was loaded at
	snapshot *Snapshot // of state; nil after a change
	kept     []kept    // snapshots of earlier revisions, oldest first

	ring  []*batch // watchers read it where it lies: an element is never written twice
	dead  int      // elements in front of ring that are no longer part of it
	bytes int      // of ring
	floor int64    // every event after floor is in ring

	unreadable map[string]error // values that are no objects, by key; they count as absent

	offers  offers
	touched []*Watcher // who has events staged
	pulse   *pulse     // the next one; nil while nobody waits for it
	counts  counts
}

// batch is all events of the kind at one revision.
type batch struct {
	revision int64
	at       time.Time
	events   []*Event
	bytes    int
}

type kept struct {
	snapshot *Snapshot
	at       time.Time
}

func newTopic(k Kind) *topic {
	return &topic{prefix: k.Prefix, group: k.Group, resource: k.Resource, indexes: k.Indexes, lookups: newLookups(k), state: newTree(), offers: newOffers()}
}

// reset puts in a state that was loaded anew; why ends the watchers.
func (t *topic) reset(state *tree, unreadable map[string]error, revision int64, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unreadable = unreadable
	t.state, t.last, t.snapshot, t.kept = state, revision, nil, nil
	t.ring, t.dead, t.bytes, t.floor = nil, 0, 0, revision
	for _, l := range t.lookups {
		l.rebuild(state)
	}
	t.offers.each(func(w *Watcher) { w.fail(why) })
}

func (t *topic) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.offers.each(func(w *Watcher) { w.fail(err) })
}

// apply takes all events of the kind at one revision.
func (t *topic) apply(events []storage.Event, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// The store repeats nothing, but a repeated revision would be a doubled event: never hand one out.
	if events[0].Revision <= t.last {
		return
	}
	b := &batch{revision: events[0].Revision, at: now, events: make([]*Event, 0, len(events))}
	for i := range events {
		e := &Event{Revision: b.revision}
		if value := t.sift(events[i].Key, events[i].Value); value != nil {
			e.Now = &Object{Key: events[i].Key, Revision: b.revision, stored: value}
			e.Before, _ = t.state.ReplaceOrInsert(e.Now)
		} else {
			// Deleting what is not there is no event.
			if e.Before, _ = t.state.Delete(&Object{Key: events[i].Key}); e.Before == nil {
				continue
			}
		}
		b.events = append(b.events, e)
		for _, l := range t.lookups {
			l.change(e.Before, e.Now)
		}
		b.bytes += eventOverhead
		if e.Before != nil {
			b.bytes += len(e.Before.stored)
		}
	}
	t.counts.received += int64(len(b.events))
	t.last, t.snapshot = b.revision, nil
	t.ring = append(t.ring, b)
	t.bytes += b.bytes
	t.evict(now)
	t.offer(b)
}

// evict drops whole revisions from the old end of history.
func (t *topic) evict(now time.Time) {
	n := 0
	for n < len(t.ring) && (t.bytes > ringCeiling || t.bytes > ringFloor && now.Sub(t.ring[n].at) > young) {
		t.bytes -= t.ring[n].bytes
		t.floor = t.ring[n].revision
		n++
	}
	t.ring = t.ring[n:]
	if t.dead += n; t.dead > 64+len(t.ring)/4 {
		t.ring, t.dead = slices.Clone(t.ring), 0
	}
}

func (t *topic) sweep(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.evict(now)
	for len(t.kept) > 0 && now.Sub(t.kept[0].at) > young {
		t.forget()
	}
}

func (t *topic) forget() {
	t.kept[0] = kept{}
	t.kept = t.kept[1:]
}

// offer stages each event with those who may want it, then hands every one of them what it got, whole.
func (t *topic) offer(b *batch) {
	for _, e := range b.events {
		t.offers.find(t, e, func(w *Watcher) {
			if len(w.staged) == 0 {
				t.touched = append(t.touched, w)
			}
			w.staged = append(w.staged, e)
		})
	}
	for i, w := range t.touched {
		w.push(b.revision, w.staged)
		w.staged = w.staged[:0]
		t.touched[i] = nil
	}
	t.touched = t.touched[:0]
	for _, w := range t.offers.all {
		w.push(b.revision, b.events)
	}
}

// attach adds a watcher if the cache remembers everything since the revision, and returns nil if it does not.
func (t *topic) attach(c *Cache, scope Scope, after int64) *Watcher {
	t.mu.Lock()
	defer t.mu.Unlock()
	if after < t.floor {
		return nil
	}
	w := &Watcher{cache: c, topic: t, scope: scope, after: after, signal: make(chan struct{}, 1)}
	first := len(t.ring)
	for first > 0 && t.ring[first-1].revision > after {
		first--
	}
	w.backlog = t.ring[first:len(t.ring):len(t.ring)]
	w.wake()
	t.offers.add(w)
	return w
}
