package format

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// shape is what of a message's descriptor says whether bytes are one: whoever unmarshals bytes that pass does not fail.
// It is compiled, so that the check costs a fraction of unmarshalling.
type shape struct {
	fields []field // by number
	more   map[protowire.Number]field
}

type field struct {
	wire    protowire.Type
	known   bool
	text    bool // must be UTF-8
	list    bool // of numbers, which may be packed
	message *shape
}

type shapes map[protoreflect.FullName]*shape

// densest field numbers are looked up in a slice.
const densest = 64

func (all shapes) of(d protoreflect.MessageDescriptor) *shape {
	if s := all[d.FullName()]; s != nil {
		return s
	}
	s := &shape{more: map[protowire.Number]field{}}
	all[d.FullName()] = s // before its fields: messages may hold themselves
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		f := field{known: true}
		switch fd.Kind() {
		case protoreflect.MessageKind:
			f.wire, f.message = protowire.BytesType, all.of(fd.Message())
		case protoreflect.GroupKind:
			f.wire = protowire.StartGroupType
		case protoreflect.StringKind:
			f.wire, f.text = protowire.BytesType, true
		case protoreflect.BytesKind:
			f.wire = protowire.BytesType
		case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
			f.wire, f.list = protowire.Fixed32Type, fd.IsList()
		case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
			f.wire, f.list = protowire.Fixed64Type, fd.IsList()
		default:
			f.wire, f.list = protowire.VarintType, fd.IsList()
		}
		if fd.Number() >= densest {
			s.more[fd.Number()] = f
			continue
		}
		for len(s.fields) <= int(fd.Number()) {
			s.fields = append(s.fields, field{})
		}
		s.fields[fd.Number()] = f
	}
	return s
}

func (s *shape) field(n protowire.Number) field {
	if int(n) < len(s.fields) {
		return s.fields[n]
	}
	return s.more[n]
}

// maxDepth is how deep protobuf lets messages nest.
const maxDepth = protowire.DefaultRecursionLimit

var (
	errNumber = errors.New("a field number beyond those there are")
	errDepth  = errors.New("messages are nested too deep")
	errText   = errors.New("text that is no UTF-8")
)

// check reports why bytes are no message of the shape.
func (s *shape) check(b []byte) error { return s.walk(b, maxDepth) }

func (s *shape) walk(b []byte, depth int) error {
	if depth == 0 {
		return errDepth
	}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("tag: %w", protowire.ParseError(n))
		}
		if num > protowire.MaxValidNumber {
			return errNumber // which ConsumeTag lets pass
		}
		b = b[n:]
		f := s.field(num)
		if typ != protowire.BytesType || !f.known || f.wire != typ && !f.list {
			// Fields of other types than the message has are unknown to it, and kept.
			n = protowire.ConsumeFieldValue(num, typ, b)
			if n < 0 {
				return fmt.Errorf("field %d: %w", num, protowire.ParseError(n))
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return fmt.Errorf("field %d: %w", num, protowire.ParseError(n))
		}
		b = b[n:]
		var err error
		switch {
		case f.message != nil:
			err = f.message.walk(value, depth-1)
		case f.text && !utf8.Valid(value):
			err = errText
		case f.list:
			err = packed(value, f.wire)
		}
		if err != nil {
			return fmt.Errorf("field %d: %w", num, err)
		}
	}
	return nil
}

// packed checks a list of numbers.
func packed(b []byte, typ protowire.Type) error {
	for len(b) > 0 {
		n := protowire.ConsumeFieldValue(1, typ, b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
	}
	return nil
}
