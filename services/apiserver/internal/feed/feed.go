// Package feed follows the store with one watch and fans its events out to any number of watchers, each of which sees
// one kind from the revision it names. It keeps the last events of each kind, so that who lists and then watches, or
// resumes, seldom costs the store anything; older history comes from the store. It decodes no objects. In the chain it
// stands between registry and storage.
package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"trireme.dev/kit/telemetry"
	"trireme.dev/services/apiserver/internal/storage"
)

const (
	// ringBytes is how much history a kind keeps: enough for the gap between a list and the watch after it.
	ringBytes = 1 << 20
	// maxPending is how many events may wait for a watcher. The largest transaction, a gang of 5,000 pods, must fit.
	maxPending = 20000
	// retryAfter is how long the feed waits when the store does not answer.
	retryAfter = 200 * time.Millisecond
)

// ErrSlow ends a watcher that does not keep up; it may resume from the last revision it was given.
var ErrSlow = errors.New("watcher does not keep up; resume from the last revision received")

// ErrInterrupted ends all watchers when the feed itself lost its place in history; they may resume.
var ErrInterrupted = errors.New("watch was interrupted; resume from the last revision received")

// Feed is the fan-out. Create it with New; nothing moves until Run.
type Feed struct {
	store  storage.Store
	prefix string
	logger *slog.Logger

	mu       sync.Mutex
	ready    chan struct{} // closed once topics have a position
	position int64         // every event up to here has been handed out
	topics   map[string]*topic
}

// topic is one kind.
type topic struct {
	kind     Kind
	ring     []*Batch
	bytes    int
	floor    int64 // every event after floor is in ring
	watchers map[*Watcher]struct{}
	counts   counts
}

// Batch is all events of one kind at one revision.
type Batch struct {
	Revision int64
	Events   []*Event
	bytes    int
}

// Watcher receives the events of one kind after one revision. It must be closed.
type Watcher struct {
	feed    *Feed
	topic   *topic
	signal  chan struct{}
	pending []*Batch
	events  int
	err     error
}

// Kind is what events are told apart by: the prefix of its keys, and what Kubernetes calls it.
type Kind struct{ Prefix, Group, Resource string }

// New returns a feed of the keys with the prefix, for the kinds given.
func New(store storage.Store, prefix string, kinds []Kind, logger *slog.Logger) *Feed {
	f := &Feed{
		store: store, prefix: prefix, logger: logger,
		ready: make(chan struct{}), topics: make(map[string]*topic, len(kinds)),
	}
	for _, k := range kinds {
		f.topics[k.Prefix] = &topic{kind: k, watchers: map[*Watcher]struct{}{}}
	}
	return f
}

// Run follows the store until ctx ends.
func (f *Feed) Run(ctx context.Context) error {
	stop := f.observe()
	defer stop()
	for {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			f.end(ctx.Err())
			return nil
		}
		if errors.Is(err, storage.ErrCompacted) {
			f.logger.Warn("feed lost its place in history", telemetry.KeyError, err)
			f.restart()
		} else {
			f.logger.Warn("feed retries", telemetry.KeyError, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

func (f *Feed) follow(ctx context.Context) error {
	f.mu.Lock()
	after := f.position
	f.mu.Unlock()
	if after == 0 {
		revision, err := f.store.Revision(ctx)
		if err != nil {
			return err
		}
		f.begin(revision)
		after = revision
	}
	return f.store.Watch(ctx, f.prefix, after, func(b storage.Batch) error {
		f.dispatch(b)
		return nil
	})
}

func (f *Feed) begin(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.position = revision
	for _, t := range f.topics {
		t.floor = revision
	}
	close(f.ready)
}

// restart forgets everything: history is gone between where the feed stood and where it can go on.
func (f *Feed) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.position = 0
	f.ready = make(chan struct{})
	for _, t := range f.topics {
		t.ring, t.bytes = nil, 0
	}
	f.endLocked(ErrInterrupted)
}

func (f *Feed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endLocked(err)
}

func (f *Feed) endLocked(err error) {
	for _, t := range f.topics {
		for w := range t.watchers {
			w.fail(err)
		}
	}
}

// dispatch hands the events of whole revisions to the kinds they belong to.
func (f *Feed) dispatch(b storage.Batch) {
	type group struct {
		topic *topic
		batch *Batch
	}
	var groups []group
	for i := range b.Events {
		e := &b.Events[i]
		t := f.topics[storage.KindPrefix(e.Key)]
		if t == nil {
			continue
		}
		// Events come ordered by revision, so a group can only be the topic's last.
		var g *Batch
		for j := len(groups) - 1; j >= 0 && groups[j].batch.Revision == e.Revision; j-- {
			if groups[j].topic == t {
				g = groups[j].batch
				break
			}
		}
		if g == nil {
			g = &Batch{Revision: e.Revision}
			groups = append(groups, group{t, g})
		}
		g.Events = append(g.Events, newEvent(e))
		g.bytes += len(e.Value) + len(e.Previous) + 256
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range groups {
		// After a retry the store repeats nothing, but a repeated revision would be a doubled event: never hand one out.
		if g.batch.Revision <= f.position {
			continue
		}
		g.topic.add(g.batch)
	}
	f.position = max(f.position, b.Revision)
}

func (t *topic) add(b *Batch) {
	t.counts.received += int64(len(b.Events))
	t.ring = append(t.ring, b)
	t.bytes += b.bytes
	for len(t.ring) > 0 && t.bytes > ringBytes {
		t.bytes -= t.ring[0].bytes
		t.floor = t.ring[0].Revision
		t.ring[0] = nil
		t.ring = t.ring[1:]
	}
	for w := range t.watchers {
		w.push(b)
	}
}

func (w *Watcher) push(b *Batch) {
	if w.err != nil {
		return
	}
	if w.events > 0 && w.events+len(b.Events) > maxPending {
		w.topic.counts.terminated++
		w.fail(ErrSlow)
		return
	}
	w.pending = append(w.pending, b)
	w.events += len(b.Events)
	w.topic.counts.dispatched += int64(len(b.Events))
	w.wake()
}

func (w *Watcher) fail(err error) {
	if w.err == nil {
		w.err = err
		w.pending, w.events = nil, 0
		w.wake()
	}
}

func (w *Watcher) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// Watch returns a watcher of the kind with the prefix, for events after a revision. Where that lies further back than
// what the feed remembers, catchUp is called first with what the store remembers, revision by revision. The error is
// storage.ErrCompacted where not even the store does, and storage.ErrFutureRevision where the revision has not happened.
func (f *Feed) Watch(ctx context.Context, prefix string, after int64, catchUp func(*Batch) error) (*Watcher, error) {
	if err := f.check(ctx, prefix, after); err != nil {
		return nil, err
	}
	w, err := f.attach(ctx, prefix, after)
	if w != nil || err != nil {
		return w, err
	}
	done := errors.New("caught up")
	err = f.store.Watch(ctx, prefix, after, func(b storage.Batch) error {
		for _, batch := range byRevision(b) {
			if err := catchUp(batch); err != nil {
				return err
			}
		}
		var err error
		if w, err = f.attach(ctx, prefix, b.Revision); err != nil {
			return err
		}
		if w != nil {
			return done
		}
		return nil
	})
	if errors.Is(err, done) {
		return w, nil
	}
	return nil, err
}

// check refuses a watch from the future. The feed may lag behind the store, so the store is asked in doubt.
func (f *Feed) check(ctx context.Context, prefix string, after int64) error {
	if f.topics[prefix] == nil {
		return fmt.Errorf("watch %s: no such kind", prefix)
	}
	f.mu.Lock()
	position := f.position
	f.mu.Unlock()
	if after <= position {
		return nil
	}
	revision, err := f.store.Revision(ctx)
	if err != nil {
		return err
	}
	if after > revision {
		return fmt.Errorf("watch %s after %d, store is at %d: %w", prefix, after, revision, storage.ErrFutureRevision)
	}
	return nil
}

// attach adds a watcher if the feed remembers everything since the revision, and returns nil if it does not.
func (f *Feed) attach(ctx context.Context, prefix string, after int64) (*Watcher, error) {
	for {
		f.mu.Lock()
		if f.position != 0 {
			break
		}
		ready := f.ready
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ready:
		}
	}
	defer f.mu.Unlock()
	t := f.topics[prefix]
	if after < t.floor {
		return nil, nil
	}
	w := &Watcher{feed: f, topic: t, signal: make(chan struct{}, 1)}
	first := len(t.ring)
	for first > 0 && t.ring[first-1].Revision > after {
		first--
	}
	for _, b := range t.ring[first:] {
		w.pending = append(w.pending, b)
		w.events += len(b.Events)
	}
	// The feed may not have reached the revision yet; what it has still to hand out up to there is not wanted.
	w.wake()
	t.watchers[w] = struct{}{}
	return w, nil
}

func byRevision(b storage.Batch) []*Batch {
	var out []*Batch
	for i := range b.Events {
		e := &b.Events[i]
		if n := len(out); n == 0 || out[n-1].Revision != e.Revision {
			out = append(out, &Batch{Revision: e.Revision})
		}
		last := out[len(out)-1]
		last.Events = append(last.Events, newEvent(e))
	}
	return out
}

// Next returns what happened since the last call, and the revision up to which that is everything. It blocks until
// something has happened, ctx ends, or bookmark delivers: then it may return no batches.
func (w *Watcher) Next(ctx context.Context, bookmark <-chan time.Time) ([]*Batch, int64, error) {
	for {
		asked := false
		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-w.signal:
		case <-bookmark:
			asked = true
		}
		w.feed.mu.Lock()
		batches, position, err := w.pending, w.feed.position, w.err
		w.pending, w.events = nil, 0
		w.feed.mu.Unlock()
		if err != nil {
			return nil, 0, err
		}
		if len(batches) > 0 || asked {
			return batches, position, nil
		}
	}
}

// Close takes the watcher off the feed.
func (w *Watcher) Close() {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	delete(w.topic.watchers, w)
}

// Position returns the revision up to which the feed has handed out everything; 0 before it begins.
func (f *Feed) Position() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.position
}
