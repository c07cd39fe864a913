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

// Run runs the suite. Open returns an empty store for each test, which lasts as long as the test; its revision may be any.
// The largest commit that it takes must have 10,000 operations and 32 MiB.
func Run(t *testing.T, open func(t *testing.T) storage.Store) {
	for name, test := range map[string]func(*testing.T, storage.Store){
		"GetAndCommit":         getAndCommit,
		"Conditions":           conditions,
		"OneRevision":          oneRevision,
		"PutsAndDeletes":       putsAndDeletes,
		"DeletingNothing":      deletingNothing,
		"KeyTwice":             keyTwice,
		"Expiry":               expiry,
		"FailuresLeaveNothing": failuresLeaveNothing,
		"ManyOperations":       manyOperations,
		"LargeValues":          largeValues,
		"AnyBytes":             anyBytes,
		"EndedContexts":        endedContexts,
		"Concurrent":           concurrent,
		"CreateOnce":           createOnce,
		"NoWriteSkew":          noWriteSkew,
		"EachItsOwnAnswer":     eachItsOwnAnswer,
		"RevisionsNeverGoBack": revisionsNeverGoBack,

		"ListPagesSnapshot":  listPagesSnapshot,
		"ListOldRevision":    listOldRevision,
		"ListPrefixes":       listPrefixes,
		"ListBounds":         listBounds,
		"ListsAreSnapshots":  listsAreSnapshots,
		"EveryRevision":      everyRevision,
		"Compaction":         compaction,
		"CompactionOfAnyOne": compactionOfAnyOne,

		"WatchFromRevision":        watchFromRevision,
		"WatchKeepsRevisions":      watchKeepsRevisions,
		"WatchStopsAndFails":       watchStopsAndFails,
		"WatchTellsProgress":       watchTellsProgress,
		"WatchFromTheFuture":       watchFromTheFuture,
		"WatchPrefixes":            watchPrefixes,
		"WatchEmptyValues":         watchEmptyValues,
		"WatchersAgree":            watchersAgree,
		"WatchUnderWayOutlivesAll": watchUnderWay,
		"WatchBehindACompaction":   watchBehind,
		"WatchFromATombstone":      watchFromATombstone,
		"WatchesEndTogether":       watchesEndTogether,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

var errDone = errors.New("done")

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

// revisionNow returns the store's revision.
func revisionNow(t *testing.T, s storage.Store) int64 {
	t.Helper()
	revision, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// within fails the test where fn does not end in good time.
func within(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s does not end", what)
	}
}

// collect watches until everything up to a revision has come.
func collect(t *testing.T, s storage.Store, prefix string, after, until int64) []storage.Event {
	t.Helper()
	events, err := gather(t.Context(), s, prefix, after, until)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// gather is collect for goroutines.
func gather(ctx context.Context, s storage.Store, prefix string, after, until int64) ([]storage.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var events []storage.Event
	position := after
	err := s.Watch(ctx, prefix, storage.WatchOptions{After: after, Previous: true}, func(b storage.Batch) error {
		if b.Revision < position {
			return fmt.Errorf("batch at %d after one at %d", b.Revision, position)
		}
		position = b.Revision
		events = append(events, b.Events...)
		if b.Revision >= until {
			return errDone
		}
		return nil
	})
	if !errors.Is(err, errDone) {
		return nil, fmt.Errorf("watch %s after %d, at %d of %d with %d events: %w", prefix, after, position, until, len(events), err)
	}
	return events, nil
}

func sameEvents(t *testing.T, got, want []storage.Event) {
	t.Helper()
	if !slices.EqualFunc(got, want, sameEvent) {
		t.Fatalf("events\n%+v\nwant\n%+v", got, want)
	}
}

func sameEvent(a, b storage.Event) bool {
	return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil) &&
		bytes.Equal(a.Previous, b.Previous) && a.Revision == b.Revision && a.PreviousRevision == b.PreviousRevision
}
