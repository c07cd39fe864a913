package storagetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"trireme.dev/services/apiserver/internal/storage"
)

// expiry: what is written for a time goes by itself, not sooner, and watchers see it go with its last value; what is
// written again in the meantime lives as that write says.
func expiry(t *testing.T, s storage.Store) {
	const ttl = time.Second
	begun := time.Now()
	commit := func(ops ...storage.Op) int64 {
		t.Helper()
		revision, err := s.Commit(t.Context(), storage.Txn{Then: ops})
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	after := commit(
		storage.Op{Key: "/e/short", Value: []byte("a"), TTL: ttl}, storage.Op{Key: "/e/kept", Value: []byte("b"), TTL: ttl},
		storage.Op{Key: "/e/renewed", Value: []byte("c"), TTL: ttl}, storage.Op{Key: "/e/stays", Value: []byte("d")},
	)
	after = max(after, commit(storage.Op{Key: "/e/kept", Value: []byte("b")}))
	after = max(after, commit(storage.Op{Key: "/e/renewed", Value: []byte("c"), TTL: time.Hour}))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := s.Watch(ctx, "/e/", storage.WatchOptions{After: after, Previous: true}, func(b storage.Batch) error {
		for _, e := range b.Events {
			switch {
			case e.Key != "/e/short" || e.Value != nil || string(e.Previous) != "a":
				t.Errorf("event %+v", e)
			case time.Since(begun) < ttl:
				t.Errorf("gone after %s", time.Since(begun))
			}
		}
		if len(b.Events) > 0 {
			return errDone
		}
		return nil
	})
	if !errors.Is(err, errDone) {
		t.Fatalf("waiting for the key to go: %v", err)
	}
	page, err := s.List(t.Context(), "/e/", storage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range page.Entries {
		left = append(left, e.Key)
	}
	if len(left) != 3 || left[0] != "/e/kept" || left[1] != "/e/renewed" || left[2] != "/e/stays" {
		t.Errorf("left are %v", left)
	}
}
