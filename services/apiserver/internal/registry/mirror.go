package registry

import (
	"context"
	"sync"

	"trireme.dev/services/apiserver/internal/watchcache"
)

// mirror keeps the objects of one small kind decoded as the watch cache has them, so that admission need not ask the
// store for each write. It lags behind the store by the time an event takes: who must know for certain asks the store.
type mirror struct {
	resource *Resource

	mu      sync.Mutex
	decoded map[string]decodedObject // by key; what the cache has changed since is noticed when it is asked for
}

type decodedObject struct {
	source *watchcache.Object
	object Object // nil where the bytes are no object
}

func newMirror(r *Resource) *mirror { return &mirror{resource: r, decoded: map[string]decodedObject{}} }

// snapshot is nil before the cache is loaded.
func (m *mirror) snapshot(ctx context.Context) *watchcache.Snapshot {
	cache := m.resource.registry.cache
	if cache.Position() == 0 {
		return nil
	}
	s, err := cache.Current(ctx, m.resource.prefix)
	if err != nil {
		return nil
	}
	return s
}

// get returns an object of a cluster-scoped kind. Objects are shared: never modified.
func (m *mirror) get(ctx context.Context, name string) (Object, bool) {
	s := m.snapshot(ctx)
	if s == nil {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := m.resource.prefix + name
	source, ok := s.Get(key)
	if !ok {
		delete(m.decoded, key)
		return nil, false
	}
	obj := m.decode(source)
	return obj, obj != nil
}

func (m *mirror) decode(source *watchcache.Object) Object {
	known, ok := m.decoded[source.Key]
	if ok && known.source == source {
		return known.object
	}
	known = decodedObject{source: source}
	if payload, err := source.Payload(); err != nil {
		_ = m.resource.corrupt(source.Key, err) // for the report; one bad object must not stop all writes
	} else if obj, err := m.resource.decodePayload(payload, source.Revision); err != nil {
		_ = m.resource.corrupt(source.Key, err)
	} else {
		known.object = obj
	}
	m.decoded[source.Key] = known
	return known.object
}

// all returns every object, and false before the cache is loaded.
func (m *mirror) all(ctx context.Context) ([]Object, bool) {
	s := m.snapshot(ctx)
	if s == nil {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Object
	kept := make(map[string]decodedObject, len(m.decoded))
	s.Ascend(m.resource.prefix, "", func(o *watchcache.Object) bool {
		if obj := m.decode(o); obj != nil {
			out = append(out, obj)
		}
		kept[o.Key] = m.decoded[o.Key]
		return true
	})
	m.decoded = kept
	return out, true
}
