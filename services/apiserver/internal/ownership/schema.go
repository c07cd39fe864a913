package ownership

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/structured-merge-diff/v6/schema"

	"trireme.dev/client/kind"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// anything is the type of free-form JSON: one owner for all of it.
const anything = "anything"

// compiler turns descriptors into the library's schema: one named type per message, so that types may refer to
// themselves.
type compiler struct {
	seen  map[protoreflect.FullName]bool
	types []schema.TypeDef
	err   error
}

// compileSchema returns the schema of a kind, whose root type bears the message's name.
func compileSchema(k *kind.Kind) ([]schema.TypeDef, error) {
	untyped := schema.Untyped
	free := named(anything)
	c := &compiler{seen: map[protoreflect.FullName]bool{}, types: []schema.TypeDef{{Name: anything, Atom: schema.Atom{
		Scalar: &untyped,
		List:   &schema.List{ElementType: free, ElementRelationship: schema.Atomic},
		Map:    &schema.Map{ElementType: free, ElementRelationship: schema.Atomic},
	}}}}
	c.message(k.Message.Descriptor(), func(m *schema.Map) {
		m.Fields = append(m.Fields,
			schema.StructField{Name: "apiVersion", Type: scalar(schema.String)},
			schema.StructField{Name: "kind", Type: scalar(schema.String)})
	})
	return c.types, c.err
}

// message compiles a message once and returns a reference to it.
func (c *compiler) message(d protoreflect.MessageDescriptor, extend func(*schema.Map)) schema.TypeRef {
	name := string(d.FullName())
	ref := schema.TypeRef{NamedType: &name}
	if c.seen[d.FullName()] {
		return ref
	}
	c.seen[d.FullName()] = true
	m := &schema.Map{}
	if extend != nil {
		extend(m)
	}
	if atomic, _ := proto.GetExtension(d.Options(), metav1.E_Atomic).(bool); atomic {
		m.ElementRelationship = schema.Atomic
	}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		options, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
		if options.GetInternal() {
			continue
		}
		f := schema.StructField{Name: fd.JSONName(), Type: c.field(fd, options)}
		if !fd.IsList() && !fd.IsMap() && fd.Message() == nil {
			f.Default = c.keyDefault(fd, options)
		}
		m.Fields = append(m.Fields, f)
	}
	c.types = append(c.types, schema.TypeDef{Name: name, Atom: schema.Atom{Map: m}})
	return ref
}

func (c *compiler) field(fd protoreflect.FieldDescriptor, options *metav1.FieldOptions) schema.TypeRef {
	relation := schema.Separable
	if options.GetAtomic() {
		relation = schema.Atomic
	}
	switch {
	case fd.IsMap():
		return schema.TypeRef{Inlined: schema.Atom{Map: &schema.Map{
			ElementType: c.value(fd.MapValue()), ElementRelationship: relation,
		}}}
	case fd.IsList():
		list := &schema.List{ElementType: c.value(fd), ElementRelationship: schema.Atomic}
		switch {
		case options.GetAtomic():
		case options.GetSet():
			list.ElementRelationship = schema.Associative
		case len(options.GetListMapKeys()) > 0:
			list.ElementRelationship = schema.Associative
			list.Keys = options.GetListMapKeys()
		}
		return schema.TypeRef{Inlined: schema.Atom{List: list}}
	}
	ref := c.value(fd)
	if options.GetAtomic() && ref.NamedType != nil {
		ref.ElementRelationship = &relation
	}
	return ref
}

// keyDefault is what a field counts as where it is a key of a list's elements and absent: what the schema says or, where
// it may be absent, its zero value. An element without one of its keys could not be told apart from others.
func (c *compiler) keyDefault(fd protoreflect.FieldDescriptor, options *metav1.FieldOptions) any {
	var parsed any
	switch text := options.GetDefaultValue(); {
	case options.GetRequired() && text == "":
		return nil
	case text == "" && fd.Kind() == protoreflect.StringKind:
		return ""
	case text == "":
		return nil
	default:
		if err := json.Unmarshal([]byte(text), &parsed); err != nil {
			c.err = fmt.Errorf("default of %s: %w", fd.FullName(), err)
		}
	}
	return parsed
}

// value is the type of a single value: a field's, an element's or a map's.
func (c *compiler) value(fd protoreflect.FieldDescriptor) schema.TypeRef {
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		switch fd.Message().FullName() {
		case "google.protobuf.Timestamp":
			return scalar(schema.String)
		case "google.protobuf.Value":
			options, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
			if f := options.GetFormat(); f == metav1.Format_FORMAT_INT_OR_STRING || f == metav1.Format_FORMAT_INT_OR_PERCENT {
				return scalar(schema.Untyped)
			}
			return named(anything)
		case "google.protobuf.Struct", "google.protobuf.ListValue":
			return named(anything)
		}
		return c.message(fd.Message(), nil)
	case protoreflect.BoolKind:
		return scalar(schema.Boolean)
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.EnumKind:
		return scalar(schema.String)
	}
	return scalar(schema.Numeric)
}

func scalar(s schema.Scalar) schema.TypeRef { return schema.TypeRef{Inlined: schema.Atom{Scalar: &s}} }

func named(name string) schema.TypeRef { return schema.TypeRef{NamedType: &name} }
