// Package format is the form in which the objects of each kind lie in the store: in which storage version, and for how
// long. It is a store over another. Above it, values are in the present form; what is stored in a former one is brought to
// it as it is read, and what is no object of its kind is replaced by a value that says why, so that no reader of many
// takes harm from it. Migrate rewrites what is stored in former forms. It keeps nothing. In the chain it stands between
// registry and storage.
package format

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
)

// Kind is the form of one kind.
type Kind struct {
	// Prefix of the keys.
	Prefix string
	// Message that the bytes are.
	Message protoreflect.MessageDescriptor
	// Version that is written.
	Version byte
	// Upgrades bring bytes from each former version to the next: the first those of version 1.
	Upgrades []func(payload []byte) ([]byte, error)
	// TTL is how long objects are kept after they were last written; 0 for ever.
	TTL time.Duration
}

// Store is a storage.Store over another.
type Store struct {
	storage.Store

	kinds map[string]*form
}

type form struct {
	Kind

	shape *shape
}

// New returns the store. Values under prefixes of no kind are passed on as they are.
func New(store storage.Store, kinds []Kind) (*Store, error) {
	s := &Store{Store: store, kinds: make(map[string]*form, len(kinds))}
	shapes := shapes{}
	for _, k := range kinds {
		if len(k.Upgrades) != int(k.Version)-1 {
			return nil, fmt.Errorf("%s is written in storage version %d, and there are %d upgrades to it", k.Prefix, k.Version, len(k.Upgrades))
		}
		s.kinds[k.Prefix] = &form{Kind: k, shape: shapes.of(k.Message)}
	}
	return s, nil
}

// read gives a value that was read its present form.
func (s *Store) read(key string, value []byte) []byte {
	if k := s.kinds[storage.KindPrefix(key)]; k != nil && value != nil {
		return k.read(value)
	}
	return value
}

func (k *form) read(value []byte) []byte {
	version, payload, ok := envelope.Version(value)
	if !ok {
		return value // which nobody takes for an object
	}
	if version == 0 || version > k.Version {
		return envelope.Unreadable(fmt.Sprintf("storage version %d is not known, %d is written", version, k.Version))
	}
	for v := version; v < k.Version; v++ {
		var err error
		if payload, err = k.Upgrades[v-1](payload); err != nil {
			return envelope.Unreadable(err.Error())
		}
	}
	if err := k.shape.check(payload); err != nil {
		return envelope.Unreadable(err.Error())
	}
	if version == envelope.Current && k.Version == version {
		return value
	}
	return envelope.WithVersion(envelope.Current, payload)
}

// Get implements storage.Store.
func (s *Store) Get(ctx context.Context, key string) (storage.Entry, bool, int64, error) {
	entry, found, revision, err := s.Store.Get(ctx, key)
	entry.Value = s.read(key, entry.Value)
	return entry, found, revision, err
}

// List implements storage.Store.
func (s *Store) List(ctx context.Context, prefix string, opts storage.ListOptions) (storage.Page, error) {
	page, err := s.Store.List(ctx, prefix, opts)
	for i := range page.Entries {
		e := &page.Entries[i]
		e.Value = s.read(e.Key, e.Value)
	}
	return page, err
}

// Watch implements storage.Store.
func (s *Store) Watch(ctx context.Context, prefix string, opts storage.WatchOptions, emit func(storage.Batch) error) error {
	return s.Store.Watch(ctx, prefix, opts, func(b storage.Batch) error {
		// The engine may give the same events to others.
		events := make([]storage.Event, len(b.Events))
		for i, e := range b.Events {
			e.Value, e.Previous = s.read(e.Key, e.Value), s.read(e.Key, e.Previous)
			events[i] = e
		}
		b.Events = events
		return emit(b)
	})
}

// Commit implements storage.Store.
func (s *Store) Commit(ctx context.Context, txn storage.Txn) (int64, error) {
	copied := false
	for i, op := range txn.Then {
		k := s.kinds[storage.KindPrefix(op.Key)]
		if k == nil || op.Value == nil || k.TTL == 0 && k.Version == envelope.Current {
			continue
		}
		if !copied {
			txn.Then, copied = append([]storage.Op(nil), txn.Then...), true
		}
		txn.Then[i] = k.op(op)
	}
	return s.Store.Commit(ctx, txn)
}

// op is how a write of a value in the present form is made.
func (k *form) op(op storage.Op) storage.Op {
	if version, payload, ok := envelope.Version(op.Value); ok && version == envelope.Current {
		op.Value = envelope.WithVersion(k.Version, payload)
	}
	op.TTL = k.TTL
	return op
}

// Progress is how far a migration of one kind is.
type Progress struct {
	// Version that is written.
	Version byte
	// Seen values so far, those of them that were rewritten, and those that somebody else wrote meanwhile.
	Seen, Migrated, Overtaken int64
	// Unreadable values found since the last report, by key, with the reason.
	Unreadable map[string]error
	// LastKey that has been dealt with.
	LastKey string
	// Done is set in the last report.
	Done bool
}

// migratePage is how many values are read at a time.
const migratePage = 500

// Migrate rewrites the values of a kind that are stored in a former version, behind a key, and reports page by page. A
// value is written only if nobody has written it since it was read. It may be repeated, and run beside writers.
func (s *Store) Migrate(ctx context.Context, prefix, after string, report func(Progress) error) error {
	k := s.kinds[prefix]
	if k == nil {
		return fmt.Errorf("migrate %s: no such kind", prefix)
	}
	p := Progress{Version: k.Version, LastKey: after}
	opts := storage.ListOptions{Limit: migratePage}
	for !p.Done {
		if p.LastKey != "" {
			opts.From = p.LastKey + "\x00"
		}
		page, err := s.Store.List(ctx, prefix, opts)
		if err != nil {
			return fmt.Errorf("migrate %s: %w", prefix, err)
		}
		p.Unreadable, p.Done = nil, !page.More
		for _, entry := range page.Entries {
			if err := s.migrate(ctx, k, entry, &p); err != nil {
				return fmt.Errorf("migrate %s: %w", entry.Key, err)
			}
			p.LastKey = entry.Key
		}
		if err := report(p); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) migrate(ctx context.Context, k *form, entry storage.Entry, p *Progress) error {
	p.Seen++
	payload, err := envelope.Open(k.read(entry.Value))
	if err != nil {
		if p.Unreadable == nil {
			p.Unreadable = map[string]error{}
		}
		p.Unreadable[entry.Key] = err
		return nil
	}
	if version, _, _ := envelope.Version(entry.Value); version == k.Version {
		return nil
	}
	_, err = s.Store.Commit(ctx, storage.Txn{
		If:   []storage.Condition{{Key: entry.Key, Revision: entry.Revision}},
		Then: []storage.Op{{Key: entry.Key, Value: envelope.WithVersion(k.Version, payload), TTL: k.TTL}},
	})
	var conflict *storage.ConflictError
	switch {
	case errors.As(err, &conflict):
		p.Overtaken++
	case err != nil:
		return err
	default:
		p.Migrated++
	}
	return nil
}
