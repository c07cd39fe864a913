package watchcache

import (
	"context"
	"fmt"
	"time"

	"trireme.dev/services/apiserver/internal/storage"
)

const (
	// readTimeout bounds a read of the store's revision, so that one which hangs does not hold up those behind it.
	readTimeout = 5 * time.Second
	// nudge is how long to wait for events before the store is asked for progress, and nudgeAgain after that.
	nudge      = 5 * time.Millisecond
	nudgeAgain = 100 * time.Millisecond
)

// reading is the answer of the store.
type reading struct {
	revision int64
	err      error
}

// Latest returns a revision of the store that no commit, finished before the call, is newer than. All who come while a
// read is under way share the next one: the one under way may have been answered before they came.
//
// Progress of the watch alone would not do. It tells how far one member of the store has applied, and a member that is
// cut off from the others goes on telling its old revision for as long as it does not know. Only a read that a quorum
// confirms gives the revision to wait for; progress then tells that it is reached.
func (c *Cache) Latest(ctx context.Context) (int64, error) {
	answer := make(chan reading, 1)
	select {
	case c.readings <- answer:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-c.stopped:
		return 0, errStopped
	}
	select {
	case r := <-answer:
		return r.revision, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// serveReadings answers Latest until ctx ends. Who has been received has an answer coming.
func (c *Cache) serveReadings(ctx context.Context) {
	var waiting []chan<- reading
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-c.readings:
			waiting = append(waiting[:0], first)
		}
		for more := true; more; {
			select {
			case w := <-c.readings:
				waiting = append(waiting, w)
			default:
				more = false
			}
		}
		before := c.Position()
		limited, cancel := context.WithTimeout(ctx, readTimeout)
		revision, err := c.store.Revision(limited)
		cancel()
		if err == nil && revision < before {
			err = c.rewind(before, revision)
		}
		for i, w := range waiting {
			w <- reading{revision, err}
			waiting[i] = nil
		}
	}
}

// rewind notes that the store was at a revision before one that the cache had reached when it asked. Progress would not prove
// it: a member of the store may lag behind the one that told of the later revision.
func (c *Cache) rewind(before, revision int64) error {
	if c.Position() >= before { // it has not begun anew meanwhile
		select {
		case c.rewound <- struct{}{}:
		default: // told already
		}
	}
	return fmt.Errorf("the cache is at %d, the store at %d: %w", before, revision, storage.ErrUnavailable)
}

// Wait blocks until the cache has reached a revision, and fails with ErrBehind where it has not within limit. Commits
// elsewhere in the store move its revision and bring no events, so the store is asked for progress: a kind on which
// nothing happens is as current as any.
func (c *Cache) Wait(ctx context.Context, revision int64, limit time.Duration) error {
	if c.Position() >= revision {
		return nil
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	ask := time.NewTimer(min(nudge, limit))
	defer ask.Stop()
	for {
		c.mu.Lock()
		if c.moved == nil {
			c.moved = make(chan struct{})
		}
		moved := c.moved
		c.mu.Unlock()
		// It may have moved before there was anybody to tell.
		if c.Position() >= revision {
			return nil
		}
		select {
		case <-moved:
		case <-ask.C:
			select {
			case c.progress <- struct{}{}:
			default: // asked already
			}
			ask.Reset(nudgeAgain)
		case <-late.C:
			return fmt.Errorf("at %d after %s, want %d: %w", c.Position(), limit, revision, ErrBehind)
		case <-ctx.Done():
			return ctx.Err()
		case <-c.stopped:
			return errStopped
		}
	}
}
