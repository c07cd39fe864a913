// Package writes lets a controller read its own writes: after it has changed objects on behalf of a key, it acts on
// that key again only once its informer shows the change. Without this, a controller that looks at an old copy makes
// the same pods twice.
//
// Kubernetes counts the events that it expects (UIDTrackingControllerExpectations) and, since KEP-5647, compares
// resource versions; these are etcd's revisions here, so the comparison alone is exact, and a lost event can never
// leave a count that does not come down.
package writes

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"trireme.dev/client"
	"trireme.dev/client/reconcile"
)

// patience bounds one wait. An informer that lags for longer is cut off from the gateway; the key comes again.
const patience = 10 * time.Second

// Informer is what an informer shows.
type Informer interface {
	WaitForRevision(ctx context.Context, revision int64) error
}

// Tracker remembers, for each key, the last revision that was written for it. It is safe for concurrent use.
type Tracker struct {
	mu   sync.Mutex
	last map[reconcile.Key]int64
}

// NewTracker returns an empty tracker.
func NewTracker() *Tracker { return &Tracker{last: map[reconcile.Key]int64{}} }

// Wrote remembers that an object was written for a key; object is as the gateway returned it.
func (t *Tracker) Wrote(key reconcile.Key, object client.Object) {
	revision, err := strconv.ParseInt(object.GetMetadata().GetResourceVersion(), 10, 64)
	if err != nil {
		return // dry run: nothing was written
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last[key] = max(t.last[key], revision)
}

// Seen waits until the informer shows all that was written for the key.
func (t *Tracker) Seen(ctx context.Context, key reconcile.Key, informer Informer) error {
	t.mu.Lock()
	revision := t.last[key]
	t.mu.Unlock()
	if revision == 0 {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := informer.WaitForRevision(waiting, revision); err != nil {
		return fmt.Errorf("own writes are not seen yet: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last[key] == revision {
		delete(t.last, key)
	}
	return nil
}
