package registry

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"trireme.dev/services/apiserver/internal/watchcache"
)

// broadcasts of a kind make responses once for all watchers that are sent the same.
type broadcasts struct {
	mu  sync.Mutex
	all map[string]*broadcast // by filter
}

// broadcast is what the watchers with one filter were sent last. Those who are served together ask for the same events one
// after another: the first makes the responses, the others find them. Whoever lags makes its own.
type broadcast struct {
	watchers atomic.Int64 // changed with broadcasts locked

	mu          sync.Mutex
	first, last *watchcache.Event
	n           int
	messages    [][]byte
	told        int64 // the revision that the last message tells
	events      int64 // in messages
	err         error
}

// join returns the broadcast of a filter, until leave is called.
func (b *broadcasts) join(filter string) (c *broadcast, leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c = b.all[filter]; c == nil {
		c = &broadcast{}
		if b.all == nil {
			b.all = map[string]*broadcast{}
		}
		b.all[filter] = c
	}
	c.watchers.Add(1)
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if c.watchers.Add(-1) == 0 {
			delete(b.all, filter)
		}
	}
}

// worth reports whether there is anybody to share with. Who is alone is sent the events' own bytes, without a copy.
func (b *broadcast) worth() bool { return b != nil && b.watchers.Load() > 1 }

// deliver sends the events that the watch's filter lets through, whole revisions that it has not seen.
func (b *broadcast) deliver(ctx context.Context, w *watch, events []*watchcache.Event) error {
	messages, told, n, err := b.encode(ctx, w, events)
	if err != nil {
		return err
	}
	for _, m := range messages {
		// gRPC holds on to the message until it is on the wire, not to the list.
		if err := w.out.send([][]byte{m}); err != nil {
			return &sendError{err}
		}
	}
	if len(messages) > 0 {
		w.out.told = told
		w.resource.counted(ctx, n)
	}
	w.after = events[len(events)-1].Revision
	return nil
}

// encode returns the responses that carry the events, and what the last of them tells.
func (b *broadcast) encode(ctx context.Context, w *watch, events []*watchcache.Event) (messages [][]byte, told, n int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first, last := events[0], events[len(events)-1]
	if b.first == first && b.last == last && b.n == len(events) {
		return b.messages, b.told, b.events, b.err
	}
	b.first, b.last, b.n, b.messages, b.events = first, last, len(events), nil, 0
	once := &watch{resource: w.resource, filter: w.filter, after: first.Revision - 1, out: &responses{send: func(parts [][]byte) error {
		b.messages = append(b.messages, slices.Concat(parts...))
		return nil
	}}}
	if b.events, b.err = once.deliver(ctx, events); b.err == nil {
		b.err = once.out.flush()
	}
	b.told = once.out.told
	return b.messages, b.told, b.events, b.err
}
