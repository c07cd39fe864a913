package schema

import (
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// structOf returns the struct that holds messages of a type, and where in it each field stands, by number. There is none
// for types that are not compiled in. Whether a field is set is asked of hundreds of fields for each write, and the struct
// answers in a tenth of the time that protobuf's reflection takes.
func structOf(d protoreflect.MessageDescriptor) (reflect.Type, map[protoreflect.FieldNumber]int) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil || t.Descriptor() != d {
		return nil, nil
	}
	goType := reflect.TypeOf(t.Zero().Interface())
	if goType.Kind() != reflect.Pointer || goType.Elem().Kind() != reflect.Struct {
		return nil, nil
	}
	goType = goType.Elem()
	places := map[protoreflect.FieldNumber]int{}
	for i := range goType.NumField() {
		// `bytes,1,opt,name=metadata,proto3`; a oneof has another tag.
		parts := strings.Split(goType.Field(i).Tag.Get("protobuf"), ",")
		if len(parts) < 2 {
			continue
		}
		if n, err := strconv.Atoi(parts[1]); err == nil {
			places[protoreflect.FieldNumber(n)] = i
		}
	}
	return goType, places
}

// opened is a message with its struct, where that is known.
type opened struct {
	msg    protoreflect.Message
	fields reflect.Value
}

func (m *message) open(msg protoreflect.Message) opened {
	if m.goType != nil {
		if v := reflect.ValueOf(msg.Interface()); v.Type().Elem() == m.goType && !v.IsNil() {
			return opened{msg, v.Elem()}
		}
	}
	return opened{msg: msg}
}

// has is protoreflect's Has.
func (o opened) has(f *field) bool {
	if f.place < 0 || !o.fields.IsValid() {
		return o.msg.Has(f.fd)
	}
	v := o.fields.Field(f.place)
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil()
	case reflect.Map, reflect.String:
		return v.Len() > 0
	case reflect.Slice:
		if f.fd.HasPresence() { // optional bytes
			return !v.IsNil()
		}
		return v.Len() > 0
	}
	return !v.IsZero()
}
