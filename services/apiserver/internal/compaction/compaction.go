// Package compaction keeps the store's history short: every five minutes it forgets what was older five minutes ago, so
// that watchers and lists find between five and ten minutes of history. Any number of gateways do so on one store, and one
// of them each time. It reads and writes one key of its own, outside of all kinds.
package compaction

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"trireme.dev/kit/loop"
	"trireme.dev/services/apiserver/internal/storage"
)

const (
	// Period between compactions; history lasts for one to two of them.
	Period = 5 * time.Minute
	// key holds the revision of the last compaction. Whoever moves it on compacts.
	key = "/trireme-compaction"
)

// Compactor is one gateway's part. Create it with New.
type Compactor struct {
	store  storage.Store
	logger *slog.Logger

	seen     int64 // revision of the key when it was last read; 0 where there was none
	revision int64 // of the store at that time: what to forget next
}

// New returns a compactor of the store.
func New(store storage.Store, logger *slog.Logger) *Compactor {
	return &Compactor{store: store, logger: logger}
}

// Run compacts until ctx ends.
func (c *Compactor) Run(ctx context.Context) error {
	return loop.Every(ctx, loop.Config{Name: "compaction", Period: Period, Jitter: 0.02, Logger: c.logger}, c.step)
}

// step forgets what was there at the step before, if nobody else has compacted since: then the key would have moved, and
// this gateway starts to count anew. Two gateways that find it unmoved at once both try to move it, and one of them can.
func (c *Compactor) step(ctx context.Context) error {
	if c.revision == 0 {
		return c.look(ctx)
	}
	_, err := c.store.Commit(ctx, storage.Txn{
		If:   []storage.Condition{{Key: key, Revision: c.seen}},
		Then: []storage.Op{{Key: key, Value: strconv.AppendInt(nil, c.revision, 10)}},
	})
	var conflict *storage.ConflictError
	switch {
	case errors.As(err, &conflict):
		return c.look(ctx)
	case err != nil:
		// Whether it was written is not known: the next step finds out.
		return errors.Join(fmt.Errorf("claim the compaction at %d: %w", c.revision, err), c.look(ctx))
	}
	target := c.revision
	// Somebody who ran by another clock may have been further already.
	if err := c.store.Compact(ctx, target); err != nil && !errors.Is(err, storage.ErrCompacted) {
		return errors.Join(fmt.Errorf("compact at %d: %w", target, err), c.look(ctx))
	}
	return c.look(ctx)
}

// look notes where key and store are now.
func (c *Compactor) look(ctx context.Context) error {
	entry, _, revision, err := c.store.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	c.seen, c.revision = entry.Revision, revision
	return nil
}
