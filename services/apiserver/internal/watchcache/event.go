package watchcache

import (
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
)

// Object is one state of one key: the only copy of its bytes, shared by the tree, the history and all events.
type Object struct {
	Key      string
	Revision int64
	stored   []byte
}

// Payload returns the object's protobuf, or says why the stored bytes are no object.
func (o *Object) Payload() ([]byte, error) { return envelope.Open(o.stored) }

// Stored returns the bytes as they are in the store.
func (o *Object) Stored() []byte { return o.stored }

// Event is one change of one object, shared by all who watch its kind.
type Event struct {
	Revision int64
	// Now is the object after the change, nil where it was deleted; Before is that before, nil where it was created.
	Now, Before *Object

	encoded [3]encoding
}

type encoding struct {
	once  sync.Once
	parts [][]byte
	err   error
}

// Key of the object.
func (e *Event) Key() string {
	if e.Now != nil {
		return e.Now.Key
	}
	return e.Before.Key
}

// Type returns what happened to the object, selectors apart.
func (e *Event) Type() metav1.WatchEventType {
	switch {
	case e.Now == nil:
		return metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED
	case e.Before == nil:
		return metav1.WatchEventType_WATCH_EVENT_TYPE_ADDED
	default:
		return metav1.WatchEventType_WATCH_EVENT_TYPE_MODIFIED
	}
}

// size is what the event keeps in memory for those who have not seen it.
func (e *Event) size() int {
	if e.Now == nil {
		return 0 // the state before is in the history
	}
	return len(e.Now.stored)
}

// Encoded returns the event as field 1 of a watch response, tag and length included, in parts that share the object's
// bytes. It is made once for all watchers and must not be changed; first is true for whom it was made. DELETED carries the
// state before the change; all carry the revision of the change.
func (e *Event) Encoded(typ metav1.WatchEventType) (parts [][]byte, first bool, err error) {
	slot := &e.encoded[typ-1]
	slot.once.Do(func() {
		first = true
		object := e.Now
		if typ == metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED {
			object = e.Before
		}
		var payload []byte
		if payload, slot.err = object.Payload(); slot.err == nil {
			slot.parts = EncodeEvent(typ, payload, e.Revision)
		}
	})
	return slot.parts, first, slot.err
}

// EncodeEvent makes {events = 1 {type = 1, object = 2}} of a watch response, in parts that share the payload's bytes.
func EncodeEvent(typ metav1.WatchEventType, payload []byte, revision int64) [][]byte {
	object := envelope.Size(payload, revision)
	inner := 2 + 1 + protowire.SizeVarint(uint64(object)) + object
	head := make([]byte, 0, 48)
	head = protowire.AppendTag(head, 1, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(inner))
	head = protowire.AppendTag(head, 1, protowire.VarintType)
	head = protowire.AppendVarint(head, uint64(typ))
	head = protowire.AppendTag(head, 2, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(object))
	parts, _ := envelope.AppendParts(make([][]byte, 0, 2), head, 0, payload, revision)
	return parts
}

// history makes events of what the store remembers.
func history(events []storage.Event) []*Event {
	out := make([]*Event, 0, len(events))
	for i := range events {
		e := &events[i]
		event := &Event{Revision: e.Revision}
		if value := readable(e.Value); value != nil {
			event.Now = &Object{Key: e.Key, Revision: e.Revision, stored: value}
		}
		if value := readable(e.Previous); value != nil {
			event.Before = &Object{Key: e.Key, Revision: e.PreviousRevision, stored: value}
		}
		if event.Now != nil || event.Before != nil {
			out = append(out, event)
		}
	}
	return out
}
