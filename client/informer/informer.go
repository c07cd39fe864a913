// Package informer keeps local copies of objects: the first link of the control chain informer → workqueue → reconcile.
//
//	gateway ──Watch──▶ reflector ──batch──▶ store (+ indexes) ──▶ one buffer per handler ──▶ handler
//	                                          ▲
//	                                        lister
//
// The store is updated before any handler hears of a change. Objects are shared by all readers and must not be
// changed: proto.Clone first. It never writes to the gateway.
package informer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/client"
)

// Config says which objects of a kind are wanted. The zero value wants all.
type Config struct {
	// Namespace wanted; empty for all.
	Namespace string
	// LabelSelector and FieldSelector in Kubernetes' string syntax.
	LabelSelector, FieldSelector string
}

// Handler hears of changes, in order, from one goroutine of its own: a slow handler delays neither the store nor other
// handlers. Functions may be nil.
type Handler[T client.Object] struct {
	// Add hears of a new object. initial is set for objects that were there when the handler's view began.
	Add func(object T, initial bool)
	// Update hears of both states of a changed object.
	Update func(before, after T)
	// Delete hears of the last known state of an object that is gone. Where the deletion was missed while disconnected,
	// that is the state before.
	Delete func(last T)
}

// Informer is a local copy of the objects of one kind that match one Config, kept up to date while its factory runs.
// It is safe for concurrent use.
type Informer[T client.Object] struct {
	config Config
	store  *store[T]
	// dial makes the client that the objects come from.
	dial func(grpc.ClientConnInterface) *client.Resource[T]
	// heard is when the gateway last told of a change, in nanoseconds since the epoch; 0 before it has.
	heard atomic.Int64

	mu       sync.Mutex
	handlers []*Registration[T]
	// start runs a handler's goroutine; nil until the informer runs.
	start func(*Registration[T])
	// revised is closed and replaced when the revision moves; nil while nobody waits.
	revised chan struct{}
	synced  chan struct{}
}

func newInformer[T client.Object](config Config, dial func(grpc.ClientConnInterface) *client.Resource[T]) *Informer[T] {
	return &Informer[T]{config: config, dial: dial, store: newStore[T](), synced: make(chan struct{})}
}

// Registration is a handler that has been added.
type Registration[T client.Object] struct {
	informer *Informer[T]
	handler  Handler[T]
	buffer   *buffer[T]
	synced   chan struct{}
}

// HasSynced reports whether the handler has heard of all objects that were there when its view began.
func (r *Registration[T]) HasSynced() bool { return isClosed(r.synced) }

// WaitForRevision waits until the handler has heard of every change up to revision.
func (r *Registration[T]) WaitForRevision(ctx context.Context, revision int64) error {
	if err := r.informer.WaitForRevision(ctx, revision); err != nil {
		return err
	}
	// The changes lie in the buffer by now, so what is put behind them is heard after them.
	heard := make(chan struct{})
	r.buffer.push([]notification[T]{{kind: heardMark, heard: heard}})
	select {
	case <-heard:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// AddHandler adds a handler. Added late, it first hears of the present objects as initial adds; nothing is missed or
// heard of twice.
func (i *Informer[T]) AddHandler(handler Handler[T]) *Registration[T] {
	r := &Registration[T]{informer: i, handler: handler, buffer: newBuffer[T](), synced: make(chan struct{})}
	// Changes are applied and handed out under the same lock, so the snapshot and what follows fit together.
	i.mu.Lock()
	defer i.mu.Unlock()
	if isClosed(i.synced) {
		objects := i.store.list("", nil)
		batch := make([]notification[T], 0, len(objects)+1)
		for _, object := range objects {
			batch = append(batch, notification[T]{kind: added, after: object, initial: true})
		}
		r.buffer.push(append(batch, notification[T]{kind: syncedMark}))
	}
	i.handlers = append(i.handlers, r)
	if i.start != nil {
		i.start(r)
	}
	return r
}

// AddIndex adds an index by which Lister.ByIndex finds objects: values gives the values under which an object is found.
// A name belongs to all users of the informer; adding one again does nothing.
func (i *Informer[T]) AddIndex(name string, values func(T) []string) { i.store.addIndex(name, values) }

// Lister reads the local copy.
func (i *Informer[T]) Lister() *Lister[T] { return &Lister[T]{i.store} }

// HasSynced reports whether the local copy has been complete once.
func (i *Informer[T]) HasSynced() bool { return isClosed(i.synced) }

// Revision that the local copy is at: it shows the effect of every change up to it and of none after. 0 until synced.
func (i *Informer[T]) Revision() int64 { return i.store.atRevision() }

// WaitForRevision waits until the local copy is at revision or later. Reading one's own writes is waiting for the
// resourceVersion that the write returned.
func (i *Informer[T]) WaitForRevision(ctx context.Context, revision int64) error {
	for {
		i.mu.Lock()
		if i.Revision() >= revision {
			i.mu.Unlock()
			return nil
		}
		if i.revised == nil {
			i.revised = make(chan struct{})
		}
		revised := i.revised
		i.mu.Unlock()
		select {
		case <-revised:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// replace makes the copy a snapshot at a revision, whatever it was before.
func (i *Informer[T]) replace(snapshot map[key]T, revision int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	first := !isClosed(i.synced)
	batch := i.store.replace(snapshot, revision, first)
	if first {
		batch = append(batch, notification[T]{kind: syncedMark})
		close(i.synced)
	}
	i.handOut(batch)
}

// apply makes the copy follow complete revisions.
func (i *Informer[T]) apply(events []client.Event[T], revision int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handOut(i.store.apply(events, revision))
}

func (i *Informer[T]) handOut(batch []notification[T]) {
	i.heard.Store(time.Now().UnixNano())
	if i.revised != nil {
		close(i.revised)
		i.revised = nil
	}
	if len(batch) == 0 {
		return
	}
	for _, r := range i.handlers {
		r.buffer.push(batch)
	}
}

// run keeps the copy up to date until ctx ends, and waits for all that it started.
func (i *Informer[T]) run(ctx context.Context, reflect func(context.Context)) {
	var deliveries sync.WaitGroup
	i.mu.Lock()
	i.start = func(r *Registration[T]) { deliveries.Go(func() { r.deliver(ctx) }) }
	for _, r := range i.handlers {
		i.start(r)
	}
	i.mu.Unlock()
	reflect(ctx)
	i.mu.Lock()
	i.start = nil
	i.mu.Unlock()
	deliveries.Wait()
}

// waitForSync waits for the copy and for all handlers added so far.
func (i *Informer[T]) waitForSync(ctx context.Context) error {
	i.mu.Lock()
	waits := []chan struct{}{i.synced}
	for _, r := range i.handlers {
		waits = append(waits, r.synced)
	}
	i.mu.Unlock()
	for _, c := range waits {
		select {
		case <-c:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
