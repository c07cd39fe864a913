// Package reconcile runs the last link of the control chain, informer → workqueue → reconcile: workers that take keys
// from a queue and bring the world nearer to what the object of that key asks for.
//
// A Reconciler is level-triggered: it is told which object, never what happened to it, and reads the present state
// from a lister. It must not watch, poll or sleep by itself.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"trireme.dev/client/workqueue"
)

// Key names an object; Namespace is empty for a cluster-scoped kind.
type Key struct{ Namespace, Name string }

// String gives "namespace/name" or "name".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Result of a reconciliation that did not fail.
type Result struct {
	// After asks for the key again when this time is over; zero asks for nothing.
	After time.Duration
}

// Reconciler brings one object to where it should be. A key whose object is gone is success. An error is retried with
// back-off unless it is Terminal; waiting for something is Result.After, not an error.
type Reconciler interface {
	Reconcile(ctx context.Context, key Key) (Result, error)
}

// Func is a Reconciler that is one function.
type Func func(ctx context.Context, key Key) (Result, error)

// Reconcile implements Reconciler.
func (f Func) Reconcile(ctx context.Context, key Key) (Result, error) { return f(ctx, key) }

// Config describes a runner.
type Config struct {
	// Name in logs; unique in the program.
	Name string
	// Workers that reconcile different keys at a time. 1.
	Workers int
	// Inputs are the kinds that are watched, Outputs those that are written, by name: Pod. They are declarations for
	// whoever checks that no output has two owners; the runner does not act on them.
	Inputs, Outputs []string
	// Span names the span of a reconciliation that writes on behalf of its object, in the object's trace: syncReplicaSet.
	// Empty for none.
	Span string
	// Queue bounds retries; its Name is the runner's where it has none.
	Queue workqueue.Config
	// Logger; nil means slog.Default.
	Logger *slog.Logger
}

// Runner owns a queue and its workers.
type Runner struct {
	config     Config
	reconciler Reconciler
	queue      *workqueue.Queue[Key]
	logger     *slog.Logger
	sights     sights
}

// New returns a runner; keys may be enqueued before Run.
func New(config Config, reconciler Reconciler) *Runner {
	if config.Workers <= 0 {
		config.Workers = 1
	}
	if config.Queue.Name == "" {
		config.Queue.Name = config.Name
	}
	logger := config.Logger
	if logger == nil {
		logger = slog.Default()
	}
	return &Runner{
		config: config, reconciler: reconciler, queue: workqueue.New[Key](config.Queue),
		logger: logger.With(slog.String("controller", config.Name)),
	}
}

// Config as given to New, with the defaults filled in.
func (r *Runner) Config() Config { return r.config }

// Enqueue asks for a key to be reconciled.
func (r *Runner) Enqueue(key Key) { r.queue.Add(key) }

// EnqueueAfter asks for a key to be reconciled when the time is over.
func (r *Runner) EnqueueAfter(key Key, delay time.Duration) { r.queue.AddAfter(key, delay) }

// Run reconciles until ctx ends, waits for its workers and returns nil. Wait for the informers to sync first: a
// reconciler that reads an empty lister believes that everything is gone. A runner runs once.
func (r *Runner) Run(ctx context.Context) error {
	defer r.queue.Close()
	var workers sync.WaitGroup
	for range r.config.Workers {
		workers.Go(func() {
			for {
				key, err := r.queue.Get(ctx)
				if err != nil {
					return
				}
				r.process(ctx, key)
			}
		})
	}
	workers.Wait()
	return nil
}

func (r *Runner) process(ctx context.Context, key Key) {
	defer r.queue.Done(key)
	t := &turn{runner: r, key: key, added: r.queue.Added(key), begun: time.Now()}
	result, err := r.guarded(context.WithValue(ctx, turnKey{}, t), key)
	t.end(err)
	var terminal *terminalError
	switch {
	case ctx.Err() != nil:
		// The program is stopping: what was interrupted is not a failure.
	case errors.As(err, &terminal):
		r.queue.Forget(key)
		r.logger.Error("reconcile gave up", slog.String("key", key.String()), slog.Any("error", err))
	case err != nil:
		r.queue.AddRateLimited(key)
		r.logger.Warn("reconcile failed", slog.String("key", key.String()),
			slog.Int("failures", r.queue.Failures(key)), slog.Any("error", err))
	default:
		r.queue.Forget(key)
		if result.After > 0 {
			r.queue.AddAfter(key, result.After)
		}
	}
}

// guarded turns a panic into an error: one poisonous object must not stop all others.
func (r *Runner) guarded(ctx context.Context, key Key) (result Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.logger.Error("reconcile panicked", slog.String("key", key.String()), slog.Any("panic", p),
				slog.String("stack", string(debug.Stack())))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return r.reconciler.Reconcile(ctx, key)
}

// Terminal marks an error that no retry will cure: the key is tried again only when something enqueues it.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{err}
}

type terminalError struct{ err error }

func (e *terminalError) Error() string { return e.err.Error() }
func (e *terminalError) Unwrap() error { return e.err }
