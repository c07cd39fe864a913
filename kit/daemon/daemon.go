// Package daemon owns the life of a process: the tasks it consists of, the signals that end it, and its
// exit code. It never knows what a task does. Every service's main and every Run(ctx) with more than one
// goroutine is built on it.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
)

// Task is one goroutine of a process. Run blocks until its work is done or ctx is cancelled; cancelling is
// the only way to stop it.
type Task struct {
	Name string
	Run  func(ctx context.Context) error
}

// Run starts all tasks and waits for all of them. The first one that fails cancels the others; a task that
// panics fails with the panic's stack; a task that returns nil has merely finished. What tasks return
// because they were cancelled is no failure, so Run returns nil when ctx ended and nothing else went wrong.
func Run(ctx context.Context, tasks ...Task) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var (
		mu   sync.Mutex
		errs []error
		wg   sync.WaitGroup
	)
	for _, t := range tasks {
		wg.Go(func() {
			err := guard(ctx, t)
			if err == nil || (ctx.Err() != nil && errors.Is(err, context.Canceled)) {
				return
			}
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
			cancel()
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func guard(ctx context.Context, t Task) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: panic: %v\n%s", t.Name, p, debug.Stack())
		}
	}()
	if err := t.Run(ctx); err != nil {
		return fmt.Errorf("%s: %w", t.Name, err)
	}
	return nil
}

// ExitError is an error with an exit code of its own, for a process that passes on another one's.
type ExitError struct {
	Code int
	// Err is printed; nil prints nothing.
	Err error
}

// Error gives the error that is printed.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the error that is printed.
func (e *ExitError) Unwrap() error { return e.Err }

// Main runs a process: run's context ends at the first SIGINT or SIGTERM, the second one exits at once with
// 128 + the signal's number. Main does not return: the exit code is 0 when run returns nil, otherwise that
// of an ExitError in the error's chain, otherwise 1, and the error goes to stderr.
func Main(run func(ctx context.Context) error) {
	ctx, stop := Signals(context.Background())
	err := Run(ctx, Task{Name: "main", Run: func(ctx context.Context) error {
		return run(ctx)
	}})
	stop()
	var exit *ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit) && exit.Err == nil:
		os.Exit(exit.Code)
	}
	fmt.Fprintln(os.Stderr, "error:", unwrapMain(err))
	if exit != nil {
		os.Exit(exit.Code)
	}
	os.Exit(1)
}

// oneSignal is how close together two signals are one: sudo, timeout and shells pass a signal on to a process that its
// terminal or group has told already.
const oneSignal = 200 * time.Millisecond

// Signals returns a context that ends at the first SIGINT or SIGTERM. The second one ends the process. stop
// gives the signals back and frees what Signals holds.
func Signals(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		var first time.Time
		for {
			select {
			case s := <-signals:
				switch {
				case first.IsZero():
					first = time.Now()
					cancel()
				case time.Since(first) > oneSignal:
					os.Exit(exitCode(s))
				}
			case <-done:
				return
			}
		}
	}()
	var once sync.Once
	return ctx, func() {
		once.Do(func() {
			signal.Stop(signals)
			close(done)
			<-finished
			cancel()
		})
	}
}

func exitCode(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return 1
}

// unwrapMain takes the task name off: a user should read the error, not how this package wraps it.
func unwrapMain(err error) string {
	const prefix = "main: "
	if s := err.Error(); len(s) > len(prefix) && s[:len(prefix)] == prefix {
		return s[len(prefix):]
	}
	return err.Error()
}
