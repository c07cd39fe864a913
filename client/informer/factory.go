package informer

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client"
	"trireme.dev/client/kind"
)

// Factory owns the informers of a program: whoever asks for the same kind with the same Config shares one.
type Factory struct {
	conn   grpc.ClientConnInterface
	logger *slog.Logger

	mu        sync.Mutex
	informers map[identity]shared
	// start runs an informer; nil until the factory runs.
	start func(shared)
}

type identity struct {
	message protoreflect.FullName
	// dynamic informers hand out client.Object and so are apart from those of the message's own type.
	dynamic bool
	config  Config
}

// shared is an Informer of any kind.
type shared interface {
	mirror(ctx context.Context, f *Factory)
	waitForSync(ctx context.Context) error
	HasSynced() bool
}

// NewFactory returns a factory without informers. A nil logger means slog.Default.
func NewFactory(conn grpc.ClientConnInterface, logger *slog.Logger) *Factory {
	if logger == nil {
		logger = slog.Default()
	}
	return &Factory{conn: conn, logger: logger, informers: map[identity]shared{}}
}

// Of returns the factory's informer of T's kind. It may be called before or while the factory runs.
func Of[T client.Object](f *Factory, config Config) *Informer[T] {
	var zero T
	id := identity{message: zero.ProtoReflect().Descriptor().FullName(), config: config}
	return of(f, id, client.For[T])
}

// OfKind returns the factory's informer of a kind known at run time only. It may be called before or while the factory
// runs. It shares nothing with Of's informer of the same kind: each keeps a copy of the objects.
func OfKind(f *Factory, k *kind.Kind, config Config) *Informer[client.Object] {
	id := identity{message: k.Message.Descriptor().FullName(), dynamic: true, config: config}
	return of(f, id, func(conn grpc.ClientConnInterface) *client.Resource[client.Object] { return client.Dynamic(conn, k) })
}

func of[T client.Object](f *Factory, id identity, dial func(grpc.ClientConnInterface) *client.Resource[T]) *Informer[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	if existing, ok := f.informers[id].(*Informer[T]); ok {
		return existing
	}
	i := newInformer(id.config, dial)
	f.informers[id] = i
	if f.start != nil {
		f.start(i)
	}
	return i
}

func (i *Informer[T]) mirror(ctx context.Context, f *Factory) {
	resource := i.dial(f.conn)
	name := resource.Kind().Name
	r := &reflector[T]{
		resource: resource, informer: i, lists: newLists(name, i.config),
		logger: f.logger.With(slog.String("kind", name)),
	}
	defer i.measure(name)()
	i.run(ctx, r.run)
}

// Run keeps all informers up to date until ctx ends, waits for their goroutines and returns nil. A gateway that cannot
// be reached is waited for. A factory runs once.
func (f *Factory) Run(ctx context.Context) error {
	var running sync.WaitGroup
	f.mu.Lock()
	if f.start != nil {
		f.mu.Unlock()
		return errors.New("informer factory is running already")
	}
	f.start = func(i shared) { running.Go(func() { i.mirror(ctx, f) }) }
	for _, i := range f.informers {
		f.start(i)
	}
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	f.start = func(shared) {}
	f.mu.Unlock()
	running.Wait()
	return nil
}

// HasSynced reports whether every informer asked for so far has been complete once.
func (f *Factory) HasSynced() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range f.informers {
		if !i.HasSynced() {
			return false
		}
	}
	return true
}

// WaitForSync waits until every informer asked for so far is complete and every handler added so far has heard of the
// initial objects. Run must be running or about to.
func (f *Factory) WaitForSync(ctx context.Context) error {
	f.mu.Lock()
	informers := make([]shared, 0, len(f.informers))
	for _, i := range f.informers {
		informers = append(informers, i)
	}
	f.mu.Unlock()
	for _, i := range informers {
		if err := i.waitForSync(ctx); err != nil {
			return err
		}
	}
	return nil
}
