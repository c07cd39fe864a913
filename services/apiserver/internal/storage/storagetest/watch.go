package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"trireme.dev/services/apiserver/internal/storage"
)

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
	case <-time.After(patience):
		t.Fatal("no event")
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
	start := put(t, s, "/a", "1")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, "/", storage.WatchOptions{After: start}, func(storage.Batch) error { return nil })
	}()
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled watch: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("a cancelled watch does not end")
	}
	// What emit says ends the watch, and nothing is emitted after.
	refused, calls := errors.New("refused"), 0
	put(t, s, "/a", "2")
	put(t, s, "/a", "3")
	err := s.Watch(t.Context(), "/", storage.WatchOptions{After: start}, func(storage.Batch) error { calls++; return refused })
	if !errors.Is(err, refused) || calls != 1 {
		t.Fatalf("emit failed, the watch said %v after %d calls", err, calls)
	}
	if _, err := s.Commit(ctx, storage.Txn{Then: []storage.Op{{Key: "/a"}}}); !errors.Is(err, context.Canceled) {
		t.Fatalf("commit with a cancelled context: %v", err)
	}
}

// watchFromTheFuture waits: what lies before its revision is not for it, and it claims to be nowhere it is not.
func watchFromTheFuture(t *testing.T, s storage.Store) {
	start := put(t, s, "/w/a", "0")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	progress := make(chan struct{}, 1)
	progress <- struct{}{}
	var events []storage.Event
	var committed sync.WaitGroup
	defer committed.Wait()
	var mu sync.Mutex
	now := start // of the store, at least
	committed.Go(func() {
		for i := range 4 {
			mu.Lock()
			now++
			mu.Unlock()
			if _, err := s.Commit(ctx, storage.Txn{Then: []storage.Op{{Key: "/w/a", Value: []byte(fmt.Sprint(i + 1))}}}); err != nil {
				t.Error(err)
				cancel()
			}
		}
	})
	err := s.Watch(ctx, "/w/", storage.WatchOptions{After: start + 3, Progress: progress}, func(b storage.Batch) error {
		mu.Lock()
		if b.Revision > now {
			t.Errorf("claims to be at %d, the store is at %d", b.Revision, now)
		}
		mu.Unlock()
		if events = append(events, b.Events...); len(events) > 0 {
			return errDone
		}
		return nil
	})
	if !errors.Is(err, errDone) {
		t.Fatal(err)
	}
	sameEvents(t, events, []storage.Event{{Key: "/w/a", Value: []byte("4"), Revision: start + 4}})
}

func watchPrefixes(t *testing.T, s storage.Store) {
	start := revisionNow(t, s)
	revision := putBoundaries(t, s)
	for _, prefix := range prefixes {
		want := withPrefix(prefix)
		if len(want) == 0 {
			continue
		}
		var got []string
		for _, e := range byKey(collect(t, s, prefix, start, revision)) {
			got = append(got, e.Key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q brings %q, want %q", prefix, got, want)
		}
	}
}

// watchEmptyValues: a value without bytes is one, and no deletion.
func watchEmptyValues(t *testing.T, s storage.Store) {
	start := revisionNow(t, s)
	put(t, s, "/w/a", "")
	put(t, s, "/w/a", "1")
	put(t, s, "/w/a", "")
	last := remove(t, s, "/w/a")
	var got []string
	for _, e := range collect(t, s, "/w/", start, last) {
		got = append(got, fmt.Sprintf("%q %v", e.Value, e.Value == nil))
	}
	if want := []string{`"" false`, `"1" false`, `"" false`, `"" true`}; !slices.Equal(got, want) {
		t.Fatalf("values, and whether deleted: %q, want %q", got, want)
	}
}

// watchersAgree: many who watch while others write, from wherever they begin and however slow, see the same.
func watchersAgree(t *testing.T, s storage.Store) {
	const writers, each, watchers = 4, 30, 12
	start := put(t, s, "/w/mark", "0")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	streams := make([][]storage.Event, watchers)
	var watching, writing sync.WaitGroup
	watch := func(i int) {
		watching.Go(func() {
			position := start
			err := s.Watch(ctx, "/w/", storage.WatchOptions{After: start, Previous: true}, func(b storage.Batch) error {
				if b.Revision < position {
					t.Errorf("batch at %d after %d", b.Revision, position)
				}
				for _, e := range b.Events {
					if e.Revision <= position || e.Revision > b.Revision {
						t.Errorf("event of %d in the batch between %d and %d", e.Revision, position, b.Revision)
					}
				}
				position = b.Revision
				for _, e := range b.Events {
					streams[i] = append(streams[i], e)
					if e.Key == "/w/end" {
						return errDone
					}
				}
				return nil
			})
			if !errors.Is(err, errDone) {
				t.Error(err)
			}
		})
	}
	for i := range watchers / 2 {
		watch(i)
	}
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				op := storage.Op{Key: fmt.Sprint("/w/", (w+i)%5), Value: []byte(fmt.Sprint(w, " ", i))}
				if i%7 == 0 {
					op.Value = nil
				}
				if _, err := s.Commit(ctx, storage.Txn{Then: []storage.Op{op, {Key: fmt.Sprint("/w/of", w), Value: []byte(fmt.Sprint(i))}}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range watchers / 2 {
		watch(watchers/2 + i)
	}
	writing.Wait()
	put(t, s, "/w/end", "1")
	watching.Wait()
	if t.Failed() {
		return
	}
	// A chain without gaps: each event's previous revision is that of the key's event before.
	last := map[string]int64{}
	for _, e := range streams[0] {
		if e.PreviousRevision != last[e.Key] {
			t.Fatalf("%s at %d follows %d, the one before was %d", e.Key, e.Revision, e.PreviousRevision, last[e.Key])
		}
		if last[e.Key] = e.Revision; e.Value == nil {
			last[e.Key] = 0
		}
	}
	for i := range streams {
		sameEvents(t, byKey(streams[i]), byKey(streams[0]))
	}
}

// watchUnderWay: a watch that has come so far is not touched by compactions, and hears of what follows.
func watchUnderWay(t *testing.T, s storage.Store) {
	start := put(t, s, "/w/a", "0")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	events := make(chan storage.Event, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, "/w/", storage.WatchOptions{After: start, Previous: true}, func(b storage.Batch) error {
			for _, e := range b.Events {
				events <- e
			}
			return nil
		})
	}()
	before := start
	for i := range 5 {
		revision := put(t, s, "/w/a", fmt.Sprint(i+1))
		select {
		case e := <-events:
			sameEvents(t, []storage.Event{e}, []storage.Event{{
				Key: "/w/a", Value: []byte(fmt.Sprint(i + 1)), Previous: []byte(fmt.Sprint(i)), Revision: revision, PreviousRevision: before,
			}})
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(patience):
			t.Fatal("no event")
		}
		before = revision
		if err := s.Compact(ctx, revision); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// watchBehind: a watch that is held up while history is compacted away either goes on with what comes next or says that
// it is gone. Nothing in between is left out.
func watchBehind(t *testing.T, s storage.Store) {
	start := put(t, s, "/w/a", "0")
	held, release := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ended := make(chan error, 1)
	var revisions []int64
	const writes = 40
	go func() {
		once := sync.OnceFunc(func() { close(held); <-release })
		ended <- s.Watch(ctx, "/w/", storage.WatchOptions{After: start}, func(b storage.Batch) error {
			for _, e := range b.Events {
				revisions = append(revisions, e.Revision)
			}
			if len(revisions) == writes {
				return errDone
			}
			once()
			return nil
		})
	}()
	var last int64
	for i := range writes {
		last = put(t, s, "/w/a", fmt.Sprint(i+1))
		if i == 0 {
			<-held
		}
	}
	if err := s.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	close(release)
	err := <-ended
	for i, revision := range revisions {
		if revision != start+1+int64(i) {
			t.Fatalf("revisions %v after %d: one is missing", revisions, start)
		}
	}
	if !errors.Is(err, storage.ErrCompacted) && !errors.Is(err, errDone) {
		t.Fatalf("%v after %d events", err, len(revisions))
	}
}

// watchFromATombstone: the revision at which history was cut is a deletion. Who watches from just before it hears of the
// deletion, or that it is too late, and never of what follows alone.
func watchFromATombstone(t *testing.T, s storage.Store) {
	put(t, s, "/w/a", "1")
	gone := remove(t, s, "/w/a")
	last := put(t, s, "/w/b", "1")
	if err := s.Compact(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	for _, previous := range []bool{false, true} {
		var events []storage.Event
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := s.Watch(ctx, "/w/", storage.WatchOptions{After: gone - 1, Previous: previous}, func(b storage.Batch) error {
			if events = append(events, b.Events...); b.Revision >= last {
				return errDone
			}
			return nil
		})
		cancel()
		whole := errors.Is(err, errDone) && len(events) == 2 && events[0].Revision == gone && events[1].Revision == last
		if !whole && !(errors.Is(err, storage.ErrCompacted) && len(events) == 0) {
			t.Errorf("previous %v: %+v, %v", previous, events, err)
		}
		if whole && previous && events[0].Previous == nil {
			t.Error("a deletion without its previous value")
		}
	}
	// From the cut on everything is there.
	sameEvents(t, collect(t, s, "/w/", gone, last), []storage.Event{{Key: "/w/b", Value: []byte("1"), Revision: last}})
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

// watchesEndTogether holds that watches that end at once, while they still read history, do not wait for each other.
func watchesEndTogether(t *testing.T, s storage.Store) {
	start := put(t, s, "/w/a", "0")
	for i := range 100 {
		put(t, s, "/w/a", fmt.Sprint(i))
	}
	within(t, "one of many watches", func() {
		var watching sync.WaitGroup
		defer watching.Wait()
		for range 300 {
			watching.Go(func() {
				err := s.Watch(t.Context(), "/w/", storage.WatchOptions{After: start}, func(storage.Batch) error { return errDone })
				if !errors.Is(err, errDone) {
					t.Errorf("a watch ends with %v", err)
				}
			})
		}
	})
}
