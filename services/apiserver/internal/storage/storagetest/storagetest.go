// Package storagetest is the suite that every storage engine passes: what the gateway relies on, and nothing more.
package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"trireme.dev/services/apiserver/internal/storage"
)

// Run runs the suite. Open returns an empty store for each test, which lasts as long as the test.
func Run(t *testing.T, open func(t *testing.T) storage.Store) {
	for name, test := range map[string]func(*testing.T, storage.Store){
		"GetAndCommit":        getAndCommit,
		"Conditions":          conditions,
		"OneRevision":         oneRevision,
		"ListPagesSnapshot":   listPagesSnapshot,
		"ListOldRevision":     listOldRevision,
		"Compaction":          compaction,
		"WatchFromRevision":   watchFromRevision,
		"WatchKeepsRevisions": watchKeepsRevisions,
		"WatchStopsAndFails":  watchStopsAndFails,
		"WatchTellsProgress":  watchTellsProgress,
		"ManyOperations":      manyOperations,
		"Concurrent":          concurrent,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func put(t *testing.T, s storage.Store, keysAndValues ...string) int64 {
	t.Helper()
	var txn storage.Txn
	for i := 0; i < len(keysAndValues); i += 2 {
		txn.Then = append(txn.Then, storage.Op{Key: keysAndValues[i], Value: []byte(keysAndValues[i+1])})
	}
	revision, err := s.Commit(t.Context(), txn)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func remove(t *testing.T, s storage.Store, key string) int64 {
	t.Helper()
	revision, err := s.Commit(t.Context(), storage.Txn{Then: []storage.Op{{Key: key}}})
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func getAndCommit(t *testing.T, s storage.Store) {
	ctx := t.Context()
	if _, found, _, err := s.Get(ctx, "/a"); found || err != nil {
		t.Fatalf("get of an absent key: %v, %v", found, err)
	}
	first := put(t, s, "/a", "1")
	second := put(t, s, "/a", "2")
	if second != first+1 {
		t.Fatalf("revisions %d, %d: want consecutive", first, second)
	}
	e, found, revision, err := s.Get(ctx, "/a")
	if err != nil || !found || string(e.Value) != "2" || e.Revision != second || e.Created != first || revision != second {
		t.Fatalf("get: %+v %v %d %v", e, found, revision, err)
	}
	if now, err := s.Revision(ctx); err != nil || now != second {
		t.Fatalf("revision %d, %v: want %d", now, err, second)
	}
	third := remove(t, s, "/a")
	if _, found, revision, _ := s.Get(ctx, "/a"); found || revision != third {
		t.Fatalf("get of a deleted key: %v at %d", found, revision)
	}
	fourth := put(t, s, "/a", "3")
	if e, _, _, _ := s.Get(ctx, "/a"); e.Created != fourth {
		t.Fatalf("created again at %d, entry says %d", fourth, e.Created)
	}
	if _, err := s.Commit(ctx, storage.Txn{}); err == nil {
		t.Fatal("a commit without operations must be refused")
	}
	put(t, s, "/empty", "")
	if e, found, _, _ := s.Get(ctx, "/empty"); !found || len(e.Value) != 0 {
		t.Fatalf("empty value: %+v %v", e, found)
	}
}

func conditions(t *testing.T, s storage.Store) {
	ctx := t.Context()
	create := storage.Txn{
		If:   []storage.Condition{{Key: "/a"}},
		Then: []storage.Op{{Key: "/a", Value: []byte("1")}},
	}
	first, err := s.Commit(ctx, create)
	if err != nil {
		t.Fatal(err)
	}
	var conflict *storage.ConflictError
	if _, err := s.Commit(ctx, create); !errors.As(err, &conflict) {
		t.Fatalf("second create: %v", err)
	}
	if len(conflict.Current) != 1 || conflict.Current[0].Key != "/a" || conflict.Current[0].Revision != first {
		t.Fatalf("conflict says %+v", conflict.Current)
	}
	put(t, s, "/b", "1")
	mixed := storage.Txn{
		If:   []storage.Condition{{Key: "/a", Revision: first}, {Key: "/b", Revision: first}, {Key: "/c", Revision: 7}},
		Then: []storage.Op{{Key: "/a", Value: []byte("2")}, {Key: "/b"}},
	}
	before, _ := s.Revision(ctx)
	if _, err := s.Commit(ctx, mixed); !errors.As(err, &conflict) {
		t.Fatalf("mixed: %v", err)
	}
	var failed []string
	for _, e := range conflict.Current {
		failed = append(failed, fmt.Sprintf("%s@%d", e.Key, e.Revision))
	}
	if want := []string{fmt.Sprintf("/b@%d", before), "/c@0"}; !slices.Equal(failed, want) {
		t.Fatalf("failed conditions %v, want %v", failed, want)
	}
	if after, _ := s.Revision(ctx); after != before {
		t.Fatalf("a failed commit moved the revision from %d to %d", before, after)
	}
	if e, _, _, _ := s.Get(ctx, "/a"); string(e.Value) != "1" {
		t.Fatal("a failed commit wrote")
	}
}

func oneRevision(t *testing.T, s storage.Store) {
	revision := put(t, s, "/a", "1", "/b", "2", "/c", "3")
	page, err := s.List(t.Context(), "/", storage.ListOptions{})
	if err != nil || len(page.Entries) != 3 || page.Revision != revision {
		t.Fatalf("list: %+v %v", page, err)
	}
	for _, e := range page.Entries {
		if e.Revision != revision {
			t.Fatalf("%s is at %d, want %d", e.Key, e.Revision, revision)
		}
	}
}

func listPagesSnapshot(t *testing.T, s storage.Store) {
	ctx := t.Context()
	for i := range 7 {
		put(t, s, fmt.Sprintf("/p/%d", i), "x")
	}
	put(t, s, "/q/0", "other", "/p", "not below the prefix")
	page, err := s.List(ctx, "/p/", storage.ListOptions{Limit: 3})
	if err != nil || len(page.Entries) != 3 || !page.More || page.Remaining != 4 {
		t.Fatalf("first page: %+v %v", page, err)
	}
	at := page.Revision
	// What happens between pages does not show in later ones.
	remove(t, s, "/p/4")
	put(t, s, "/p/5", "changed")
	put(t, s, "/p/35", "new")
	var keys []string
	for {
		for _, e := range page.Entries {
			if string(e.Value) != "x" {
				t.Fatalf("%s shows a later state", e.Key)
			}
			keys = append(keys, e.Key)
		}
		if !page.More {
			break
		}
		from := page.Entries[len(page.Entries)-1].Key + "\x00"
		if page, err = s.List(ctx, "/p/", storage.ListOptions{Revision: at, From: from, Limit: 3}); err != nil {
			t.Fatal(err)
		}
		if page.Revision != at {
			t.Fatalf("page at %d, want %d", page.Revision, at)
		}
	}
	if want := []string{"/p/0", "/p/1", "/p/2", "/p/3", "/p/4", "/p/5", "/p/6"}; !slices.Equal(keys, want) {
		t.Fatalf("keys %v, want %v", keys, want)
	}
	if page, err := s.List(ctx, "/none/", storage.ListOptions{}); err != nil || len(page.Entries) != 0 || page.More {
		t.Fatalf("list of nothing: %+v %v", page, err)
	}
}

func listOldRevision(t *testing.T, s storage.Store) {
	ctx := t.Context()
	first := put(t, s, "/a", "1")
	put(t, s, "/a", "2")
	last := remove(t, s, "/a")
	page, err := s.List(ctx, "/", storage.ListOptions{Revision: first})
	if err != nil || len(page.Entries) != 1 || string(page.Entries[0].Value) != "1" {
		t.Fatalf("at %d: %+v %v", first, page, err)
	}
	if page, err := s.List(ctx, "/", storage.ListOptions{Revision: last}); err != nil || len(page.Entries) != 0 {
		t.Fatalf("at %d: %+v %v", last, page, err)
	}
	if _, err := s.List(ctx, "/", storage.ListOptions{Revision: last + 5}); !errors.Is(err, storage.ErrFutureRevision) {
		t.Fatalf("in the future: %v", err)
	}
}

func compaction(t *testing.T, s storage.Store) {
	ctx := t.Context()
	first := put(t, s, "/a", "1")
	second := put(t, s, "/a", "2")
	third := put(t, s, "/b", "1")
	if err := s.Compact(ctx, second); err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(ctx, "/", storage.ListOptions{Revision: first}); !errors.Is(err, storage.ErrCompacted) {
		t.Fatalf("list before the compaction: %v", err)
	}
	for _, at := range []int64{second, third} {
		if _, err := s.List(ctx, "/", storage.ListOptions{Revision: at}); err != nil {
			t.Fatalf("list at %d: %v", at, err)
		}
	}
	err := s.Watch(ctx, "/", storage.WatchOptions{After: first - 1, Previous: true}, func(storage.Batch) error { return errors.New("delivered compacted history") })
	if !errors.Is(err, storage.ErrCompacted) {
		t.Fatalf("watch from before the compaction: %v", err)
	}
	got := collect(t, s, "/", second, third)
	if len(got) != 1 || got[0].Key != "/b" {
		t.Fatalf("watch from the compaction on: %+v", got)
	}
	if err := s.Compact(ctx, third+10); !errors.Is(err, storage.ErrFutureRevision) {
		t.Fatalf("compact in the future: %v", err)
	}
	if err := s.Compact(ctx, first); !errors.Is(err, storage.ErrCompacted) {
		t.Fatalf("compact what is compacted: %v", err)
	}
}

var errDone = errors.New("done")

// collect watches until everything up to a revision has come.
func collect(t *testing.T, s storage.Store, prefix string, after, until int64) []storage.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var events []storage.Event
	position := after
	err := s.Watch(ctx, prefix, storage.WatchOptions{After: after, Previous: true}, func(b storage.Batch) error {
		if b.Revision < position {
			t.Errorf("batch at %d after one at %d", b.Revision, position)
		}
		position = b.Revision
		events = append(events, b.Events...)
		if b.Revision >= until {
			return errDone
		}
		return nil
	})
	if !errors.Is(err, errDone) {
		t.Fatalf("watch %s after %d: %v; got %d events", prefix, after, err, len(events))
	}
	return events
}

func watchFromRevision(t *testing.T, s storage.Store) {
	start := put(t, s, "/w/a", "0")
	r1 := put(t, s, "/w/a", "1")
	r2 := put(t, s, "/w/b", "1")
	put(t, s, "/x/c", "elsewhere")
	r3 := remove(t, s, "/w/a")
	r4 := put(t, s, "/w/a", "again")
	want := []storage.Event{
		{Key: "/w/a", Value: []byte("1"), Previous: []byte("0"), Revision: r1, PreviousRevision: start},
		{Key: "/w/b", Value: []byte("1"), Revision: r2},
		{Key: "/w/a", Previous: []byte("1"), Revision: r3, PreviousRevision: r1},
		{Key: "/w/a", Value: []byte("again"), Revision: r4},
	}
	sameEvents(t, collect(t, s, "/w/", start, r4), want)
	sameEvents(t, collect(t, s, "/w/", r2, r4), want[2:])

	// A watch that waits gets what happens later.
	later := make(chan []storage.Event, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		var events []storage.Event
		_ = s.Watch(ctx, "/w/", storage.WatchOptions{After: r4, Previous: true}, func(b storage.Batch) error {
			if events = append(events, b.Events...); len(events) > 0 {
				later <- events
				return errDone
			}
			return nil
		})
	}()
	r5 := put(t, s, "/w/d", "1")
	select {
	case got := <-later:
		sameEvents(t, got, []storage.Event{{Key: "/w/d", Value: []byte("1"), Revision: r5}})
	case <-time.After(20 * time.Second):
		t.Fatal("no event")
	}
}

func sameEvents(t *testing.T, got, want []storage.Event) {
	t.Helper()
	same := func(a, b storage.Event) bool {
		return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil) &&
			bytes.Equal(a.Previous, b.Previous) && a.Revision == b.Revision && a.PreviousRevision == b.PreviousRevision
	}
	if !slices.EqualFunc(got, want, same) {
		t.Fatalf("events\n%+v\nwant\n%+v", got, want)
	}
}

func watchKeepsRevisions(t *testing.T, s storage.Store) {
	start, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	for i := range 50 {
		last = put(t, s, "/w/a", fmt.Sprint(i), "/w/b", fmt.Sprint(i), "/w/c", fmt.Sprint(i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	seen := map[int64]int{}
	err = s.Watch(ctx, "/w/", storage.WatchOptions{After: start}, func(b storage.Batch) error {
		in := map[int64]int{}
		for _, e := range b.Events {
			in[e.Revision]++
		}
		for revision, n := range in {
			if seen[revision] > 0 {
				t.Errorf("revision %d came in two batches", revision)
			}
			seen[revision] = n
		}
		if b.Revision >= last {
			return errDone
		}
		return nil
	})
	if !errors.Is(err, errDone) || len(seen) != 50 {
		t.Fatalf("%v; %d revisions", err, len(seen))
	}
	for revision, n := range seen {
		if n != 3 {
			t.Fatalf("revision %d has %d events, want 3", revision, n)
		}
	}
}

// Progress covers commits that the watch is not concerned with, and never overtakes an event. A watch without Previous
// brings none.
func watchTellsProgress(t *testing.T, s storage.Store) {
	start := put(t, s, "/w/a", "1")
	changed := put(t, s, "/w/a", "2")
	elsewhere := put(t, s, "/x/a", "1")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	progress := make(chan struct{}, 1)
	var events []storage.Event
	err := s.Watch(ctx, "/w/", storage.WatchOptions{After: start, Progress: progress}, func(b storage.Batch) error {
		events = append(events, b.Events...)
		if b.Revision >= changed && len(events) == 0 {
			t.Error("progress overtook the event")
		}
		if b.Revision >= elsewhere {
			return errDone
		}
		select {
		case progress <- struct{}{}:
		default:
		}
		return nil
	})
	if !errors.Is(err, errDone) {
		t.Fatal(err)
	}
	if len(events) != 1 || string(events[0].Value) != "2" || events[0].Previous != nil || events[0].PreviousRevision != 0 {
		t.Fatalf("events %+v", events)
	}
}

func watchStopsAndFails(t *testing.T, s storage.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Watch(ctx, "/", storage.WatchOptions{}, func(storage.Batch) error { return nil }) }()
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled watch: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a cancelled watch does not end")
	}
	if _, err := s.Commit(ctx, storage.Txn{Then: []storage.Op{{Key: "/a"}}}); !errors.Is(err, context.Canceled) {
		t.Fatalf("commit with a cancelled context: %v", err)
	}
}

func manyOperations(t *testing.T, s storage.Store) {
	const n = 5000 // the largest gang
	var (
		prefix   string
		txn      storage.Txn
		revision int64
		err      error
	)
	// What does not end within the store's own patience may happen or not. On a busy machine that says nothing, and other
	// keys are tried.
	for try := range 5 {
		prefix, txn = fmt.Sprintf("/m%d/", try), storage.Txn{}
		for i := range n {
			key := fmt.Sprintf("%s%04d", prefix, i)
			txn.If = append(txn.If, storage.Condition{Key: key})
			txn.Then = append(txn.Then, storage.Op{Key: key, Value: bytes.Repeat([]byte("x"), 1200)})
		}
		if revision, err = s.Commit(t.Context(), txn); !errors.Is(err, storage.ErrUnavailable) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	page, err := s.List(t.Context(), prefix, storage.ListOptions{})
	if err != nil || len(page.Entries) != n || page.Entries[n-1].Revision != revision {
		t.Fatalf("%d entries, %v", len(page.Entries), err)
	}
	got := collect(t, s, prefix, revision-1, revision)
	if len(got) != n {
		t.Fatalf("%d events, want %d", len(got), n)
	}
	for i := range 6000 {
		txn.Then = append(txn.Then, storage.Op{Key: fmt.Sprintf("/n/%d", i), Value: []byte("x")})
	}
	if _, err := s.Commit(t.Context(), txn); !errors.Is(err, storage.ErrTooLarge) {
		t.Fatalf("11,000 operations: %v", err)
	}
}

// concurrent writers each count a key up under conditions: no write may be lost.
func concurrent(t *testing.T, s storage.Store) {
	const writers, each = 8, 10
	errs := make(chan error, writers)
	for range writers {
		go func() {
			errs <- func() error {
				for range each {
					for {
						e, _, _, err := s.Get(t.Context(), "/n")
						if err != nil {
							return err
						}
						_, err = s.Commit(t.Context(), storage.Txn{
							If:   []storage.Condition{{Key: "/n", Revision: e.Revision}},
							Then: []storage.Op{{Key: "/n", Value: append(slices.Clip(e.Value), 'x')}},
						})
						var conflict *storage.ConflictError
						if errors.As(err, &conflict) {
							continue
						}
						if err != nil {
							return err
						}
						break
					}
				}
				return nil
			}()
		}()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if e, _, _, _ := s.Get(t.Context(), "/n"); len(e.Value) != writers*each {
		t.Fatalf("%d writes survived of %d", len(e.Value), writers*each)
	}
}
