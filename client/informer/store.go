package informer

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"trireme.dev/client"
	"trireme.dev/client/selector"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

type key struct{ namespace, name string }

func keyOf(object client.Object) key {
	meta := object.GetMetadata()
	return key{meta.GetNamespace(), meta.GetName()}
}

func revisionOf(object client.Object) int64 {
	// A version that is no number orders nothing: 0 makes the event be believed.
	n, err := strconv.ParseInt(object.GetMetadata().GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// store holds the objects and finds them by key, namespace and index. A batch becomes visible as a whole.
type store[T client.Object] struct {
	mu          sync.RWMutex
	objects     map[key]T
	byNamespace map[string]map[key]T
	indexes     map[string]*index[T]
	revision    int64
}

type index[T client.Object] struct {
	values  func(T) []string
	entries map[string]map[key]T
}

func newStore[T client.Object]() *store[T] {
	return &store[T]{objects: map[key]T{}, byNamespace: map[string]map[key]T{}, indexes: map[string]*index[T]{}}
}

func (s *store[T]) addIndex(name string, values func(T) []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.indexes[name] != nil {
		return
	}
	x := &index[T]{values: values, entries: map[string]map[key]T{}}
	for k, object := range s.objects {
		x.put(k, object)
	}
	s.indexes[name] = x
}

func (x *index[T]) put(k key, object T) {
	for _, v := range x.values(object) {
		insert(x.entries, v, k, object)
	}
}

func (x *index[T]) drop(k key, object T) {
	for _, v := range x.values(object) {
		remove(x.entries, v, k)
	}
}

func insert[T any](entries map[string]map[key]T, value string, k key, object T) {
	if entries[value] == nil {
		entries[value] = map[key]T{}
	}
	entries[value][k] = object
}

func remove[T any](entries map[string]map[key]T, value string, k key) {
	delete(entries[value], k)
	if len(entries[value]) == 0 {
		delete(entries, value)
	}
}

func (s *store[T]) put(k key, object T) {
	s.drop(k)
	s.objects[k] = object
	insert(s.byNamespace, k.namespace, k, object)
	for _, x := range s.indexes {
		x.put(k, object)
	}
}

func (s *store[T]) drop(k key) {
	old, ok := s.objects[k]
	if !ok {
		return
	}
	delete(s.objects, k)
	remove(s.byNamespace, k.namespace, k)
	for _, x := range s.indexes {
		x.drop(k, old)
	}
}

// set puts an object and says what that means to handlers. An object that took the name of another is a deletion and
// an addition: whoever tracks objects by uid must hear of both.
func (s *store[T]) set(k key, object T, initial bool, batch []notification[T]) []notification[T] {
	old, ok := s.objects[k]
	s.put(k, object)
	if ok && old.GetMetadata().GetUid() == object.GetMetadata().GetUid() {
		return append(batch, notification[T]{kind: updated, before: old, after: object})
	}
	if ok {
		batch = append(batch, notification[T]{kind: deleted, before: old})
	}
	return append(batch, notification[T]{kind: added, after: object, initial: initial})
}

// replace swaps everything for a snapshot. Objects that are in it unchanged make no notification; those that vanished
// are reported with the last state known.
func (s *store[T]) replace(snapshot map[key]T, revision int64, initial bool) []notification[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	var batch []notification[T]
	for k, old := range s.objects {
		if _, ok := snapshot[k]; !ok {
			s.drop(k)
			batch = append(batch, notification[T]{kind: deleted, before: old})
		}
	}
	for k, object := range snapshot {
		if old, ok := s.objects[k]; ok && sameVersion(old, object) {
			continue
		}
		batch = s.set(k, object, initial, batch)
	}
	s.revision = revision
	return batch
}

func sameVersion(a, b client.Object) bool {
	x, y := a.GetMetadata(), b.GetMetadata()
	return x.GetUid() == y.GetUid() && x.GetResourceVersion() == y.GetResourceVersion()
}

// apply follows events. One that is older than what the store holds has been seen already and is skipped.
func (s *store[T]) apply(events []client.Event[T], revision int64) []notification[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	var batch []notification[T]
	for _, e := range events {
		k := keyOf(e.Object)
		old, known := s.objects[k]
		if at := revisionOf(e.Object); known && at != 0 && at <= revisionOf(old) {
			continue
		}
		if e.Type == metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED {
			if known {
				s.drop(k)
				batch = append(batch, notification[T]{kind: deleted, before: e.Object})
			}
			continue
		}
		batch = s.set(k, e.Object, false, batch)
	}
	s.revision = max(s.revision, revision)
	return batch
}

func (s *store[T]) atRevision() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.revision
}

func (s *store[T]) len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.objects)
}

func (s *store[T]) get(k key) (T, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	object, ok := s.objects[k]
	return object, ok
}

func (s *store[T]) list(namespace string, labels *selector.Labels) []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	objects := s.objects
	if namespace != "" {
		objects = s.byNamespace[namespace]
	}
	if labels.IsEverything() {
		return slices.AppendSeq(make([]T, 0, len(objects)), maps.Values(objects))
	}
	var matching []T
	for _, object := range objects {
		if labels.Matches(object.GetMetadata().GetLabels()) {
			matching = append(matching, object)
		}
	}
	return matching
}

// Lister reads an informer's local copy. Its objects are shared and must not be changed.
type Lister[T client.Object] struct{ store *store[T] }

// Get returns the object of that name; namespace is empty for a cluster-scoped kind.
func (l *Lister[T]) Get(namespace, name string) (T, bool) { return l.store.get(key{namespace, name}) }

// List returns the objects that match, ordered by namespace and name. An empty namespace means all, a nil selector
// everything.
func (l *Lister[T]) List(namespace string, labels *selector.Labels) []T {
	return sorted(l.store.list(namespace, labels))
}

// ByIndex returns the objects found under a value, ordered by namespace and name. An index that was never added is a
// programming error: it panics.
func (l *Lister[T]) ByIndex(name, value string) []T {
	l.store.mu.RLock()
	defer l.store.mu.RUnlock()
	x := l.store.indexes[name]
	if x == nil {
		panic("informer: no index is called " + strconv.Quote(name))
	}
	return sorted(slices.Collect(maps.Values(x.entries[value])))
}

func sorted[T client.Object](objects []T) []T {
	slices.SortFunc(objects, func(a, b T) int {
		x, y := keyOf(a), keyOf(b)
		if c := strings.Compare(x.namespace, y.namespace); c != 0 {
			return c
		}
		return strings.Compare(x.name, y.name)
	})
	return objects
}
