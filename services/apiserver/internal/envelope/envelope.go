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
	// version is the storage version: the schema the bytes were written in.
	version = 0x01

	metadataTag        = 0x0a // field 1, length-delimited
	resourceVersionTag = 0x32 // field 6 of ObjectMeta, length-delimited

	labelsField protowire.Number = 11
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
	if len(stored) < 2 || stored[0] != plain {
		return nil, fmt.Errorf("stored value does not begin with a known envelope")
	}
	if stored[1] != version {
		return nil, fmt.Errorf("stored value has storage version %d, %d is known", stored[1], version)
	}
	payload := stored[2:]
	if _, _, err := split(payload); err != nil {
		return nil, fmt.Errorf("stored value: %w", err)
	}
	return payload, nil
}

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
	if err := proto.Unmarshal(payload, into); err != nil {
		return fmt.Errorf("stored value: %w", err)
	}
	into.GetMetadata().ResourceVersion = strconv.FormatInt(revision, 10)
	return nil
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

// Append adds the object to dst with resource_version set: the leading metadata field grows by it. The payload must
// come from Open.
func Append(dst, payload []byte, revision int64) []byte {
	meta, rest, err := split(payload)
	if err != nil {
		return dst
	}
	n := digits(revision)
	dst = append(dst, metadataTag)
	dst = protowire.AppendVarint(dst, uint64(len(meta)+2+n))
	dst = append(dst, meta...)
	dst = append(dst, resourceVersionTag, byte(n))
	dst = strconv.AppendInt(dst, revision, 10)
	return append(dst, rest...)
}

func digits(n int64) int {
	d := 1
	for n >= 10 {
		n /= 10
		d++
	}
	return d
}

// Labels reads the labels of an object and nothing else.
func Labels(payload []byte) (map[string]string, error) {
	meta, _, err := split(payload)
	if err != nil {
		return nil, err
	}
	var labels map[string]string
	for len(meta) > 0 {
		num, typ, n := protowire.ConsumeTag(meta)
		if n < 0 {
			return nil, fmt.Errorf("metadata: %w", protowire.ParseError(n))
		}
		meta = meta[n:]
		if num != labelsField || typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, meta); n < 0 {
				return nil, fmt.Errorf("metadata: %w", protowire.ParseError(n))
			}
			meta = meta[n:]
			continue
		}
		entry, n := protowire.ConsumeBytes(meta)
		if n < 0 {
			return nil, fmt.Errorf("metadata: %w", protowire.ParseError(n))
		}
		meta = meta[n:]
		var kv [2]string
		for len(entry) > 0 {
			num, typ, n := protowire.ConsumeTag(entry)
			if n < 0 || typ != protowire.BytesType || num < 1 || num > 2 {
				return nil, fmt.Errorf("metadata: labels do not decode")
			}
			value, m := protowire.ConsumeBytes(entry[n:])
			if m < 0 {
				return nil, fmt.Errorf("metadata: labels do not decode")
			}
			kv[num-1] = string(value)
			entry = entry[n+m:]
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[kv[0]] = kv[1]
	}
	return labels, nil
}
