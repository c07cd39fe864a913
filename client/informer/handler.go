package informer

import (
	"context"
	"sync"

	"trireme.dev/client"
)

type notificationKind int

const (
	added notificationKind = iota
	updated
	deleted
	// syncedMark stands behind the last initial add.
	syncedMark
	// heardMark stands behind what someone waits for the handler to hear.
	heardMark
)

// notification is one change as handlers hear of it.
type notification[T client.Object] struct {
	kind          notificationKind
	before, after T
	initial       bool
	heard         chan struct{} // of a heardMark
}

// buffer holds what a handler has not heard yet. It is unbounded: a bound would let one slow handler stop the store,
// and dropping would break level-triggered readers that rely on hearing of each object's last state.
type buffer[T client.Object] struct {
	mu      sync.Mutex
	pending [][]notification[T]
	// filled holds a token while something is pending.
	filled chan struct{}
}

func newBuffer[T client.Object]() *buffer[T] {
	return &buffer[T]{filled: make(chan struct{}, 1)}
}

// push appends a batch, which all handlers share.
func (b *buffer[T]) push(batch []notification[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = append(b.pending, batch)
	select {
	case b.filled <- struct{}{}:
	default:
	}
}

// drain takes all that is pending.
func (b *buffer[T]) drain() [][]notification[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	batches := b.pending
	b.pending = nil
	return batches
}

// deliver calls the handler until ctx ends.
func (r *Registration[T]) deliver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.buffer.filled:
		}
		for _, batch := range r.buffer.drain() {
			for _, n := range batch {
				if ctx.Err() != nil {
					return
				}
				r.call(n)
			}
		}
	}
}

func (r *Registration[T]) call(n notification[T]) {
	switch n.kind {
	case added:
		if r.handler.Add != nil {
			r.handler.Add(n.after, n.initial)
		}
	case updated:
		if r.handler.Update != nil {
			r.handler.Update(n.before, n.after)
		}
	case deleted:
		if r.handler.Delete != nil {
			r.handler.Delete(n.before)
		}
	case syncedMark:
		close(r.synced)
	case heardMark:
		close(n.heard)
	}
}
