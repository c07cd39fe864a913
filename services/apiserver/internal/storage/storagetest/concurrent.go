package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"trireme.dev/services/apiserver/internal/storage"
)

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

// createOnce: of many who create a key at once one succeeds, and the others are told of its revision.
func createOnce(t *testing.T, s storage.Store) {
	for round := range 10 {
		key := fmt.Sprint("/once/", round)
		var mu sync.Mutex
		var won, told []int64
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				revision, err := s.Commit(t.Context(), storage.Txn{
					If: []storage.Condition{{Key: key}}, Then: []storage.Op{{Key: key, Value: []byte(fmt.Sprint(i))}},
				})
				var conflict *storage.ConflictError
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won = append(won, revision)
				case errors.As(err, &conflict) && len(conflict.Current) == 1:
					told = append(told, conflict.Current[0].Revision)
				default:
					t.Errorf("create: %v", err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%s was created %d times", key, len(won))
		}
		for _, revision := range told {
			if revision != won[0] {
				t.Errorf("created at %d, a loser was told of %d", won[0], revision)
			}
		}
	}
}

// noWriteSkew: two commits of which each depends on the key that the other writes cannot both succeed, however they are
// brought to the store together.
func noWriteSkew(t *testing.T, s storage.Store) {
	for round := range 4 {
		var pairs sync.WaitGroup
		for pair := range 20 {
			pairs.Go(func() {
				a, b := fmt.Sprintf("/skew/%d/%d/a", round, pair), fmt.Sprintf("/skew/%d/%d/b", round, pair)
				results := make(chan error, 2)
				for _, keys := range [][2]string{{a, b}, {b, a}} {
					go func() {
						_, err := s.Commit(t.Context(), storage.Txn{
							If: []storage.Condition{{Key: keys[0]}}, Then: []storage.Op{{Key: keys[1], Value: []byte("1")}},
						})
						results <- err
					}()
				}
				succeeded := 0
				for range 2 {
					var conflict *storage.ConflictError
					if err := <-results; err == nil {
						succeeded++
					} else if !errors.As(err, &conflict) {
						t.Error(err)
					}
				}
				if succeeded != 1 {
					t.Errorf("%s: %d of two commits succeeded of which each excludes the other", a, succeeded)
				}
			})
		}
		pairs.Wait()
	}
}

// eachItsOwnAnswer: whatever commits are under way together, each succeeds or fails for reasons of its own.
func eachItsOwnAnswer(t *testing.T, s storage.Store) {
	before := put(t, s, "/own/taken", "1")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	var tooMany storage.Txn
	for i := range 11000 {
		tooMany.Then = append(tooMany.Then, storage.Op{Key: fmt.Sprint("/own/many/", i), Value: []byte("x")})
	}
	var mu sync.Mutex
	wrote := map[string]int64{}
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			key := fmt.Sprintf("/own/%02d", i)
			txn := storage.Txn{If: []storage.Condition{{Key: key}}, Then: []storage.Op{{Key: key, Value: []byte(key)}}}
			ctx, want := t.Context(), ""
			var conflict *storage.ConflictError
			switch i % 6 {
			case 0:
				txn.If = append(txn.If, storage.Condition{Key: "/own/taken"})
				want = "conflict"
			case 1:
				ctx, want = cancelled, "cancelled"
			case 2:
				txn, want = tooMany, "too large"
			case 3:
				txn.Then = append(txn.Then, txn.Then[0])
				want = "refused"
			}
			revision, err := s.Commit(ctx, txn)
			got := ""
			switch {
			case err == nil:
			case errors.As(err, &conflict):
				got = "conflict"
				if len(conflict.Current) != 1 || conflict.Current[0].Key != "/own/taken" || conflict.Current[0].Revision != before {
					t.Errorf("%s: conflict names %+v", key, conflict.Current)
				}
			case errors.Is(err, context.Canceled):
				got = "cancelled"
			case errors.Is(err, storage.ErrTooLarge):
				got = "too large"
			default:
				got = "refused"
			}
			if got != want {
				t.Errorf("%s: %q (%v), want %q", key, got, err, want)
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				wrote[key] = revision
			}
		})
	}
	wg.Wait()
	page, err := s.List(t.Context(), "/own/", storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Entries) != len(wrote)+1 || len(wrote) != 20 {
		t.Errorf("%d keys, %d were written", len(page.Entries)-1, len(wrote))
	}
	for _, e := range page.Entries {
		if e.Key != "/own/taken" && (wrote[e.Key] != e.Revision || e.Created != e.Revision || string(e.Value) != e.Key) {
			t.Errorf("%s at %d, created %d: its writer was told of %d", e.Key, e.Revision, e.Created, wrote[e.Key])
		}
	}
	events := collect(t, s, "/own/", before, page.Revision)
	if len(events) != len(wrote) {
		t.Errorf("%d events of %d writes", len(events), len(wrote))
	}
	for _, e := range events {
		if wrote[e.Key] != e.Revision || e.Previous != nil {
			t.Errorf("event of %s at %d, its writer was told of %d", e.Key, e.Revision, wrote[e.Key])
		}
	}
}

// revisionsNeverGoBack: whoever has been told of a revision finds the store there or later, in every way of asking.
func revisionsNeverGoBack(t *testing.T, s storage.Store) {
	var wg sync.WaitGroup
	for client := range 4 {
		wg.Go(func() {
			key, known := fmt.Sprint("/back/", client), int64(0)
			at := func(how string, revision int64, err error) {
				if err != nil {
					t.Error(err)
				}
				if revision < known {
					t.Errorf("%s: revision %d after %d", how, revision, known)
				}
				known = revision
			}
			for i := range 15 {
				wrote, err := s.Commit(t.Context(), storage.Txn{Then: []storage.Op{{Key: key, Value: []byte(fmt.Sprint(i))}}})
				at("commit", wrote, err)
				e, found, revision, err := s.Get(t.Context(), key)
				at("get", revision, err)
				if !found || e.Revision != wrote || string(e.Value) != fmt.Sprint(i) {
					t.Errorf("get after a commit at %d: %+v", wrote, e)
				}
				page, err := s.List(t.Context(), "/back/", storage.ListOptions{})
				at("list", page.Revision, err)
				revision, err = s.Revision(t.Context())
				at("revision", revision, err)
			}
		})
	}
	wg.Wait()
}
