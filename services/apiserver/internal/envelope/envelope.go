// Package envelope owns the stored form of objects and its bytes: one envelope byte, one storage version byte, then the
// object's protobuf, metadata first and without resource_version. It adds resource_version to stored bytes and reads
// single parts of them, without decoding objects. It knows no kinds. In the chain it stands between registry and storage.
package envelope

import (
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	// plain is the envelope byte of values stored as they are; others are free for encryption.
	plain = 0x01
	// unreadable begins what Unreadable returns; nothing is stored under it.
	unreadable = 0x00
	// version is the storage version of the present form. What is stored in others, storage/format brings to it.
	version = 0x01

	metadataTag        = 0x0a // field 1, length-delimited
	resourceVersionTag = 0x32 // field 6 of ObjectMeta, length-delimited

	labelsField          protowire.Number = 11
	ownerReferencesField protowire.Number = 13
	ownerUIDField        protowire.Number = 4
)

// Object is what can be stored: a message whose first field is its metadata.
type Object interface {
	proto.Message
	GetMetadata() *metav1.ObjectMeta
}

// Encode returns the stored form of an object. The object's resource_version is left out; it is not changed.
func Encode(obj Object) ([]byte, error) {
	meta := obj.GetMetadata()
	if meta == nil {
		return nil, fmt.Errorf("encode %s: no metadata", obj.ProtoReflect().Descriptor().FullName())
	}
	saved := meta.ResourceVersion
	meta.ResourceVersion = ""
	defer func() { meta.ResourceVersion = saved }()
	opts := proto.MarshalOptions{Deterministic: true}
	stored := make([]byte, 2, 2+opts.Size(obj))
	stored[0], stored[1] = plain, version
	opts.UseCachedSize = true // nothing has changed since Size
	stored, err := opts.MarshalAppend(stored, obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.ProtoReflect().Descriptor().FullName(), err)
	}
	if _, _, err := split(stored[2:]); err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.ProtoReflect().Descriptor().FullName(), err)
	}
	return stored, nil
}

// Open returns the protobuf within a stored value, or says why the value is none of ours. The bytes are shared.
func Open(stored []byte) ([]byte, error) {
	switch {
	case len(stored) == 0:
		return nil, fmt.Errorf("stored value is empty")
	case stored[0] == unreadable:
		return nil, fmt.Errorf("stored value: %.200q", stored[1:])
	case stored[0] != plain || len(stored) < 2:
		return nil, fmt.Errorf("stored value does not begin with a known envelope")
	case stored[1] != version:
		return nil, fmt.Errorf("stored value has storage version %d, which is not known", stored[1])
	}
	payload := stored[2:]
	if _, _, err := split(payload); err != nil {
		return nil, fmt.Errorf("stored value: %w", err)
	}
	return payload, nil
}

// Unreadable returns a value that Open refuses, with the reason.
func Unreadable(reason string) []byte { return append([]byte{unreadable}, reason...) }

// Version returns the storage version of a value as it is in the store, and its protobuf; false where the value is none
// of ours.
func Version(stored []byte) (version byte, payload []byte, ok bool) {
	if len(stored) < 2 || stored[0] != plain {
		return 0, nil, false
	}
	return stored[1], stored[2:], true
}

// WithVersion returns a value of that storage version.
func WithVersion(version byte, payload []byte) []byte {
	return append(append(make([]byte, 0, 2+len(payload)), plain, version), payload...)
}

// Current is the storage version of the present form, which Open knows alone.
const Current byte = version

// split returns the bytes of the leading metadata and what follows it.
func split(payload []byte) (meta, rest []byte, err error) {
	if len(payload) == 0 || payload[0] != metadataTag {
		return nil, nil, fmt.Errorf("object does not begin with metadata")
	}
	meta, n := protowire.ConsumeBytes(payload[1:])
	if n < 0 {
		return nil, nil, fmt.Errorf("metadata is cut short")
	}
	return meta, payload[1+n:], nil
}

// Decode unmarshals a stored value and sets its resource_version.
func Decode(stored []byte, revision int64, into Object) error {
	payload, err := Open(stored)
	if err != nil {
		return err
	}
	if err := unmarshal(payload, into); err != nil {
		return fmt.Errorf("stored value: %w", err)
	}
	into.GetMetadata().ResourceVersion = strconv.FormatInt(revision, 10)
	return nil
}

// unmarshal uses generated code where the message has some: it is quicker, and does not ask whether strings are UTF-8, which
// was asked when they came in.
func unmarshal(payload []byte, into Object) error {
	if generated, ok := into.(interface{ UnmarshalVT([]byte) error }); ok {
		return generated.UnmarshalVT(payload)
	}
	return proto.Unmarshal(payload, into)
}

// Size returns how many bytes Append will add.
func Size(payload []byte, revision int64) int {
	meta, rest, err := split(payload)
	if err != nil {
		return 0
	}
	n := len(meta) + 2 + digits(revision)
	return 1 + protowire.SizeVarint(uint64(n)) + n + len(rest)
}

// Append adds the object to dst with resource_version set: it comes first in the leading metadata field. The payload must
// come from Open.
func Append(dst, payload []byte, revision int64) []byte {
	dst, rest := appendHead(dst, payload, revision)
	return append(dst, rest...)
}

// AppendParts adds the object to parts as Append would write it, in two slices: one with what is new, and one that is the
// payload's own bytes. What is new is written to head, of which everything from start on belongs in front of the object; the
// grown head is returned, to be used for more. The payload must come from Open.
func AppendParts(parts [][]byte, head []byte, start int, payload []byte, revision int64) (grown [][]byte, rest []byte) {
	head, own := appendHead(head, payload, revision)
	return append(parts, head[start:len(head):len(head)], own), head
}

// appendHead adds what stands before the object's own bytes, which it returns. The resource_version comes first and not last
// in metadata so that those are in one piece.
func appendHead(dst, payload []byte, revision int64) (head, own []byte) {
	meta, rest, err := split(payload)
	if err != nil {
		return dst, nil
	}
	n := digits(revision)
	dst = append(dst, metadataTag)
	dst = protowire.AppendVarint(dst, uint64(len(meta)+2+n))
	dst = append(dst, resourceVersionTag, byte(n))
	dst = strconv.AppendInt(dst, revision, 10)
	return dst, payload[len(payload)-len(rest)-len(meta):]
}

func digits(n int64) int {
	d := 1
	for n >= 10 {
		n /= 10
		d++
	}
	return d
}

// Label reads one label of an object and nothing else. The last of several entries counts, as protobuf has it.
func Label(payload []byte, key string) (value string, ok bool, err error) {
	err = metadataFields(payload, labelsField, func(entry []byte) error {
		k, v, err := pair(entry)
		if err == nil && string(k) == key {
			value, ok = string(v), true
		}
		return err
	})
	return value, ok, err
}

// OwnerUIDs calls emit with the uid of each owner reference of an object.
func OwnerUIDs(payload []byte, emit func(uid string)) error {
	return metadataFields(payload, ownerReferencesField, func(ref []byte) error {
		return fields(ref, func(num protowire.Number, value []byte) error {
			if num == ownerUIDField {
				emit(string(value))
			}
			return nil
		})
	})
}

// metadataFields calls fn with every value of one field of an object's metadata.
func metadataFields(payload []byte, number protowire.Number, fn func([]byte) error) error {
	meta, _, err := split(payload)
	if err != nil {
		return err
	}
	err = fields(meta, func(num protowire.Number, value []byte) error {
		if num == number {
			return fn(value)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return nil
}

// fields calls fn with the length-delimited fields of a message.
func fields(message []byte, fn func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, message); n < 0 {
				return protowire.ParseError(n)
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if err := fn(num, value); err != nil {
			return err
		}
	}
	return nil
}

// pair reads an entry of a map of strings.
func pair(entry []byte) (key, value []byte, err error) {
	err = fields(entry, func(num protowire.Number, b []byte) error {
		switch num {
		case 1:
			key = b
		case 2:
			value = b
		}
		return nil
	})
	return key, value, err
}
