package watchcache

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Snapshot is the state of one kind at one revision. It never changes and is read without locks by any number.
type Snapshot struct {
	// Revision that the state is of. The kind has no event between it and the snapshot's last one.
	Revision int64

	topic *topic
	state *tree
}

// Ascend calls fn with the objects from a key on that have the prefix, in order, until it returns false.
func (s *Snapshot) Ascend(prefix, from string, fn func(*Object) bool) {
	s.state.AscendGreaterOrEqual(&Object{Key: max(prefix, from)}, func(o *Object) bool {
		return len(o.Key) >= len(prefix) && o.Key[:len(prefix)] == prefix && fn(o)
	})
}

// Get returns the object at a key.
func (s *Snapshot) Get(key string) (*Object, bool) { return s.state.Get(&Object{Key: key}) }

// Keep lets the next page of a list find the snapshot, for a while.
func (s *Snapshot) Keep() {
	t := s.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep(s)
}

func (t *topic) keep(s *Snapshot) {
	for i := range t.kept {
		if t.kept[i].snapshot.Revision == s.Revision {
			return
		}
	}
	if len(t.kept) == maxKept {
		t.forget()
	}
	t.kept = append(t.kept, kept{s, time.Now()})
}

// Current returns the state of a kind as far as the cache has come. It waits for nothing but the cache being loaded.
func (c *Cache) Current(ctx context.Context, prefix string) (*Snapshot, error) {
	t := c.topics[prefix]
	if t == nil {
		return nil, fmt.Errorf("read %s: no such kind", prefix)
	}
	if err := c.Wait(ctx, 1, math.MaxInt64); err != nil {
		return nil, err
	}
	return t.current(c.Position()), nil
}

// current returns a snapshot; everything up to position has been applied.
func (t *topic) current(position int64) *Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.currentLocked(position)
}

func (t *topic) currentLocked(position int64) *Snapshot {
	revision := max(position, t.last)
	if t.snapshot == nil {
		// The only place that copies, and in constant time: later writes copy the nodes that they change.
		t.snapshot = &Snapshot{Revision: revision, topic: t, state: t.state.Clone()}
	} else if t.snapshot.Revision < revision {
		t.snapshot = &Snapshot{Revision: revision, topic: t, state: t.snapshot.state}
	}
	return t.snapshot
}

// Consistent returns the state of a kind at a revision that no commit, finished before the call, is newer than. ErrBehind
// where the cache does not get there in the time given.
func (c *Cache) Consistent(ctx context.Context, prefix string, limit time.Duration) (*Snapshot, error) {
	revision, err := c.Latest(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.Wait(ctx, revision, limit); err != nil {
		return nil, err
	}
	return c.Current(ctx, prefix)
}

// Exact returns the state of a kind at a revision that the cache has reached; nil where it does not remember.
func (c *Cache) Exact(prefix string, revision int64) *Snapshot {
	t := c.topics[prefix]
	position := c.Position()
	if t == nil || revision > position {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.kept {
		if k.snapshot.Revision == revision {
			return k.snapshot
		}
	}
	switch {
	case revision < t.floor:
		return nil
	case revision >= t.last:
		// Nothing has happened since.
		return &Snapshot{Revision: revision, topic: t, state: t.currentLocked(position).state}
	}
	// History turned back on a copy: costs as much as has happened since, and nothing while nobody asks.
	state := t.state.Clone()
	for i := len(t.ring) - 1; i >= 0 && t.ring[i].revision > revision; i-- {
		events := t.ring[i].events
		for j := len(events) - 1; j >= 0; j-- {
			if before := events[j].Before; before != nil {
				state.ReplaceOrInsert(before)
			} else {
				state.Delete(events[j].Now)
			}
		}
	}
	s := &Snapshot{Revision: revision, topic: t, state: state}
	t.keep(s)
	return s
}
