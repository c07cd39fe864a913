package manifest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client/quantity"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// scalar reads a value that is no message.
func (d *decoder) scalar(p *path, f *field, fd protoreflect.FieldDescriptor, n *node, fresh func() protoreflect.Value) (protoreflect.Value, bool) {
	if n.shape == shapeNull {
		if f.format == metav1.Format_FORMAT_QUANTITY {
			return protoreflect.ValueOfString("0"), true
		}
		return fresh(), true
	}
	switch fd.Kind() {
	case protoreflect.StringKind:
		if f.format == metav1.Format_FORMAT_QUANTITY {
			return d.quantity(p, n)
		}
		if n.shape != shapeText {
			d.expected(p, n, "a string")
			return protoreflect.Value{}, false
		}
		return protoreflect.ValueOfString(n.text), true
	case protoreflect.BoolKind:
		if n.shape != shapeBool {
			d.expected(p, n, "true or false")
			return protoreflect.Value{}, false
		}
		return protoreflect.ValueOfBool(n.text == "true"), true
	case protoreflect.BytesKind:
		return d.bytes(p, n)
	case protoreflect.EnumKind:
		if value := fd.Enum().Values().ByName(protoreflect.Name(n.text)); value != nil && n.shape == shapeText {
			return protoreflect.ValueOfEnum(value.Number()), true
		}
		d.expected(p, n, "a name of "+string(fd.Enum().Name()))
		return protoreflect.Value{}, false
	default:
		return d.number(p, fd, n)
	}
}

// number reads integers and floats of all sizes.
func (d *decoder) number(p *path, fd protoreflect.FieldDescriptor, n *node) (protoreflect.Value, bool) {
	switch fd.Kind() {
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		if value, ok := d.float(p, n); ok {
			if fd.Kind() == protoreflect.FloatKind {
				return protoreflect.ValueOfFloat32(float32(value)), true
			}
			return protoreflect.ValueOfFloat64(value), true
		}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		if value, ok := d.unsigned(p, n, 32); ok {
			return protoreflect.ValueOfUint32(uint32(value)), true
		}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		if value, ok := d.unsigned(p, n, 64); ok {
			return protoreflect.ValueOfUint64(value), true
		}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		if value, ok := d.integer(p, n, 32); ok {
			return protoreflect.ValueOfInt32(int32(value)), true
		}
	default:
		if value, ok := d.integer(p, n, 64); ok {
			return protoreflect.ValueOfInt64(value), true
		}
	}
	return protoreflect.Value{}, false
}

func (d *decoder) integer(p *path, n *node, bits int) (int64, bool) {
	if !d.isInteger(p, n) {
		return 0, false
	}
	value, err := strconv.ParseInt(n.text, 10, bits)
	if err != nil {
		limit := int64(1) << (bits - 1)
		d.fail(p, n.line, "%s is out of range; the smallest is %d, the largest %d", n.source, -limit, limit-1)
		return 0, false
	}
	return value, true
}

func (d *decoder) unsigned(p *path, n *node, bits int) (uint64, bool) {
	if !d.isInteger(p, n) {
		return 0, false
	}
	value, err := strconv.ParseUint(n.text, 10, bits)
	if err != nil {
		d.fail(p, n.line, "%s is out of range; the smallest is 0, the largest %d", n.source, uint64(math.MaxUint64)>>(64-bits))
		return 0, false
	}
	return value, true
}

func (d *decoder) isInteger(p *path, n *node) bool {
	if n.shape != shapeInteger {
		d.expected(p, n, "an integer")
		return false
	}
	return true
}

func (d *decoder) float(p *path, n *node) (float64, bool) {
	if n.shape != shapeInteger && n.shape != shapeFloat {
		d.expected(p, n, "a number")
		return 0, false
	}
	value, err := strconv.ParseFloat(n.text, 64)
	if err != nil || math.IsInf(value, 0) || math.IsNaN(value) {
		d.fail(p, n.line, "%s is no number that JSON can hold", n.source)
		return 0, false
	}
	return value, true
}

// quantity keeps the text that the user wrote; a number becomes its decimal text.
func (d *decoder) quantity(p *path, n *node) (protoreflect.Value, bool) {
	switch n.shape {
	case shapeText, shapeInteger, shapeFloat:
		if _, err := quantity.Parse(n.text); err != nil {
			d.fail(p, n.line, "%s is not a quantity; write a number with a suffix, as in 500m, 1.5 or 2Gi", n.describe())
			return protoreflect.Value{}, false
		}
		return protoreflect.ValueOfString(n.text), true
	default:
		d.expected(p, n, "a quantity")
		return protoreflect.Value{}, false
	}
}

// bytes reads base64; line breaks in it mean nothing.
func (d *decoder) bytes(p *path, n *node) (protoreflect.Value, bool) {
	if n.shape != shapeText {
		d.expected(p, n, "a string")
		return protoreflect.Value{}, false
	}
	value, err := base64.StdEncoding.DecodeString(n.text)
	if err != nil {
		var corrupt base64.CorruptInputError
		if errors.As(err, &corrupt) {
			d.fail(p, n.line, "not base64 (at character %d)", int64(corrupt)+1)
		} else {
			d.fail(p, n.line, "not base64")
		}
		return protoreflect.Value{}, false
	}
	return protoreflect.ValueOfBytes(value), true
}

// timestamp reads RFC 3339 and keeps what will be printed again: whole seconds, or microseconds.
func (d *decoder) timestamp(p *path, f *field, n *node, into protoreflect.Message) {
	if n.shape == shapeNull {
		// In a list or map, where a value must stand: the zero time, as it is for Kubernetes, which prints it so too.
		setTimestamp(into, timestamppb.New(time.Time{}))
		return
	}
	if n.shape != shapeText {
		d.expected(p, n, "a time as in 2006-01-02T15:04:05Z")
		return
	}
	value, err := time.Parse(time.RFC3339, n.text)
	if err != nil {
		d.expected(p, n, "a time as in 2006-01-02T15:04:05Z")
		return
	}
	unit := time.Second
	if f.format == metav1.Format_FORMAT_MICRO_TIME {
		unit = time.Microsecond
	}
	stamp := timestamppb.New(value.Truncate(unit))
	if stamp.CheckValid() != nil {
		d.fail(p, n.line, "%q is not between the years 1 and 9999", n.text)
		return
	}
	setTimestamp(into, stamp)
}

// setTimestamp fills a message of the timestamp's shape, which for kinds known only at run time is not *timestamppb.
func setTimestamp(into protoreflect.Message, stamp *timestamppb.Timestamp) {
	fields := into.Descriptor().Fields()
	into.Set(fields.ByNumber(1), protoreflect.ValueOfInt64(stamp.GetSeconds()))
	into.Set(fields.ByNumber(2), protoreflect.ValueOfInt32(stamp.GetNanos()))
}

// wrongForFormat says what a google.protobuf.Value should hold where it may not hold everything.
func wrongForFormat(f *field, n *node) (string, bool) {
	switch f.format {
	case metav1.Format_FORMAT_INT_OR_STRING, metav1.Format_FORMAT_INT_OR_PERCENT:
		what := "an integer or a string"
		if f.format == metav1.Format_FORMAT_INT_OR_PERCENT {
			what = "an integer or a percentage"
		}
		if n.shape == shapeInteger {
			_, err := strconv.ParseInt(n.text, 10, 32)
			return what + " (the integer of at most 32 bits)", err != nil
		}
		return what, n.shape != shapeText
	}
	if f.wellKnown == structName {
		return "a mapping", n.shape != shapeObject
	}
	if f.wellKnown == listValueName {
		return "a list", n.shape != shapeList
	}
	return "", false
}

// raw fills a Value, Struct or ListValue with any JSON.
func (d *decoder) raw(p *path, n *node, into protoreflect.Message) {
	value := d.rawValue(p, n)
	if value == nil {
		return
	}
	switch known := into.Interface().(type) {
	case *structpb.Value:
		known.Kind = value.GetKind()
	case *structpb.Struct:
		known.Fields = value.GetStructValue().GetFields()
	case *structpb.ListValue:
		known.Values = value.GetListValue().GetValues()
	default:
		// A kind known only at run time holds the same message without its Go type.
		var from proto.Message = value
		switch into.Descriptor().FullName() {
		case structName:
			from = value.GetStructValue()
		case listValueName:
			from = value.GetListValue()
		}
		if err := copyMessage(from, known); err != nil {
			d.fail(p, n.line, "%v", err)
		}
	}
}

// copyMessage fills a message from one of the same shape and another Go type.
func copyMessage(from, to proto.Message) error {
	encoded, err := proto.Marshal(from)
	if err != nil {
		return fmt.Errorf("encode %s: %w", from.ProtoReflect().Descriptor().FullName(), err)
	}
	if err := proto.Unmarshal(encoded, to); err != nil {
		return fmt.Errorf("decode %s: %w", from.ProtoReflect().Descriptor().FullName(), err)
	}
	return nil
}

// rawValue returns nil after it has reported what is wrong.
func (d *decoder) rawValue(p *path, n *node) *structpb.Value {
	switch n.shape {
	case shapeNull:
		return structpb.NewNullValue()
	case shapeBool:
		return structpb.NewBoolValue(n.text == "true")
	case shapeText:
		return structpb.NewStringValue(n.text)
	case shapeInteger, shapeFloat:
		value, ok := d.float(p, n)
		if !ok {
			return nil
		}
		// A Value holds numbers as float64. What would come back changed is refused.
		const exact = 1 << 53
		if n.shape == shapeInteger && (value > exact || value < -exact) {
			d.fail(p, n.line, "%s has more digits than free-form JSON keeps (up to %s); quote it", n.source, strconv.Itoa(exact))
			return nil
		}
		return structpb.NewNumberValue(value)
	case shapeList:
		list := &structpb.ListValue{Values: make([]*structpb.Value, 0, len(n.items))}
		for i := range n.items {
			if item := d.rawValue(p.item(i), &n.items[i]); item != nil {
				list.Values = append(list.Values, item)
			}
		}
		return structpb.NewListValue(list)
	case shapeObject:
		object := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(n.entries))}
		for _, e := range d.entries(p, n) {
			if value := d.rawValue(p.field(e.key), &e.value); value != nil {
				object.Fields[e.key] = value
			}
		}
		return structpb.NewStructValue(object)
	default:
		panic(fmt.Sprintf("a value of shape %d", n.shape))
	}
}
