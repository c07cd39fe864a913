package feed

import (
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
)

// Event is one change, shared by all who watch its kind: whatever is computed from it is computed once.
type Event struct {
	Key       string
	Namespace string // empty for cluster-scoped kinds
	Name      string
	Revision  int64

	value    []byte // protobuf of the object after the change; nil where deleted
	previous []byte // before the change; nil where created
	err      error  // the stored bytes are not an object

	encoded [3]struct {
		once  sync.Once
		bytes []byte
	}
	current, before Facts
}

// Facts are what selectors look at, read from an object's bytes when first asked for.
type Facts struct {
	labels struct {
		once   sync.Once
		values map[string]string
		err    error
	}
	fields struct {
		once   sync.Once
		values map[string]string
		err    error
	}
}

func newEvent(e *storage.Event) *Event {
	out := &Event{Key: e.Key, Revision: e.Revision}
	out.Namespace, out.Name = SplitKey(e.Key)
	if e.Value != nil {
		out.value, out.err = envelope.Open(e.Value)
	}
	if e.Previous != nil && out.err == nil {
		out.previous, out.err = envelope.Open(e.Previous)
	}
	return out
}

// SplitKey returns namespace and name of a key; the namespace of cluster-scoped kinds is empty.
func SplitKey(key string) (namespace, name string) {
	rest := key[len(storage.KindPrefix(key)):]
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[:i], rest[i+1:]
	}
	return "", rest
}

// Err says that the stored bytes are no object; such an event cannot be delivered.
func (e *Event) Err() error { return e.err }

// Value returns the object's bytes after the change; nil where it was deleted.
func (e *Event) Value() []byte { return e.value }

// Previous returns the object's bytes before the change; nil where it was created.
func (e *Event) Previous() []byte { return e.previous }

// Current returns the facts of the object after the change.
func (e *Event) Current() *Facts { return &e.current }

// Before returns the facts of the object before the change.
func (e *Event) Before() *Facts { return &e.before }

// Type returns what happened to the object, selectors apart.
func (e *Event) Type() metav1.WatchEventType {
	switch {
	case e.value == nil:
		return metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED
	case e.previous == nil:
		return metav1.WatchEventType_WATCH_EVENT_TYPE_ADDED
	default:
		return metav1.WatchEventType_WATCH_EVENT_TYPE_MODIFIED
	}
}

// Encoded returns the event as field 1 of a watch response, tag and length included. DELETED carries the state before
// the change; all carry the revision of the change.
func (e *Event) Encoded(typ metav1.WatchEventType) []byte {
	slot := &e.encoded[typ-1]
	slot.once.Do(func() {
		object := e.value
		if typ == metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED {
			object = e.previous
		}
		slot.bytes = AppendEvent(nil, typ, object, e.Revision)
	})
	return slot.bytes
}

// AppendEvent adds {events = 1 {type = 1, object = 2}} to a watch response.
func AppendEvent(dst []byte, typ metav1.WatchEventType, payload []byte, revision int64) []byte {
	object := envelope.Size(payload, revision)
	inner := 2 + 1 + protowire.SizeVarint(uint64(object)) + object
	if dst == nil {
		dst = make([]byte, 0, 1+protowire.SizeVarint(uint64(inner))+inner)
	}
	dst = protowire.AppendTag(dst, 1, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(inner))
	dst = protowire.AppendTag(dst, 1, protowire.VarintType)
	dst = protowire.AppendVarint(dst, uint64(typ))
	dst = protowire.AppendTag(dst, 2, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(object))
	return envelope.Append(dst, payload, revision)
}

// Labels of the object with these bytes.
func (f *Facts) Labels(payload []byte) (map[string]string, error) {
	f.labels.once.Do(func() { f.labels.values, f.labels.err = envelope.Labels(payload) })
	return f.labels.values, f.labels.err
}

// Fields of the object with these bytes, read by read when first asked for.
func (f *Facts) Fields(payload []byte, read func([]byte) (map[string]string, error)) (map[string]string, error) {
	f.fields.once.Do(func() { f.fields.values, f.fields.err = read(payload) })
	return f.fields.values, f.fields.err
}
