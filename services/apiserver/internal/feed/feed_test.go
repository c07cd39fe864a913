package feed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/feed"
	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "/trireme/core/configmaps/"

type env struct {
	t     *testing.T
	store *memory.Store
	feed  *feed.Feed
}

func newEnv(t *testing.T) *env {
	e := &env{t: t, store: memory.New(memory.Config{MaxOps: 30000})}
	e.feed = feed.New(e.store, "/trireme/", []feed.Kind{{Prefix: prefix}}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.feed.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return e
}

// put writes n objects at one revision.
func (e *env) put(name string, n int) int64 {
	e.t.Helper()
	var txn storage.Txn
	for i := range n {
		stored, err := envelope.Encode(&corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(name, i)}})
		if err != nil {
			e.t.Fatal(err)
		}
		txn.Then = append(txn.Then, storage.Op{Key: fmt.Sprintf("%sdefault/%s%d", prefix, name, i), Value: stored})
	}
	revision, err := e.store.Commit(e.t.Context(), txn)
	if err != nil {
		e.t.Fatal(err)
	}
	return revision
}

func (e *env) watch(after int64, catchUp func(*feed.Batch) error) *feed.Watcher {
	e.t.Helper()
	w, err := e.feed.Watch(e.t.Context(), prefix, after, catchUp)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(w.Close)
	return w
}

func never(*feed.Batch) error { return errors.New("asked the store for what the feed remembers") }

// until reads a watcher up to a revision and returns how many events came.
func (e *env) until(w *feed.Watcher, revision int64) int {
	e.t.Helper()
	n, position := 0, int64(0)
	for position < revision {
		batches, _, err := w.Next(e.t.Context(), nil)
		if err != nil {
			e.t.Fatal(err)
		}
		for _, b := range batches {
			if b.Revision <= position {
				e.t.Fatalf("revision %d after %d", b.Revision, position)
			}
			position = b.Revision
			n += len(b.Events)
		}
	}
	return n
}

func TestSlowWatchersEndAndOthersDoNot(t *testing.T) {
	e := newEnv(t)
	start := e.put("a", 1)
	slow, quick := e.watch(start, never), e.watch(start, never)
	var last int64
	for i := range 5 {
		last = e.put(fmt.Sprint("b", i, "-"), 5000)
		e.until(quick, last)
	}
	if _, _, err := slow.Next(t.Context(), nil); !errors.Is(err, feed.ErrSlow) {
		t.Fatalf("a watcher with 25,000 events waiting: %v", err)
	}
	// A single revision always fits, and so does resuming.
	resumed := 0
	w := e.watch(start, func(b *feed.Batch) error {
		resumed += len(b.Events)
		return nil
	})
	for resumed < 25000 {
		batches, _, err := w.Next(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			resumed += len(b.Events)
		}
	}
	if resumed != 25000 {
		t.Fatalf("resumed with %d events", resumed)
	}
}

func TestForgottenHistoryComesFromTheStore(t *testing.T) {
	e := newEnv(t)
	start := e.put("a", 1)
	e.watch(start, never) // the feed has begun
	for i := range 20 {
		e.put(fmt.Sprint("b", i, "-"), 1000) // several times what the feed remembers
	}
	caught := 0
	w := e.watch(start, func(b *feed.Batch) error {
		caught += len(b.Events)
		return nil
	})
	if caught == 0 {
		t.Fatal("nothing came from the store")
	}
	last := e.put("c", 1)
	n := 0
	for seen := int64(0); seen < last; {
		batches, _, err := w.Next(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			seen = b.Revision
			n += len(b.Events)
		}
	}
	if caught+n < 20001 {
		t.Fatalf("%d events of 20001", caught+n)
	}
	if err := e.store.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if _, err := e.feed.Watch(t.Context(), prefix, start, never); !errors.Is(err, storage.ErrCompacted) {
		t.Fatalf("history that nobody remembers: %v", err)
	}
}
