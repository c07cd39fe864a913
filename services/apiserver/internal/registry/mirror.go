package registry

import (
	"context"
	"sync"
	"time"

	"trireme.dev/kit/telemetry"
	"trireme.dev/services/apiserver/internal/feed"
	"trireme.dev/services/apiserver/internal/storage"
)

// mirror keeps all objects of one small kind decoded, so that admission need not ask the store for each write. It lags
// behind the store by the time an event takes: who must know for certain asks the store.
type mirror struct {
	resource *Resource

	mu      sync.RWMutex
	synced  bool
	objects map[string]Object // by key without prefix
}

func newMirror(r *Resource) *mirror { return &mirror{resource: r} }

func (m *mirror) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := m.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		m.resource.registry.logger.Warn("mirror starts over", telemetry.KeyKind, m.resource.Kind.Name, telemetry.KeyError, err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (m *mirror) follow(ctx context.Context) error {
	page, err := m.resource.registry.store.List(ctx, m.resource.prefix, storage.ListOptions{})
	if err != nil {
		return err
	}
	objects := make(map[string]Object, len(page.Entries))
	for _, entry := range page.Entries {
		obj, err := m.resource.decode(entry)
		if err != nil {
			continue // reported by decode; one bad object must not stop all writes
		}
		objects[entry.Key[len(m.resource.prefix):]] = obj
	}
	m.mu.Lock()
	m.objects, m.synced = objects, true
	m.mu.Unlock()

	watcher, err := m.resource.registry.feed.Watch(ctx, m.resource.prefix, page.Revision, func(b *feed.Batch) error {
		m.apply(b, page.Revision)
		return nil
	})
	if err != nil {
		return err
	}
	defer watcher.Close()
	for {
		batches, _, err := watcher.Next(ctx, nil)
		if err != nil {
			return err
		}
		for _, b := range batches {
			m.apply(b, page.Revision)
		}
	}
}

func (m *mirror) apply(b *feed.Batch, after int64) {
	if b.Revision <= after {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range b.Events {
		id := e.Key[len(m.resource.prefix):]
		if e.Value() == nil {
			delete(m.objects, id)
			continue
		}
		obj, err := m.resource.decodePayload(e.Value(), e.Revision)
		if err != nil {
			_ = m.resource.corrupt(e.Key, err) // for the report; as in follow
			delete(m.objects, id)
			continue
		}
		m.objects[id] = obj
	}
}

// get returns an object of a cluster-scoped kind. Objects are shared: never modified.
func (m *mirror) get(name string) (Object, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	obj, ok := m.objects[name]
	return obj, ok
}

// all returns every object, and false before the first list is in.
func (m *mirror) all() ([]Object, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make([]Object, 0, len(m.objects))
	for _, obj := range m.objects {
		out = append(out, obj)
	}
	return out, m.synced
}
