package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/storage/memory"
	"trireme.dev/services/apiserver/internal/watchcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "/trireme/core/configmaps/"

type env struct {
	t     testing.TB
	store *memory.Store
	cache *watchcache.Cache
}

func newEnv(t testing.TB) *env {
	e := &env{t: t, store: memory.New(memory.Config{MaxOps: 30000})}
	e.cache = watchcache.New(watchcache.Config{
		Store: e.store, Prefix: "/trireme/", Logger: slog.New(slog.DiscardHandler),
		Kinds: []watchcache.Kind{{Prefix: prefix, Indexes: map[string]watchcache.Index{"color": color}}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.cache.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	// Writes from now on are events.
	if err := e.cache.Wait(t.Context(), 1, time.Minute); err != nil {
		t.Fatal(err)
	}
	return e
}

func color(payload []byte, emit func(string)) {
	if value, ok, err := envelope.Label(payload, "color"); ok && err == nil {
		emit(value)
	}
}

func stored(t testing.TB, namespace, name, color string, size int) []byte {
	t.Helper()
	obj := &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:     map[string]string{"filler": strings.Repeat("x", size)},
	}
	if color != "" {
		obj.Metadata.Labels = map[string]string{"color": color}
	}
	b, err := envelope.Encode(obj)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (e *env) commit(ops ...storage.Op) int64 {
	e.t.Helper()
	revision, err := e.store.Commit(e.t.Context(), storage.Txn{Then: ops})
	if err != nil {
		e.t.Fatal(err)
	}
	return revision
}

// put writes n objects of a size at one revision.
func (e *env) put(name string, n, size int) int64 {
	e.t.Helper()
	var ops []storage.Op
	for i := range n {
		id := fmt.Sprint(name, i)
		ops = append(ops, storage.Op{Key: prefix + "default/" + id, Value: stored(e.t, "default", id, "", size)})
	}
	return e.commit(ops...)
}

func (e *env) paint(namespace, name, color string) int64 {
	e.t.Helper()
	return e.commit(storage.Op{Key: prefix + namespace + "/" + name, Value: stored(e.t, namespace, name, color, 1)})
}

func (e *env) watch(scope watchcache.Scope, after int64, catchUp func([]*watchcache.Event) error) *watchcache.Watcher {
	e.t.Helper()
	w, err := e.cache.Watch(e.t.Context(), prefix, scope, after, catchUp)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(w.Close)
	return w
}

func never([]*watchcache.Event) error {
	return errors.New("asked the store for what the cache remembers")
}

// until reads a watcher up to a revision and returns how many events came.
func (e *env) until(w *watchcache.Watcher, revision int64) int {
	e.t.Helper()
	n, position := 0, int64(0)
	for position < revision {
		events, complete, err := w.Next(e.t.Context(), nil)
		if err != nil {
			e.t.Fatal(err)
		}
		for _, event := range events {
			if event.Revision < position {
				e.t.Fatalf("revision %d after %d", event.Revision, position)
			}
			position = event.Revision
			n++
		}
		if complete < position {
			e.t.Fatalf("complete up to %d with events of %d", complete, position)
		}
		position = complete
	}
	return n
}

func TestSlowWatchersEndAndOthersDoNot(t *testing.T) {
	e := newEnv(t)
	start := e.put("a", 1, 1)
	slow, quick := e.watch(watchcache.Scope{}, start, never), e.watch(watchcache.Scope{}, start, never)
	for i := range 5 {
		e.until(quick, e.put(fmt.Sprint("b", i, "-"), 5000, 1))
	}
	if _, _, err := slow.Next(t.Context(), nil); !errors.Is(err, watchcache.ErrSlow) {
		t.Fatalf("a watcher with 25,000 events waiting: %v", err)
	}
	// Resuming from before loses and doubles nothing.
	resumed := 0
	w := e.watch(watchcache.Scope{}, start, func(events []*watchcache.Event) error {
		resumed += len(events)
		return nil
	})
	for resumed < 25000 {
		events, _, err := w.Next(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		resumed += len(events)
	}
	if resumed != 25000 {
		t.Fatalf("resumed with %d events", resumed)
	}
}

func TestForgottenHistoryComesFromTheStore(t *testing.T) {
	e := newEnv(t)
	start := e.put("a", 1, 1)
	e.watch(watchcache.Scope{}, start, never) // the cache has begun
	for range 120 {
		e.put("b", 10, 20000) // more than the cache remembers: what is replaced counts
	}
	caught := 0
	w := e.watch(watchcache.Scope{}, start, func(events []*watchcache.Event) error {
		caught += len(events)
		return nil
	})
	if caught == 0 {
		t.Fatal("nothing came from the store")
	}
	last := e.put("c", 1, 1)
	if n := e.until(w, last); caught+n < 1201 {
		t.Fatalf("%d events of 1201", caught+n)
	}
	if err := e.store.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if _, err := e.cache.Watch(t.Context(), prefix, watchcache.Scope{}, start, never); !errors.Is(err, storage.ErrCompacted) {
		t.Fatalf("history that nobody remembers: %v", err)
	}
}

func keys(s *watchcache.Snapshot) string {
	var out []string
	s.Ascend(prefix, "", func(o *watchcache.Object) bool {
		out = append(out, strings.TrimPrefix(o.Key, prefix))
		return true
	})
	return strings.Join(out, " ")
}

func TestSnapshotsOfAnyRevision(t *testing.T) {
	e := newEnv(t)
	before := e.commit(storage.Op{Key: "/trireme/other/things/a", Value: []byte("x")})
	want := map[int64]string{before: ""}
	want[e.paint("a", "1", "red")] = "a/1"
	want[e.paint("a", "2", "red")] = "a/1 a/2"
	want[e.commit(storage.Op{Key: prefix + "a/1"})] = "a/2"
	want[e.commit(storage.Op{Key: prefix + "a/3", Value: []byte("garbage")}, storage.Op{Key: prefix + "a/2"})] = "" // what cannot be read is absent
	last := e.paint("a", "1", "red")
	want[last] = "a/1"
	current, err := e.cache.Consistent(t.Context(), prefix, time.Minute)
	if err != nil || current.Revision != last || keys(current) != want[last] {
		t.Fatalf("%v; at %d: %q", err, current.Revision, keys(current))
	}
	for revision, state := range want {
		s := e.cache.Exact(prefix, revision)
		if s == nil || s.Revision != revision || keys(s) != state {
			t.Errorf("at %d: %v, want %q", revision, s, state)
		}
	}
	if s := e.cache.Exact(prefix, last+1); s != nil {
		t.Errorf("a revision that has not happened: %v", s)
	}
	// A snapshot stays as it is.
	for i := range 500 {
		e.paint("a", fmt.Sprint("later", i), "red")
	}
	if keys(current) != want[last] {
		t.Errorf("the snapshot changed to %q", keys(current))
	}
}

// A commit that moves the store's revision without an event of any kind must not hold up a consistent read.
func TestConsistentReadOfAnIdleStore(t *testing.T) {
	e := newEnv(t)
	e.paint("a", "1", "red")
	elsewhere := e.commit(storage.Op{Key: "/elsewhere", Value: []byte("x")})
	s, err := e.cache.Consistent(t.Context(), prefix, time.Minute)
	if err != nil || s.Revision < elsewhere {
		t.Fatalf("%v: %+v, want %d", err, s, elsewhere)
	}
}

func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		revision := e.paint("a", "1", "red")
		if err := e.cache.Wait(t.Context(), revision, time.Second); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		err := e.cache.Wait(t.Context(), revision+1, 3*time.Second)
		if took := time.Since(begin); !errors.Is(err, watchcache.ErrBehind) || took != 3*time.Second {
			t.Fatalf("%v after %s", err, took)
		}
		go func() { e.paint("a", "2", "red") }()
		if err := e.cache.Wait(t.Context(), revision+1, 3*time.Second); err != nil {
			t.Fatal(err)
		}
	})
}

// Lists that come together cost the store one read, and one that comes during a read does not take its answer.
func TestRevisionReadsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		var e *env
		hold := make(chan struct{})
		e = &env{t: t}
		e.store = memory.New(memory.Config{Fault: func(op memory.Operation) error {
			if op.Name == "revision" {
				reads++
				<-hold
			}
			return nil
		}})
		e.cache = watchcache.New(watchcache.Config{Store: e.store, Prefix: "/trireme/", Logger: slog.New(slog.DiscardHandler), Kinds: []watchcache.Kind{{Prefix: prefix}}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.cache.Run(ctx) }()
		const lists = 50
		answers := make(chan int64, 1+lists)
		ask := func() {
			revision, err := e.cache.Latest(t.Context())
			if err != nil {
				t.Error(err)
			}
			answers <- revision
		}
		go ask()
		synctest.Wait() // the first read is under way
		revision := e.paint("a", "1", "red")
		for range lists {
			go ask()
		}
		synctest.Wait()
		close(hold)
		for range 1 + lists {
			if got := <-answers; got < revision {
				t.Errorf("answer %d, want %d", got, revision)
			}
		}
		if reads != 2 {
			t.Errorf("%d reads of the store, want 2", reads)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestScopes(t *testing.T) {
	e := newEnv(t)
	start := e.paint("x", "0", "none")
	seen := func(scope watchcache.Scope) func() string {
		w := e.watch(scope, start, never)
		return func() string {
			var out []string
			end := make(chan time.Time, 1)
			for {
				end <- time.Time{}
				events, position, err := w.Next(t.Context(), end)
				if err != nil {
					t.Fatal(err)
				}
				for _, event := range events {
					out = append(out, fmt.Sprint(strings.TrimPrefix(event.Key(), prefix), "@", event.Revision-start))
				}
				select {
				case <-end:
				default:
				}
				if position >= e.cache.Position() {
					return strings.Join(out, " ")
				}
			}
		}
	}
	watchers := map[watchcache.Scope]func() string{}
	want := map[watchcache.Scope]string{
		{}: "a/1@1 a/1@2 b/1@3 b/1@4 b/2@5",
		{Index: watchcache.ByNamespace, Value: "a"}: "a/1@1 a/1@2",
		{Index: watchcache.ByKey, Value: "b/1"}:     "b/1@3 b/1@4",
		{Index: "color", Value: "red"}:              "a/1@1 a/1@2 b/2@5",
		{Index: "color", Value: "blue"}:             "a/1@2 b/1@3 b/1@4",
		{Index: "color", Value: "green"}:            "",
	}
	for scope := range want {
		watchers[scope] = seen(scope)
	}
	e.paint("a", "1", "red")
	e.paint("a", "1", "blue") // leaves red, enters blue
	e.paint("b", "1", "blue")
	e.commit(storage.Op{Key: prefix + "b/1"})
	last := e.commit(
		storage.Op{Key: prefix + "a/2", Value: []byte("garbage")},
		storage.Op{Key: prefix + "b/2", Value: stored(t, "b", "2", "red", 1)},
	)
	if err := e.cache.Wait(t.Context(), last, time.Minute); err != nil {
		t.Fatal(err)
	}
	for scope, w := range watchers {
		if got := w(); got != want[scope] {
			t.Errorf("%v is offered %q, want %q", scope, got, want[scope])
		}
	}
}

// A cache that lost its place starts over; its watchers end and may resume, and readers see the new state.
func TestCompactionBehindTheCachesBack(t *testing.T) {
	broken := make(chan struct{})
	var e *env
	fail := errors.New("cut off")
	e = &env{t: t}
	e.store = memory.New(memory.Config{Fault: func(op memory.Operation) error {
		select {
		case <-broken:
			return nil
		default:
		}
		if op.Name == "watch" {
			return fail
		}
		return nil
	}})
	e.cache = watchcache.New(watchcache.Config{Store: e.store, Prefix: "/trireme/", Logger: slog.New(slog.DiscardHandler), Kinds: []watchcache.Kind{{Prefix: prefix}}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.cache.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	start, err := e.cache.Current(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	w := e.watch(watchcache.Scope{}, start.Revision, never)
	e.paint("a", "1", "red")
	last := e.paint("a", "2", "red")
	if err := e.store.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	close(broken)
	if _, _, err := w.Next(t.Context(), nil); !errors.Is(err, watchcache.ErrInterrupted) {
		t.Fatalf("watcher ended with %v", err)
	}
	s, err := e.cache.Consistent(t.Context(), prefix, time.Minute)
	if err != nil || keys(s) != "a/1 a/2" {
		t.Fatalf("%v: %q", err, keys(s))
	}
	if _, err := e.cache.Watch(t.Context(), prefix, watchcache.Scope{}, start.Revision, never); !errors.Is(err, storage.ErrCompacted) {
		t.Fatalf("resuming from what is gone: %v", err)
	}
	resumed := e.watch(watchcache.Scope{}, last, never)
	if n := e.until(resumed, e.paint("a", "3", "red")); n != 1 {
		t.Fatalf("%d events", n)
	}
}
