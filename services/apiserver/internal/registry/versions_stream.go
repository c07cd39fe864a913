package registry

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// converted returns a Send that converts messages before they go out, each maybe into several.
func (v *Version) converted(send Send, convert func(message []byte, send func([]byte) error) error) Send {
	return func(parts [][]byte) error {
		return convert(bytes.Join(parts, nil), func(out []byte) error { return send([][]byte{out}) })
	}
}

// convertList converts a chunk {metadata = 1; items = 2}. Objects may be larger than they were, so it may become several;
// each has the metadata.
func (v *Version) convertList(message []byte, send func([]byte) error) error {
	var head, out []byte
	err := eachField(message, func(num protowire.Number, field, _ []byte) error {
		if num != 2 {
			head = append(head, field...)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("convert a list: %w", err)
	}
	err = eachField(message, func(num protowire.Number, _, value []byte) error {
		if num != 2 {
			return nil
		}
		item, err := v.seen.get(value, v.convert)
		if err != nil {
			return err
		}
		if len(out) > 0 && len(out)+len(item) > chunkBytes {
			if err := send(append(out, head...)); err != nil {
				return err
			}
			out = nil
		}
		out = protowire.AppendTag(out, 2, protowire.BytesType)
		out = protowire.AppendBytes(out, item)
		return nil
	})
	if err != nil {
		return err
	}
	return send(append(out, head...))
}

// convertWatch converts a response {events = 1 {type = 1; object = 2}; revision = 2; more = 3; initial_events_end = 4}.
// Where it becomes several, all but the last have more set: only with the last is the revision whole.
func (v *Version) convertWatch(message []byte, send func([]byte) error) error {
	var tail, revision, out []byte
	err := eachField(message, func(num protowire.Number, field, _ []byte) error {
		switch num {
		case 1:
		case 2:
			revision = field
			tail = append(tail, field...)
		default:
			tail = append(tail, field...)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("convert a watch response: %w", err)
	}
	err = eachField(message, func(num protowire.Number, _, value []byte) error {
		if num != 1 {
			return nil
		}
		event, err := v.convertEvent(value)
		if err != nil {
			return err
		}
		if len(out) > 0 && len(out)+len(event) > chunkBytes {
			out = append(out, revision...)
			out = protowire.AppendTag(out, 3, protowire.VarintType)
			if err := send(protowire.AppendVarint(out, 1)); err != nil {
				return err
			}
			out = nil
		}
		out = protowire.AppendTag(out, 1, protowire.BytesType)
		out = protowire.AppendBytes(out, event)
		return nil
	})
	if err != nil {
		return err
	}
	return send(append(out, tail...))
}

func (v *Version) convertEvent(event []byte) ([]byte, error) {
	var out []byte
	err := eachField(event, func(num protowire.Number, field, value []byte) error {
		if num != 2 {
			out = append(out, field...)
			return nil
		}
		object, err := v.seen.get(value, v.convert)
		if err != nil {
			return err
		}
		out = protowire.AppendTag(out, 2, protowire.BytesType)
		out = protowire.AppendBytes(out, object)
		return nil
	})
	return out, err
}

// eachField calls fn with each field of a message: all of it, and its value where it is length-delimited.
func eachField(message []byte, fn func(num protowire.Number, field, value []byte) error) error {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		m := protowire.ConsumeFieldValue(num, typ, message[n:])
		if m < 0 {
			return protowire.ParseError(m)
		}
		var value []byte
		if typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message[n:])
		}
		if err := fn(num, message[:n+m:n+m], value); err != nil {
			return err
		}
		message = message[n+m:]
	}
	return nil
}

// memoSize is how many conversions are remembered: those of the last events, which all watchers get at about one time.
const memoSize = 256

// memo remembers conversions by the bytes that were converted, so that an event is converted once for all its watchers.
// The zero memo is ready.
type memo struct {
	mu      sync.Mutex
	seed    maphash.Seed
	entries map[uint64]conversionOf
	order   [memoSize]uint64
	next    int
}

type conversionOf struct{ from, to []byte }

// get returns what convert makes of the bytes; the result is shared and must not be changed.
func (m *memo) get(from []byte, convert func([]byte) ([]byte, error)) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		m.entries, m.seed = map[uint64]conversionOf{}, maphash.MakeSeed()
	}
	hash := maphash.Bytes(m.seed, from)
	if known, ok := m.entries[hash]; ok && bytes.Equal(known.from, from) {
		return known.to, nil
	}
	to, err := convert(from)
	if err != nil {
		return nil, err
	}
	delete(m.entries, m.order[m.next])
	m.entries[hash], m.order[m.next] = conversionOf{bytes.Clone(from), to}, hash
	m.next = (m.next + 1) % memoSize
	return to, nil
}
