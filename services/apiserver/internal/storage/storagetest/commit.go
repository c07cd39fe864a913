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

// putsAndDeletes of one commit share its revision; who is updated keeps the revision of its creation.
func putsAndDeletes(t *testing.T, s storage.Store) {
	first := put(t, s, "/m/a", "1", "/m/b", "1")
	revision, err := s.Commit(t.Context(), storage.Txn{
		If: []storage.Condition{{Key: "/m/a", Revision: first}, {Key: "/m/c"}, {Key: "/elsewhere"}},
		Then: []storage.Op{
			{Key: "/m/c", Value: []byte("new")}, {Key: "/m/a", Value: []byte("2")}, {Key: "/m/b"}, {Key: "/m/none"},
		},
	})
	if err != nil || revision != first+1 {
		t.Fatalf("revision %d after %d, %v", revision, first, err)
	}
	page, err := s.List(t.Context(), "/m/", storage.ListOptions{})
	if err != nil || page.Revision != revision {
		t.Fatalf("%+v, %v", page, err)
	}
	sameEntries(t, page.Entries, []storage.Entry{
		{Key: "/m/a", Value: []byte("2"), Revision: revision, Created: first},
		{Key: "/m/c", Value: []byte("new"), Revision: revision, Created: revision},
	})
	sameEvents(t, byKey(collect(t, s, "/m/", first, revision)), []storage.Event{
		{Key: "/m/a", Value: []byte("2"), Previous: []byte("1"), Revision: revision, PreviousRevision: first},
		{Key: "/m/b", Previous: []byte("1"), Revision: revision, PreviousRevision: first},
		{Key: "/m/c", Value: []byte("new"), Revision: revision},
	})
}

// byKey orders events by revision and key: within a revision any order will do.
func byKey(events []storage.Event) []storage.Event {
	slices.SortStableFunc(events, func(a, b storage.Event) int {
		if a.Revision != b.Revision {
			return int(a.Revision - b.Revision)
		}
		return bytes.Compare([]byte(a.Key), []byte(b.Key))
	})
	return events
}

func sameEntries(t *testing.T, got, want []storage.Entry) {
	t.Helper()
	same := func(a, b storage.Entry) bool {
		return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && a.Revision == b.Revision && a.Created == b.Created
	}
	if !slices.EqualFunc(got, want, same) {
		t.Fatalf("entries\n%+v\nwant\n%+v", got, want)
	}
}

// deletingNothing is no change: neither the revision moves nor does a watcher hear of it.
func deletingNothing(t *testing.T, s storage.Store) {
	before := put(t, s, "/d/a", "1")
	if after := remove(t, s, "/d/none"); after != before {
		t.Fatalf("deleting nothing moved the revision from %d to %d", before, after)
	}
	last := put(t, s, "/d/a", "2")
	if last != before+1 {
		t.Fatalf("revision %d after %d", last, before)
	}
	if got := collect(t, s, "/d/", before, last); len(got) != 1 || got[0].Key != "/d/a" {
		t.Fatalf("events %+v", got)
	}
}

// keyTwice in one commit is refused as a whole.
func keyTwice(t *testing.T, s storage.Store) {
	before := put(t, s, "/t/a", "1")
	for name, then := range map[string][]storage.Op{
		"two puts":          {{Key: "/t/b", Value: []byte("1")}, {Key: "/t/a", Value: []byte("2")}, {Key: "/t/a", Value: []byte("3")}},
		"put and delete":    {{Key: "/t/b", Value: []byte("1")}, {Key: "/t/a", Value: []byte("2")}, {Key: "/t/a"}},
		"delete and put":    {{Key: "/t/b", Value: []byte("1")}, {Key: "/t/a"}, {Key: "/t/a", Value: []byte("2")}},
		"two absent, twice": {{Key: "/t/c", Value: []byte("1")}, {Key: "/t/c", Value: []byte("1")}},
	} {
		if revision, err := s.Commit(t.Context(), storage.Txn{Then: then}); err == nil {
			t.Errorf("%s: committed at %d", name, revision)
		}
	}
	page, err := s.List(t.Context(), "/t/", storage.ListOptions{})
	if err != nil || len(page.Entries) != 1 || page.Entries[0].Revision != before {
		t.Fatalf("%+v, %v", page, err)
	}
}

// failuresLeaveNothing: no commit that is refused, for whatever reason, shows in the state, its history or a watch.
func failuresLeaveNothing(t *testing.T, s storage.Store) {
	start := put(t, s, "/f/a", "1")
	var conflict *storage.ConflictError
	for _, txn := range []storage.Txn{
		{If: []storage.Condition{{Key: "/f/a"}}, Then: []storage.Op{{Key: "/f/a", Value: []byte("2")}, {Key: "/f/b", Value: []byte("2")}}},
		{If: []storage.Condition{{Key: "/f/a", Revision: start}, {Key: "/f/b", Revision: start}}, Then: []storage.Op{{Key: "/f/a"}}},
		{If: []storage.Condition{{Key: "/f/a", Revision: start - 1}}, Then: []storage.Op{{Key: "/f/c", Value: []byte("2")}}},
		{If: []storage.Condition{{Key: "/f/a", Revision: start + 1}}, Then: []storage.Op{{Key: "/f/c", Value: []byte("2")}}},
	} {
		if _, err := s.Commit(t.Context(), txn); !errors.As(err, &conflict) {
			t.Fatalf("%+v: %v", txn, err)
		}
	}
	last := put(t, s, "/f/z", "1")
	if last != start+1 {
		t.Fatalf("refused commits moved the revision from %d to %d", start, last-1)
	}
	sameEvents(t, collect(t, s, "/f/", start, last), []storage.Event{{Key: "/f/z", Value: []byte("1"), Revision: last}})
	// A key that was there and is gone is as one that never was.
	gone := remove(t, s, "/f/a")
	_, err := s.Commit(t.Context(), storage.Txn{
		If: []storage.Condition{{Key: "/f/a", Revision: gone}}, Then: []storage.Op{{Key: "/f/a", Value: []byte("2")}},
	})
	if !errors.As(err, &conflict) || len(conflict.Current) != 1 || conflict.Current[0].Revision != 0 {
		t.Fatalf("condition on a deleted key: %v", err)
	}
	if _, err := s.Commit(t.Context(), storage.Txn{
		If: []storage.Condition{{Key: "/f/a"}}, Then: []storage.Op{{Key: "/f/a", Value: []byte("2")}},
	}); err != nil {
		t.Fatal(err)
	}
}

// manyOperations in one commit are a gang; more than the store takes are refused and named.
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

// largeValues pass whole through every read; what is larger than the store takes is refused and named.
func largeValues(t *testing.T, s storage.Store) {
	ctx := t.Context()
	value := bytes.Repeat([]byte("0123456789abcdef"), 5<<16) // 5 MiB
	start := revisionNow(t, s)
	revision, err := s.Commit(ctx, storage.Txn{Then: []storage.Op{{Key: "/v/a", Value: value}, {Key: "/v/b", Value: value}}})
	if err != nil {
		t.Fatal(err)
	}
	if e, _, _, err := s.Get(ctx, "/v/a"); err != nil || !bytes.Equal(e.Value, value) {
		t.Fatalf("get: %d bytes, %v", len(e.Value), err)
	}
	page, err := s.List(ctx, "/v/", storage.ListOptions{})
	if err != nil || len(page.Entries) != 2 || !bytes.Equal(page.Entries[1].Value, value) {
		t.Fatalf("list: %v", err)
	}
	got := collect(t, s, "/v/", start, revision)
	if len(got) != 2 || !bytes.Equal(got[0].Value, value) || !bytes.Equal(got[1].Value, value) {
		t.Fatalf("watch: %d events", len(got))
	}
	if _, err := s.Commit(ctx, storage.Txn{Then: []storage.Op{{Key: "/v/c", Value: make([]byte, 33<<20)}}}); !errors.Is(err, storage.ErrTooLarge) {
		t.Fatalf("33 MiB: %v", err)
	}
	if now := revisionNow(t, s); now != revision {
		t.Fatalf("what was refused moved the revision from %d to %d", revision, now)
	}
}

// anyBytes are good for a value, and any but none for a key.
func anyBytes(t *testing.T, s storage.Store) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	key := "/b/" + string(all)
	revision := put(t, s, key, string(all), "/b/\xff", "last", "/b/\xff\xff", "very last")
	if e, found, _, err := s.Get(t.Context(), key); err != nil || !found || !bytes.Equal(e.Value, all) || e.Key != key {
		t.Fatalf("%+v %v %v", e, found, err)
	}
	page, err := s.List(t.Context(), "/b/\xff", storage.ListOptions{})
	if err != nil || len(page.Entries) != 2 || page.Entries[1].Key != "/b/\xff\xff" {
		t.Fatalf("%+v %v", page, err)
	}
	if got := collect(t, s, "/b/\xff", revision-1, revision); len(got) != 2 {
		t.Fatalf("events %+v", got)
	}
}

// endedContexts end calls with their error, and what had not begun by then never happens.
func endedContexts(t *testing.T, s storage.Store) {
	start := put(t, s, "/e/a", "1")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancelLate()
	for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: late} {
		for name, call := range map[string]func() error{
			"get":  func() error { _, _, _, err := s.Get(ctx, "/e/a"); return err },
			"list": func() error { _, err := s.List(ctx, "/e/", storage.ListOptions{}); return err },
			"commit": func() error {
				_, err := s.Commit(ctx, storage.Txn{Then: []storage.Op{{Key: "/e/b", Value: []byte("1")}}})
				return err
			},
			"revision": func() error { _, err := s.Revision(ctx); return err },
			"compact":  func() error { return s.Compact(ctx, start) },
			"watch": func() error {
				return s.Watch(ctx, "/e/", storage.WatchOptions{After: start}, func(storage.Batch) error { return nil })
			},
		} {
			within(t, name, func() {
				if err := call(); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
			})
		}
	}
	if now := revisionNow(t, s); now != start {
		t.Fatalf("calls that had ended moved the revision from %d to %d", start, now)
	}
}
