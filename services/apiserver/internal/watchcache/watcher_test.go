package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/storage/memory"
	"trireme.dev/services/apiserver/internal/watchcache"
)

// Watchers that are served often are served together: the same events each, so that they can be sent the same bytes.
func TestBusyWatchersAreServedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		start := e.paint("a", "0", "red")
		const watchers, writes = 30, 2000
		type served struct {
			at    time.Duration
			first int64
			n     int
		}
		begin := time.Now()
		got := make([][]served, watchers)
		done := make(chan struct{})
		for i := range watchers {
			w := e.watch(watchcache.Scope{}, start, never)
			go func() {
				defer func() { done <- struct{}{} }()
				for n := 0; n < writes; {
					events, _, err := w.Next(t.Context(), nil)
					if err != nil {
						t.Error(err)
						return
					}
					got[i] = append(got[i], served{time.Since(begin), events[0].Revision, len(events)})
					n += len(events)
				}
			}()
		}
		for i := range writes {
			e.paint("a", fmt.Sprint(i), "red")
			time.Sleep(time.Millisecond)
		}
		for range watchers {
			<-done
		}
		// 30 watchers: a pulse every 30 ms. The first few are served at once.
		if n := len(got[0]); n > 2000/30+10 {
			t.Errorf("%d responses in 2 s", n)
		}
		for i := range got {
			if fmt.Sprint(got[i]) != fmt.Sprint(got[0]) {
				t.Errorf("watcher %d was served %v, the first one %v", i, got[i], got[0])
			}
		}
	})
}

// What is left after a pulse is not forgotten when nothing follows, and seldom events never wait.
func TestSeldomEventsAreServedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		start := e.paint("a", "0", "red")
		w := e.watch(watchcache.Scope{}, start, never)
		for i := range 300 { // a storm
			e.paint("a", fmt.Sprint(i), "red")
		}
		for n := 0; n < 300; {
			events, _, err := w.Next(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			n += len(events)
		}
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			wrote := time.Now()
			e.paint("a", "1", "red")
			if _, _, err := w.Next(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(wrote); waited > 0 {
				t.Fatalf("an event waited for %s", waited)
			}
		}
	})
}

// 50 watchers that never read stand beside 50 that do: these get everything, those are ended, and what waited for them is
// let go.
func TestWatchersThatNeverRead(t *testing.T) {
	e := newEnv(t)
	start := e.put("a", 1, 1)
	const n = 50
	stuck, readers := make([]*watchcache.Watcher, n), make([]*watchcache.Watcher, n)
	for i := range n {
		stuck[i] = e.watch(watchcache.Scope{}, start, never)
		readers[i] = e.watch(watchcache.Scope{}, start, never)
	}
	// Rounds of 1,000 changes of the same keys, 2 KB each: 50 MB in all, of which the state is 2.
	var last int64
	counts := make([]int, n)
	for range 25 {
		last = e.put("b", 1000, 2000)
		for i, w := range readers {
			counts[i] += e.until(w, last)
		}
	}
	for i, got := range counts {
		if got != 25*1000 {
			t.Errorf("reader %d got %d events", i, got)
		}
	}
	for i, w := range stuck {
		if _, _, err := w.Next(t.Context(), nil); !errors.Is(err, watchcache.ErrSlow) {
			t.Fatalf("watcher %d that never read: %v", i, err)
		}
	}
	if err := e.store.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	// The history may keep 16 MiB; 50 lists of 20,000 events would be another 8 MB, and the objects they hold 40.
	if m.HeapAlloc > 48<<20 {
		t.Errorf("%d MB are in use", m.HeapAlloc>>20)
	}
}

// restorable is a store in whose place another one can be put, as when an operator restores a backup: watches of the old one
// bring nothing more, which is what etcd does with a watch from a revision that it has not reached again.
type restorable struct {
	storage.Store // what the cache does not call

	current atomic.Pointer[memory.Store]
}

func (r *restorable) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.Page, error) {
	return r.current.Load().List(ctx, prefix, opts)
}

func (r *restorable) Revision(ctx context.Context) (int64, error) {
	return r.current.Load().Revision(ctx)
}

func (r *restorable) Watch(ctx context.Context, prefix string, opts storage.WatchOptions, emit func(storage.Batch) error) error {
	return r.current.Load().Watch(ctx, prefix, opts, emit)
}

// A backup restored under a running gateway is noticed even where nobody asks: watchers end for good and not to resume, and
// readers see what is there.
func TestAStoreThatGoesBack(t *testing.T) {
	for _, asked := range []bool{false, true} {
		t.Run(fmt.Sprint("asked=", asked), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backup, live := memory.New(memory.Config{}), memory.New(memory.Config{})
				put := func(s *memory.Store, name string) int64 {
					t.Helper()
					revision, err := s.Commit(t.Context(), storage.Txn{Then: []storage.Op{
						{Key: prefix + "a/" + name, Value: stored(t, "a", name, "red", 1)},
					}})
					if err != nil {
						t.Fatal(err)
					}
					return revision
				}
				put(backup, "1")
				put(live, "1")
				put(live, "2")
				put(live, "3")
				store := &restorable{}
				store.current.Store(live)
				cache := watchcache.New(watchcache.Config{
					Store: store, Prefix: "/trireme/", Logger: slog.New(slog.DiscardHandler), Kinds: []watchcache.Kind{{Prefix: prefix}},
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- cache.Run(ctx) }()
				defer func() {
					cancel()
					if err := <-ended; err != nil {
						t.Error(err)
					}
				}()
				s, err := cache.Consistent(t.Context(), prefix, time.Second)
				if err != nil || keys(s) != "a/1 a/2 a/3" {
					t.Fatalf("%v: %q", err, keys(s))
				}
				w, err := cache.Watch(t.Context(), prefix, watchcache.Scope{}, s.Revision, never)
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()

				store.current.Store(backup)
				if asked {
					if _, err := cache.Consistent(t.Context(), prefix, time.Second); !errors.Is(err, storage.ErrUnavailable) {
						t.Errorf("a list from before the restore: %v", err)
					}
				}
				if _, _, err := w.Next(t.Context(), nil); !errors.Is(err, watchcache.ErrRewound) {
					t.Fatalf("the watcher ended with %v", err)
				}
				after := put(backup, "4")
				s, err = cache.Consistent(t.Context(), prefix, time.Second)
				if err != nil || s.Revision != after || keys(s) != "a/1 a/4" {
					t.Fatalf("%v: at %d: %q", err, s.Revision, keys(s))
				}
			})
		})
	}
}
