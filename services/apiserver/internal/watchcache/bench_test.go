package watchcache_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/watchcache"
)

// replay is a store of which only the watch matters: it hands out what the benchmark makes.
type replay struct {
	storage.Store
	batches chan storage.Batch
	done    chan struct{}
}

func (replay) List(context.Context, string, storage.ListOptions) (storage.Page, error) {
	return storage.Page{Revision: 1}, nil
}

func (replay) Revision(context.Context) (int64, error) { return 1, nil }

func (r replay) Watch(ctx context.Context, _ string, _ storage.WatchOptions, emit func(storage.Batch) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case b := <-r.batches:
			if err := emit(b); err != nil {
				return err
			}
			r.done <- struct{}{}
		}
	}
}

// BenchmarkNodeWatchers is what one event of a pod costs the cache while so many nodes
// watch their own pods: the time must not grow with their number. With watchers of everything it would.
func BenchmarkNodeWatchers(b *testing.B) {
	for _, watchers := range []int{10, 100, 1000, 5000} {
		b.Run(fmt.Sprint(watchers), func(b *testing.B) { benchmarkNodeWatchers(b, watchers) })
	}
}

func benchmarkNodeWatchers(b *testing.B, watchers int) {
	const perBatch = 100
	store := replay{batches: make(chan storage.Batch), done: make(chan struct{})}
	cache := watchcache.New(watchcache.Config{
		Store: store, Prefix: "/trireme/", Logger: slog.New(slog.DiscardHandler),
		Kinds: []watchcache.Kind{{Prefix: prefix, Indexes: map[string]watchcache.Index{"color": color}}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cache.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	all := make([]*watchcache.Watcher, watchers)
	for i := range all {
		w, err := cache.Watch(ctx, prefix, watchcache.Scope{Index: "color", Value: fmt.Sprint("n", i)}, 1, nil)
		if err != nil {
			b.Fatal(err)
		}
		all[i] = w
		defer w.Close()
	}
	// The same events whatever the number of watchers: pods of ten nodes, spread over those that watch.
	values := make([][]byte, 10)
	for i := range values {
		values[i] = stored(b, "default", "p", fmt.Sprint("n", i*watchers/10), 1200)
	}
	event := make([]storage.Event, b.N)
	for i := range event {
		event[i] = storage.Event{Key: fmt.Sprintf("%sdefault/p%d", prefix, i%1000), Value: values[i%10], Revision: int64(i + 2)}
	}
	b.ResetTimer()
	for i := 0; i < b.N; i += perBatch {
		end := min(i+perBatch, b.N)
		store.batches <- storage.Batch{Events: event[i:end], Revision: event[end-1].Revision}
		<-store.done
		if i%10000 == 0 {
			b.StopTimer() // reading waits to gather
			drain(b, all, watchers)
			b.StartTimer()
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1000/float64(b.N), "us/event")
}

func drain(b *testing.B, all []*watchcache.Watcher, watchers int) {
	now := make(chan time.Time, 1)
	for k := range 10 {
		now <- time.Time{}
		if _, _, err := all[k*watchers/10].Next(b.Context(), now); err != nil {
			b.Fatal(err)
		}
		select {
		case <-now:
		default:
		}
	}
}
