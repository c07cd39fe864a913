// Package watchcache keeps the state of every kind in memory and follows the store with one watch. It answers lists at
// any recent revision from snapshots that are never locked, and fans events out to any number of watchers, each of which
// is offered only what it may want. It holds stored bytes and decodes no objects; what it must know of them, its Indexes
// read. In the chain it stands between registry and storage.
package watchcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"trireme.dev/kit/loop"
	"trireme.dev/kit/telemetry"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
)

const (
	// retryAfter is how long the cache waits when the store does not answer.
	retryAfter = 200 * time.Millisecond
	// loadPage is how many entries are read from the store at a time.
	loadPage = 1000
	// sweepPeriod is how often history is looked at that no event pushes out.
	sweepPeriod = 10 * time.Second
	// checkPeriod is how often the store is asked whether it still is where the cache is, if no list asks.
	checkPeriod = 10 * time.Second
)

var (
	// ErrSlow ends a watcher that does not keep up; it may resume from the last revision it was given.
	ErrSlow = errors.New("watcher does not keep up; resume from the last revision received")
	// ErrInterrupted ends all watchers when the cache itself lost its place in history; they may resume.
	ErrInterrupted = errors.New("watch was interrupted; resume from the last revision received")
	// ErrRewound ends all watchers when the store has gone back in history: a backup was restored under the cache. They
	// cannot resume, since what they have seen did not happen.
	ErrRewound = errors.New("the store has gone back in history: list again")
	// ErrBehind says that the cache has not reached a revision in the time given.
	ErrBehind = errors.New("the cache has not reached the revision")
	// errStopped is what callers get once Run has ended.
	errStopped = fmt.Errorf("watch cache has stopped: %w", storage.ErrUnavailable)
)

// Index reads from an object's bytes the values by which watchers may narrow what they are offered. It is called for
// every event while somebody watches by it, so it must be quick. Bytes that it cannot read have no values.
type Index func(payload []byte, emit func(value string))

// Kind is what the cache must know of a kind.
type Kind struct {
	// Prefix of the kind's keys: /trireme/<group>/<plural>/.
	Prefix string
	// Group and Resource are what Kubernetes calls it.
	Group, Resource string
	// Indexes by name, besides ByNamespace and ByKey, which every kind has.
	Indexes map[string]Index
	// Lookups names those of Indexes by which the present state can be looked up too.
	Lookups []string
}

// Config of a cache.
type Config struct {
	// Store that holds the state.
	Store storage.Store
	// Prefix of all kinds.
	Prefix string
	// Kinds to keep; keys of others are passed over.
	Kinds []Kind
	// Logger of what interrupts the cache.
	Logger *slog.Logger
}

// Cache is the state of all kinds. Create it with New; it is empty, and its callers wait, until Run has loaded it.
type Cache struct {
	store  storage.Store
	prefix string
	logger *slog.Logger
	topics map[string]*topic

	position atomic.Int64 // every event up to here has been handed out; 0 until loaded
	readings chan chan<- reading
	progress chan struct{} // asks the store's watch how far it is
	rewound  chan struct{} // tells follow that the store has gone back
	stopped  chan struct{}

	mu    sync.Mutex
	moved chan struct{} // closed when position moves; nil while nobody waits for it
}

// New returns a cache of the kinds.
func New(cfg Config) *Cache {
	c := &Cache{
		store: cfg.Store, prefix: cfg.Prefix, logger: cfg.Logger, topics: make(map[string]*topic, len(cfg.Kinds)),
		readings: make(chan chan<- reading), progress: make(chan struct{}, 1),
		rewound: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	for _, k := range cfg.Kinds {
		c.topics[k.Prefix] = newTopic(k)
	}
	return c
}

// Run loads the state and follows the store until ctx ends. It must be called once.
func (c *Cache) Run(ctx context.Context) error {
	stop := c.observe()
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { c.serveReadings(ctx) })
	wg.Go(func() {
		// Its only error is a period of nothing.
		_ = loop.Every(ctx, loop.Config{Name: "watchcache", Period: sweepPeriod, Delay: sweepPeriod, Logger: c.logger},
			func(context.Context) error { c.sweep(time.Now()); return nil })
	})
	wg.Go(func() {
		_ = loop.Every(ctx, loop.Config{Name: "watchcache position", Period: checkPeriod, Delay: checkPeriod, Logger: c.logger},
			func(ctx context.Context) error {
				// The answer is looked at where it comes; that there is none, others find out.
				_, _ = c.Latest(ctx)
				return nil
			})
	})
	defer func() {
		close(c.stopped)
		wg.Wait()
		for _, t := range c.topics {
			t.end(ctx.Err())
		}
	}()
	lost, why := true, ErrInterrupted
	for {
		var err error
		if lost {
			err = c.load(ctx, why)
			lost = err != nil
		}
		if err == nil {
			// What it has seen is whole, so after most failures it goes on from there.
			err = c.follow(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrRewound):
			lost, why = true, ErrRewound
		case errors.Is(err, storage.ErrCompacted) && !lost:
			lost, why = true, ErrInterrupted
		}
		c.logger.Warn("watch cache retries", telemetry.KeyError, err)
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

// follow hands out what happens in the store until it fails.
func (c *Cache) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		// A watch from a revision that the store has not reached again brings nothing, and no error either.
		select {
		case <-ctx.Done():
		case <-c.rewound:
			cancel(ErrRewound)
		}
	})
	opts := storage.WatchOptions{After: c.Position(), Progress: c.progress}
	err := c.store.Watch(ctx, c.prefix, opts, func(b storage.Batch) error {
		c.dispatch(b)
		return nil
	})
	cancel(err)
	if errors.Is(context.Cause(ctx), ErrRewound) {
		return ErrRewound
	}
	return err
}

// load reads everything at one revision. Watchers that were there end with why: history is gone between what they have seen
// and where the cache can go on. Until it is done, readers see the state from before.
func (c *Cache) load(ctx context.Context, why error) error {
	trees, unreadable := make(map[*topic]*tree, len(c.topics)), make(map[*topic]map[string]error, len(c.topics))
	for _, t := range c.topics {
		trees[t], unreadable[t] = newTree(), map[string]error{}
	}
	var opts storage.ListOptions
	opts.Limit = loadPage
	for {
		page, err := c.store.List(ctx, c.prefix, opts)
		if err != nil {
			return err
		}
		opts.Revision = page.Revision
		for _, e := range page.Entries {
			t := c.topics[storage.KindPrefix(e.Key)]
			if t == nil {
				continue
			}
			if _, err := envelope.Open(e.Value); err != nil {
				unreadable[t][e.Key] = err
			} else {
				trees[t].ReplaceOrInsert(&Object{Key: e.Key, Revision: e.Revision, stored: e.Value})
			}
		}
		if !page.More {
			break
		}
		opts.From = page.Entries[len(page.Entries)-1].Key + "\x00"
	}
	for t, state := range trees {
		t.reset(state, unreadable[t], opts.Revision, why)
	}
	c.advance(opts.Revision)
	select {
	case <-c.rewound: // told twice
	default:
	}
	return nil
}

// dispatch applies whole revisions, in order.
func (c *Cache) dispatch(b storage.Batch) {
	now := time.Now()
	for events := b.Events; len(events) > 0; {
		n := 1
		for n < len(events) && events[n].Revision == events[0].Revision {
			n++
		}
		c.apply(events[:n], now)
		events = events[n:]
	}
	if b.Revision > c.Position() {
		c.advance(b.Revision)
	}
}

// apply hands the events of one revision to the kinds that they belong to.
func (c *Cache) apply(events []storage.Event, now time.Time) {
	for len(events) > 0 {
		prefix := storage.KindPrefix(events[0].Key)
		same, rest := events, []storage.Event(nil)
		for i := range events {
			if storage.KindPrefix(events[i].Key) != prefix {
				// Rare: a transaction over several kinds. Each kind takes its events whole.
				same, rest = partition(events, prefix)
				break
			}
		}
		if t := c.topics[prefix]; t != nil {
			t.apply(same, now)
		}
		events = rest
	}
}

func partition(events []storage.Event, prefix string) (same, rest []storage.Event) {
	for _, e := range events {
		if storage.KindPrefix(e.Key) == prefix {
			same = append(same, e)
		} else {
			rest = append(rest, e)
		}
	}
	return same, rest
}

func (c *Cache) advance(revision int64) {
	c.position.Store(revision)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
}

func (c *Cache) sweep(now time.Time) {
	for _, t := range c.topics {
		t.sweep(now)
	}
}

// Position returns the revision up to which everything has been handed out; 0 before the cache is loaded.
func (c *Cache) Position() int64 { return c.position.Load() }

// SplitKey returns namespace and name of a key; the namespace of cluster-scoped kinds is empty.
func SplitKey(key string) (namespace, name string) {
	rest := key[len(storage.KindPrefix(key)):]
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[:i], rest[i+1:]
	}
	return "", rest
}

// Watch returns a watcher of the kind with the prefix, for events after a revision. Where that lies further back than
// what the cache remembers, catchUp is called first with what the store remembers, revision by revision, whatever the
// scope. The error is storage.ErrCompacted where not even the store does, and storage.ErrFutureRevision where the
// revision has not happened.
func (c *Cache) Watch(ctx context.Context, prefix string, scope Scope, after int64, catchUp func([]*Event) error) (*Watcher, error) {
	t := c.topics[prefix]
	if t == nil {
		return nil, fmt.Errorf("watch %s: no such kind", prefix)
	}
	if err := c.Wait(ctx, 1, math.MaxInt64); err != nil {
		return nil, err
	}
	if err := c.check(ctx, prefix, after); err != nil {
		return nil, err
	}
	w := t.attach(c, scope, after)
	if w != nil {
		return w, nil
	}
	done := errors.New("caught up")
	err := c.store.Watch(ctx, prefix, storage.WatchOptions{After: after, Previous: true}, func(b storage.Batch) error {
		for events := b.Events; len(events) > 0; {
			n := 1
			for n < len(events) && events[n].Revision == events[0].Revision {
				n++
			}
			if err := catchUp(history(events[:n])); err != nil {
				return err
			}
			events = events[n:]
		}
		if w = t.attach(c, scope, b.Revision); w != nil {
			return done
		}
		return nil
	})
	if errors.Is(err, done) {
		return w, nil
	}
	return nil, err
}

// check refuses a watch from the future. The cache may lag behind the store, so the store is asked in doubt.
func (c *Cache) check(ctx context.Context, prefix string, after int64) error {
	if after <= c.Position() {
		return nil
	}
	revision, err := c.Latest(ctx)
	if err != nil {
		return err
	}
	if after > revision {
		return fmt.Errorf("watch %s after %d, store is at %d: %w", prefix, after, revision, storage.ErrFutureRevision)
	}
	return nil
}
