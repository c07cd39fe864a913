package storagetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"trireme.dev/services/apiserver/internal/storage"
)

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

// boundaries are keys around the edges of prefixes.
var boundaries = []string{"/a", "/a.b", "/a/", "/a/b", "/a/b/", "/a/b/c", "/a/b0", "/a/bc", "/a/bc/d", "/a0", "/b"}

func putBoundaries(t *testing.T, s storage.Store) int64 {
	var all []string
	for _, key := range boundaries {
		all = append(all, key, key)
	}
	return put(t, s, all...)
}

func withPrefix(prefix string) []string {
	var out []string
	for _, key := range boundaries {
		if strings.HasPrefix(key, prefix) {
			out = append(out, key)
		}
	}
	return out
}

func keysOf(entries []storage.Entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.Key)
	}
	return out
}

var prefixes = []string{"", "/", "/a", "/a/", "/a/b", "/a/b/", "/a/b/c", "/a/bc", "/a0", "/b", "/none/"}

func listPrefixes(t *testing.T, s storage.Store) {
	revision := putBoundaries(t, s)
	for _, prefix := range prefixes {
		for _, at := range []int64{0, revision} {
			page, err := s.List(t.Context(), prefix, storage.ListOptions{Revision: at})
			if err != nil || page.Revision != revision || page.More || page.Remaining != 0 {
				t.Errorf("%q: %+v, %v", prefix, page, err)
			}
			if got, want := keysOf(page.Entries), withPrefix(prefix); !slices.Equal(got, want) {
				t.Errorf("%q has %q, want %q", prefix, got, want)
			}
		}
	}
}

// listBounds: From is included, counts only within the prefix, and a limit leaves exactly what it says.
func listBounds(t *testing.T, s storage.Store) {
	revision := put(t, s, "/l/a", "1", "/l/b", "1", "/l/c", "1", "/l/d", "1", "/k", "outside", "/m", "outside")
	remove(t, s, "/l/c")
	for _, c := range []struct {
		from      string
		limit     int64
		at        int64
		want      string
		remaining int64
	}{
		{"", 0, 0, "a b d", 0},
		{"/k", 0, 0, "a b d", 0},
		{"/l/b", 0, 0, "b d", 0},
		{"/l/b\x00", 0, 0, "d", 0},
		{"/l/c", 0, 0, "d", 0},
		{"/l/d\x00", 0, 0, "", 0},
		{"/m", 0, 0, "", 0},
		{"", 3, 0, "a b d", 0},
		{"", 2, 0, "a b", 1},
		{"/l/b", 1, 0, "b", 1},
		{"", 9, 0, "a b d", 0},
		{"", 1, revision, "a", 3},
		{"/l/b", 2, revision, "b c", 1},
		{"/l/b", 3, revision, "b c d", 0},
	} {
		page, err := s.List(t.Context(), "/l/", storage.ListOptions{From: c.from, Limit: c.limit, Revision: c.at})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range page.Entries {
			names = append(names, strings.TrimPrefix(e.Key, "/l/"))
		}
		if got := strings.Join(names, " "); got != c.want || page.Remaining != c.remaining || page.More != (c.remaining > 0) {
			t.Errorf("%+v: %q, %d remaining, more %v", c, got, page.Remaining, page.More)
		}
	}
}

// listsAreSnapshots: keys that change together are never seen apart, nor is one page of another time than the next.
func listsAreSnapshots(t *testing.T, s storage.Store) {
	put(t, s, "/s/a", "0", "/s/b", "0", "/s/c", "0")
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := 1; ctx.Err() == nil; i++ {
			value := []byte(fmt.Sprint(i))
			_, err := s.Commit(ctx, storage.Txn{Then: []storage.Op{{Key: "/s/a", Value: value}, {Key: "/s/b", Value: value}, {Key: "/s/c", Value: value}}})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	defer writing.Wait()
	defer stop()
	for range 60 {
		first, err := s.List(t.Context(), "/s/", storage.ListOptions{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		rest, err := s.List(t.Context(), "/s/", storage.ListOptions{Revision: first.Revision, From: "/s/a\x00"})
		if err != nil || len(rest.Entries) != 2 || rest.Revision != first.Revision {
			t.Fatalf("%+v, %v", rest, err)
		}
		for _, e := range rest.Entries {
			if string(e.Value) != string(first.Entries[0].Value) || e.Revision > first.Revision || e.Revision != first.Entries[0].Revision {
				t.Fatalf("at %d: %+v beside %+v", first.Revision, e, first.Entries[0])
			}
		}
	}
}

// everyRevision of a random history is read again, and watched from: it must be what a map would have been.
func everyRevision(t *testing.T, s storage.Store) {
	h := newHistory(t, s, rand.Uint64())
	for range 60 {
		h.step()
	}
	h.check(h.start)
}

// compactionOfAnyOne revision leaves everything from it on as it was, and nothing before it.
func compactionOfAnyOne(t *testing.T, s storage.Store) {
	h := newHistory(t, s, rand.Uint64())
	for range 40 {
		h.step()
	}
	last := h.start
	for range 4 {
		at := last + 1 + h.random.Int64N(8)
		if err := s.Compact(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		last = at
		h.check(at)
		for _, before := range []int64{h.start, at - 1} {
			if _, err := s.List(t.Context(), "/h/", storage.ListOptions{Revision: before}); !errors.Is(err, storage.ErrCompacted) {
				t.Errorf("list at %d, compacted up to %d: %v", before, at, err)
			}
		}
	}
	for range 5 {
		h.step() // life goes on
	}
	h.check(last)
}

// history is a store beside what it must be.
type history struct {
	t      *testing.T
	store  storage.Store
	random *rand.Rand
	start  int64
	states map[int64]map[string]storage.Entry // by revision
	events []storage.Event
	now    map[string]storage.Entry
}

func newHistory(t *testing.T, s storage.Store, seed uint64) *history {
	t.Logf("seed %d", seed)
	h := &history{t: t, store: s, random: rand.New(rand.NewPCG(seed, 0)), now: map[string]storage.Entry{}}
	h.start = revisionNow(t, s)
	h.states = map[int64]map[string]storage.Entry{h.start: {}}
	return h
}

// step commits a few random operations.
func (h *history) step() {
	h.t.Helper()
	var txn storage.Txn
	for _, i := range h.random.Perm(6)[:1+h.random.IntN(3)] {
		op := storage.Op{Key: fmt.Sprintf("/h/%d/%d", i%2, i)}
		current := h.now[op.Key]
		if h.random.IntN(3) > 0 || current.Revision == 0 && len(txn.Then) == 0 {
			op.Value = []byte(fmt.Sprint(h.random.IntN(1000)))
		}
		if h.random.IntN(2) == 0 {
			txn.If = append(txn.If, storage.Condition{Key: op.Key, Revision: current.Revision})
		}
		txn.Then = append(txn.Then, op)
	}
	revision, err := h.store.Commit(h.t.Context(), txn)
	if err != nil {
		h.t.Fatal(err)
	}
	next := map[string]storage.Entry{}
	for k, v := range h.now {
		next[k] = v
	}
	for _, op := range txn.Then {
		old, existed := h.now[op.Key]
		event := storage.Event{Key: op.Key, Value: op.Value, Revision: revision, Previous: old.Value, PreviousRevision: old.Revision}
		switch {
		case op.Value != nil:
			entry := storage.Entry{Key: op.Key, Value: op.Value, Revision: revision, Created: revision}
			if existed {
				entry.Created = old.Created
			}
			next[op.Key] = entry
		case !existed:
			continue
		default:
			delete(next, op.Key)
		}
		h.events = append(h.events, event)
	}
	h.now, h.states[revision] = next, next
}

// check reads each revision from one on, and watches from each.
func (h *history) check(from int64) {
	h.t.Helper()
	last := revisionNow(h.t, h.store)
	var watching sync.WaitGroup
	defer watching.Wait()
	for at := from; at <= last; at++ {
		state, ok := h.states[at]
		if !ok {
			h.t.Fatalf("revision %d came from nowhere", at)
		}
		for _, prefix := range []string{"/h/", "/h/1/"} {
			var want []storage.Entry
			for key, e := range state {
				if strings.HasPrefix(key, prefix) {
					want = append(want, e)
				}
			}
			slices.SortFunc(want, func(a, b storage.Entry) int { return strings.Compare(a.Key, b.Key) })
			page, err := h.store.List(h.t.Context(), prefix, storage.ListOptions{Revision: at})
			if err != nil || page.Revision != at {
				h.t.Fatalf("list %s at %d: %d, %v", prefix, at, page.Revision, err)
			}
			sameEntries(h.t, page.Entries, want)
		}
		prefix := []string{"/h/", "/h/1/"}[at%2]
		if h.lastOf(prefix) <= at {
			continue
		}
		watching.Go(func() {
			var want []storage.Event
			for _, e := range h.events {
				if e.Revision > at && strings.HasPrefix(e.Key, prefix) {
					want = append(want, e)
				}
			}
			got, err := gather(h.t.Context(), h.store, prefix, at, h.lastOf(prefix))
			if err != nil || !slices.EqualFunc(byKey(got), byKey(want), sameEvent) {
				h.t.Errorf("watch %s from %d: %v; events\n%+v\nwant\n%+v", prefix, at, err, got, want)
			}
		})
	}
}

// lastOf returns the revision of the last event with a prefix: a watch of it comes so far without anybody asking.
func (h *history) lastOf(prefix string) int64 {
	for i := len(h.events) - 1; i >= 0; i-- {
		if strings.HasPrefix(h.events[i].Key, prefix) {
			return h.events[i].Revision
		}
	}
	return h.start
}
