package manifest

import (
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Messages of protobuf that stand for plain JSON values.
const (
	timestampName protoreflect.FullName = "google.protobuf.Timestamp"
	valueName     protoreflect.FullName = "google.protobuf.Value"
	structName    protoreflect.FullName = "google.protobuf.Struct"
	listValueName protoreflect.FullName = "google.protobuf.ListValue"
)

// schema is what the codec needs to know of a message: its descriptor with the options already looked up.
type schema struct {
	// fields in the order in which the message declares them, without the internal ones.
	fields []*field
	byName map[string]*field
}

// field is one field of a message.
type field struct {
	protoreflect.FieldDescriptor
	name        string
	format      metav1.Format
	printEmpty  bool
	unenforced  bool
	wellKnown   protoreflect.FullName // of a message that is a JSON value; of a map's values where it is a map
	messageType protoreflect.MessageDescriptor
}

// schemas remembers the schema of each descriptor, as encoding/json remembers struct types: descriptors never change,
// and reading their options costs more than encoding a field. It is no state that anyone could observe.
var schemas sync.Map // protoreflect.MessageDescriptor → *schema

func schemaOf(d protoreflect.MessageDescriptor) *schema {
	if known, ok := schemas.Load(d); ok {
		return known.(*schema)
	}
	s := &schema{byName: map[string]*field{}}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		options, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
		if options.GetInternal() {
			continue
		}
		f := &field{
			FieldDescriptor: fd,
			name:            fd.JSONName(),
			format:          options.GetFormat(),
			printEmpty:      options.GetPrintedWhenEmpty(),
			unenforced:      options.GetUnenforced(),
			messageType:     fd.Message(),
		}
		if fd.IsMap() {
			f.messageType = fd.MapValue().Message()
		}
		if f.messageType != nil && isWellKnown(f.messageType.FullName()) {
			f.wellKnown = f.messageType.FullName()
		}
		s.fields = append(s.fields, f)
		s.byName[f.name] = f
	}
	known, _ := schemas.LoadOrStore(d, s)
	return known.(*schema)
}

func isWellKnown(name protoreflect.FullName) bool {
	return name == timestampName || name == valueName || name == structName || name == listValueName
}
