// Package memory keeps all state in memory with etcd's semantics: revisions, history, compaction, atomic commits and
// watches that resume. It serves tests, which may inject faults; nothing is kept after the process.
package memory

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/google/btree"

	"trireme.dev/services/apiserver/internal/storage"
)

// Fault decides whether an operation of the store fails. It is called before a read or commit is done, and once more,
// with Done set, after a commit was applied: an error then stands for an answer that got lost.
type Fault func(Operation) error

// Operation describes what a Fault decides about.
type Operation struct {
	Name string // get, list, commit, watch, revision, compact
	Key  string // key or prefix; of a commit, its first key
	Done bool
}

// Config of a store.
type Config struct {
	// Fault is asked before each operation; nil for none.
	Fault Fault
	// MaxOps is the largest number of operations of one commit; 0 for 10000.
	MaxOps int
	// MaxBytes is the largest commit, keys and values together; 0 for 32 MiB.
	MaxBytes int
}

// Store is the engine. Create it with New.
type Store struct {
	cfg Config

	mu        sync.Mutex
	revision  int64
	compacted int64
	keys      *btree.BTreeG[*history]
	log       []storage.Batch // every revision after compacted, in order
	moved     chan struct{}   // closed and replaced on each commit and compaction
}

// history of one key, oldest first. A version with a nil value is a deletion.
type history struct {
	key      string
	versions []version
}

type version struct {
	revision int64
	created  int64
	value    []byte
}

// New returns an empty store at revision 1, as etcd has it.
func New(cfg Config) *Store {
	if cfg.MaxOps == 0 {
		cfg.MaxOps = 10000
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 32 << 20
	}
	return &Store{
		cfg:      cfg,
		revision: 1,
		keys:     btree.NewG(32, func(a, b *history) bool { return a.key < b.key }),
		moved:    make(chan struct{}),
	}
}

var _ storage.Store = (*Store)(nil)

func (s *Store) fault(ctx context.Context, name, key string, done bool) error {
	if err := ctx.Err(); err != nil && !done {
		return err
	}
	if s.cfg.Fault == nil {
		return nil
	}
	if err := s.cfg.Fault(Operation{Name: name, Key: key, Done: done}); err != nil {
		return fmt.Errorf("%s %s: %w", name, key, err)
	}
	return nil
}

// at returns the version of h that was current at the revision; nil where there was none.
func (h *history) at(revision int64) *version {
	for i := len(h.versions) - 1; i >= 0; i-- {
		if v := &h.versions[i]; v.revision <= revision {
			if v.value == nil {
				return nil
			}
			return v
		}
	}
	return nil
}

func (h *history) entry(v *version) storage.Entry {
	return storage.Entry{Key: h.key, Value: v.value, Revision: v.revision, Created: v.created}
}

// Get implements storage.Store.
func (s *Store) Get(ctx context.Context, key string) (storage.Entry, bool, int64, error) {
	if err := s.fault(ctx, "get", key, false); err != nil {
		return storage.Entry{}, false, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, ok := s.keys.Get(&history{key: key}); ok {
		if v := h.at(s.revision); v != nil {
			return h.entry(v), true, s.revision, nil
		}
	}
	return storage.Entry{}, false, s.revision, nil
}

// List implements storage.Store.
func (s *Store) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.Page, error) {
	if err := s.fault(ctx, "list", prefix, false); err != nil {
		return storage.Page{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	revision := opts.Revision
	switch {
	case revision == 0:
		revision = s.revision
	case revision > s.revision:
		return storage.Page{}, fmt.Errorf("list %s at %d: %w", prefix, revision, storage.ErrFutureRevision)
	case revision < s.compacted:
		return storage.Page{}, fmt.Errorf("list %s at %d: %w", prefix, revision, storage.ErrCompacted)
	}
	page := storage.Page{Revision: revision}
	from, end := max(prefix, opts.From), storage.PrefixEnd(prefix)
	s.keys.AscendGreaterOrEqual(&history{key: from}, func(h *history) bool {
		if end != "" && h.key >= end {
			return false
		}
		v := h.at(revision)
		switch {
		case v == nil:
		case opts.Limit > 0 && int64(len(page.Entries)) == opts.Limit:
			page.More = true
			page.Remaining++
		default:
			page.Entries = append(page.Entries, h.entry(v))
		}
		return true
	})
	return page, nil
}

// Commit implements storage.Store.
func (s *Store) Commit(ctx context.Context, txn storage.Txn) (int64, error) {
	if len(txn.Then) == 0 {
		return 0, fmt.Errorf("commit without operations")
	}
	if n := max(len(txn.Then), len(txn.If)); n > s.cfg.MaxOps {
		return 0, fmt.Errorf("commit %d operations, %d allowed: %w", n, s.cfg.MaxOps, storage.ErrTooLarge)
	}
	size := 0
	for _, op := range txn.Then {
		size += len(op.Key) + len(op.Value)
	}
	if size > s.cfg.MaxBytes {
		return 0, fmt.Errorf("commit %d bytes, %d allowed: %w", size, s.cfg.MaxBytes, storage.ErrTooLarge)
	}
	if err := s.fault(ctx, "commit", txn.Then[0].Key, false); err != nil {
		return 0, err
	}
	revision, err := s.commit(txn)
	if err != nil {
		return 0, err
	}
	if err := s.fault(ctx, "commit", txn.Then[0].Key, true); err != nil {
		return 0, err
	}
	return revision, nil
}

func (s *Store) commit(txn storage.Txn) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conflict := &storage.ConflictError{}
	for _, c := range txn.If {
		current := storage.Entry{Key: c.Key}
		if h, ok := s.keys.Get(&history{key: c.Key}); ok {
			if v := h.at(s.revision); v != nil {
				current = h.entry(v)
				current.Value = nil
			}
		}
		if current.Revision != c.Revision {
			conflict.Current = append(conflict.Current, current)
		}
	}
	if len(conflict.Current) > 0 {
		return 0, conflict
	}
	seen := make(map[string]bool, len(txn.Then))
	for _, op := range txn.Then {
		if seen[op.Key] {
			return 0, fmt.Errorf("commit has key %s twice", op.Key)
		}
		seen[op.Key] = true
	}

	next := s.revision + 1
	batch := storage.Batch{Revision: next}
	for _, op := range txn.Then {
		h, ok := s.keys.Get(&history{key: op.Key})
		if !ok {
			h = &history{key: op.Key}
		}
		event := storage.Event{Key: op.Key, Value: op.Value, Revision: next}
		created := next
		if old := h.at(s.revision); old != nil {
			event.Previous, event.PreviousRevision, created = old.value, old.revision, old.created
		} else if op.Value == nil {
			continue
		}
		h.versions = append(h.versions, version{revision: next, created: created, value: op.Value})
		s.keys.ReplaceOrInsert(h)
		batch.Events = append(batch.Events, event)
	}
	// Like etcd, a commit that only deletes what does not exist leaves the revision as it is.
	if len(batch.Events) == 0 {
		return s.revision, nil
	}
	s.revision = next
	s.log = append(s.log, batch)
	s.wake()
	for _, op := range txn.Then {
		if op.Value != nil && op.TTL > 0 {
			time.AfterFunc(op.TTL, func() { s.expire(op.Key, next) })
		}
	}
	return next, nil
}

// expire deletes a key that has not been written since a revision.
func (s *Store) expire(key string, revision int64) {
	// A conflict is a write that came since.
	_, _ = s.commit(storage.Txn{If: []storage.Condition{{Key: key, Revision: revision}}, Then: []storage.Op{{Key: key}}})
}

func (s *Store) wake() {
	close(s.moved)
	s.moved = make(chan struct{})
}

// Watch implements storage.Store.
func (s *Store) Watch(ctx context.Context, prefix string, opts storage.WatchOptions, emit func(storage.Batch) error) error {
	if err := s.fault(ctx, "watch", prefix, false); err != nil {
		return err
	}
	after := opts.After
	for {
		batches, revision, moved, err := s.since(prefix, after, opts.Previous)
		if err != nil {
			return err
		}
		for _, batch := range batches {
			if err := s.fault(ctx, "watch", prefix, true); err != nil {
				return err
			}
			if err := emit(batch); err != nil {
				return err
			}
		}
		// Unlike etcd, which reports progress from time to time, each pass ends with it: tests need not wait.
		if revision > after && (len(batches) == 0 || batches[len(batches)-1].Revision < revision) {
			if err := emit(storage.Batch{Revision: revision}); err != nil {
				return err
			}
		}
		after = max(after, revision)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		case <-opts.Progress:
			// Not after, which may lie in the future.
			if err := emit(storage.Batch{Revision: revision}); err != nil {
				return err
			}
		}
	}
}

// since returns what happened to the prefix after a revision, up to the store's revision.
func (s *Store) since(prefix string, after int64, previous bool) ([]storage.Batch, int64, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if after < s.compacted {
		return nil, 0, nil, fmt.Errorf("watch %s after %d: %w", prefix, after, storage.ErrCompacted)
	}
	var out []storage.Batch
	end := storage.PrefixEnd(prefix)
	for i := len(s.log) - 1; i >= 0 && s.log[i].Revision > after; i-- {
		batch := storage.Batch{Revision: s.log[i].Revision}
		for _, e := range s.log[i].Events {
			if e.Key >= prefix && (end == "" || e.Key < end) {
				if !previous {
					e.Previous, e.PreviousRevision = nil, 0
				}
				batch.Events = append(batch.Events, e)
			}
		}
		if len(batch.Events) > 0 {
			out = append(out, batch)
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out, s.revision, s.moved, nil
}

// Revision implements storage.Store.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	if err := s.fault(ctx, "revision", "", false); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, nil
}

// Compact implements storage.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	if err := s.fault(ctx, "compact", "", false); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case revision > s.revision:
		return fmt.Errorf("compact at %d: %w", revision, storage.ErrFutureRevision)
	case revision <= s.compacted:
		return fmt.Errorf("compact at %d: %w", revision, storage.ErrCompacted)
	}
	s.compacted = revision
	var dead []*history
	s.keys.Ascend(func(h *history) bool {
		keep := 0
		for keep+1 < len(h.versions) && h.versions[keep+1].revision <= revision {
			keep++
		}
		h.versions = append([]version(nil), h.versions[keep:]...)
		if len(h.versions) == 1 && h.versions[0].value == nil && h.versions[0].revision <= revision {
			dead = append(dead, h)
		}
		return true
	})
	for _, h := range dead {
		s.keys.Delete(h)
	}
	for len(s.log) > 0 && s.log[0].Revision <= revision {
		s.log = s.log[1:]
	}
	s.log = append([]storage.Batch(nil), s.log...)
	s.wake()
	return nil
}

// Snapshot implements storage.Store: what is in memory is not kept.
func (s *Store) Snapshot(context.Context) (int64, io.ReadCloser, error) {
	return 0, nil, storage.ErrUnsupported
}

// Members implements storage.Store: there are none.
func (s *Store) Members(context.Context) ([]storage.Member, error) {
	return nil, storage.ErrUnsupported
}

// Defragment implements storage.Store: memory has no fragments.
func (s *Store) Defragment(context.Context) error { return storage.ErrUnsupported }
