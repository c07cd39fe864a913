// Package schema sets the defaults of objects and finds everything wrong with them. Most rules stand in the options of
// the proto's fields, those that cross fields in CEL in the options of its messages; all are compiled once per kind. What
// neither can say is written by hand, one file per subject. It reads and changes nothing but the object it is given.
package schema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"cel.dev/cel-go/cel"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	metadataName protoreflect.FullName = "trireme.meta.v1.ObjectMeta"
	valueName    protoreflect.FullName = "google.protobuf.Value"
)

// Schema is the compiled rules of one kind.
type Schema struct {
	kind *kind.Kind
	root *message
}

// message is the compiled rules of one message type.
type message struct {
	name   protoreflect.FullName
	goType reflect.Type // nil where the messages are not compiled in
	fields []*field
	// What lies in this message or below it; a subtree without any is not walked.
	defaults, checks, immutables, unenforced bool
	transitions                              bool
	rules                                    []*rule                                         // in CEL
	defaulter                                func(proto.Message)                             // by hand, before options
	check                                    func(p *path, m proto.Message, out *violations) // by hand, after options
}

// field is the compiled rules of one field.
type field struct {
	fd      protoreflect.FieldDescriptor
	place   int    // in the struct; -1 where it is in none
	name    string // as JSON spells it
	options *metav1.FieldOptions
	message *message // of the value; nil for scalars and well-known types
	set     func(protoreflect.Message)
	value   protoreflect.Value // the default of a scalar, for comparison
	check   func(p *path, v protoreflect.Value, out *violations)
	keys    []protoreflect.FieldDescriptor // list_map_keys
	unique  bool                           // no two elements may have the same keys
}

// Compiler compiles the schemas of kinds. What messages they share it compiles once.
type Compiler struct {
	seen map[protoreflect.FullName]*message
	base *cel.Env // of all rules
}

// NewCompiler returns a compiler that has compiled nothing yet. It is not safe for concurrent use.
func NewCompiler() (*Compiler, error) {
	base, err := cel.NewEnv(cel.JSONFieldNames(true))
	if err != nil {
		return nil, fmt.Errorf("environment of rules: %w", err)
	}
	return &Compiler{seen: map[protoreflect.FullName]*message{}, base: base}, nil
}

// Compile reads the options of a kind's fields. An option that does not fit its field, and a rule that does not compile,
// is an error.
func (c *Compiler) Compile(k *kind.Kind) (*Schema, error) {
	root, err := c.message(k.Message.Descriptor())
	if err != nil {
		return nil, err
	}
	return &Schema{kind: k, root: root}, nil
}

func (c *Compiler) message(d protoreflect.MessageDescriptor) (*message, error) {
	if m, ok := c.seen[d.FullName()]; ok {
		return m, nil
	}
	m := &message{name: d.FullName(), defaulter: defaulters[d.FullName()], check: checks[d.FullName()]}
	m.defaults, m.checks = m.defaulter != nil, m.check != nil
	c.seen[d.FullName()] = m
	var places map[protoreflect.FieldNumber]int
	m.goType, places = structOf(d)
	var err error
	if m.rules, err = c.compileRules(d); err != nil {
		return nil, err
	}
	for _, r := range m.rules {
		m.checks = m.checks || !r.transition
		m.transitions = m.transitions || r.transition
	}
	for i := range d.Fields().Len() {
		f, err := c.field(d.Fields().Get(i))
		if err != nil {
			return nil, err
		}
		if place, ok := places[f.fd.Number()]; ok {
			f.place = place
		}
		m.fields = append(m.fields, f)
		m.defaults = m.defaults || f.set != nil
		m.checks = m.checks || f.check != nil || f.options.GetRequired() || f.unique
		m.immutables = m.immutables || f.options.GetImmutable()
		m.unenforced = m.unenforced || f.options.GetUnenforced()
		if f.message != nil && m.name != metadataName {
			m.defaults = m.defaults || f.message.defaults
			m.checks = m.checks || f.message.checks
			m.immutables = m.immutables || f.message.immutables && f.message.name != metadataName
			m.unenforced = m.unenforced || f.message.unenforced
			m.transitions = m.transitions || f.message.transitions
		}
	}
	return m, nil
}

func (c *Compiler) field(fd protoreflect.FieldDescriptor) (*field, error) {
	f := &field{fd: fd, place: -1, name: fd.JSONName(), options: optionsOf(fd)}
	value := fd
	if fd.IsMap() {
		value = fd.MapValue()
	}
	if md := value.Message(); md != nil && md.ParentFile().Package() != "google.protobuf" {
		sub, err := c.message(md)
		if err != nil {
			return nil, err
		}
		f.message = sub
	}
	var err error
	if f.set, f.value, err = compileDefault(fd, f.options.GetDefaultValue()); err != nil {
		return nil, fmt.Errorf("default of %s: %w", fd.FullName(), err)
	}
	f.check = compileCheck(fd, f.options)
	for _, key := range f.options.GetListMapKeys() {
		kd := fd.Message().Fields().ByJSONName(key)
		if kd == nil || kd.Message() != nil {
			return nil, fmt.Errorf("list_map_keys of %s: %q is no scalar of its elements", fd.FullName(), key)
		}
		f.keys = append(f.keys, kd)
	}
	f.unique = len(f.keys) > 0 && !f.options.GetKeysMayRepeat()
	return f, nil
}

func optionsOf(fd protoreflect.FieldDescriptor) *metav1.FieldOptions {
	opts := fd.Options()
	if opts == nil || !proto.HasExtension(opts, metav1.E_Field) {
		return nil
	}
	o, _ := proto.GetExtension(opts, metav1.E_Field).(*metav1.FieldOptions)
	return o
}

// compileDefault returns what sets the default, and its value where it is a scalar.
func compileDefault(fd protoreflect.FieldDescriptor, text string) (func(protoreflect.Message), protoreflect.Value, error) {
	none := protoreflect.Value{}
	if text == "" {
		return nil, none, nil
	}
	if fd.IsList() || fd.IsMap() {
		return nil, none, fmt.Errorf("lists and maps have no defaults")
	}
	var parsed any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&parsed); err != nil {
		return nil, none, err
	}
	if fd.Message() != nil {
		if fd.Message().FullName() == valueName {
			return func(m protoreflect.Message) {
				v, _ := structpb.NewValue(parsed) // checked below
				m.Set(fd, protoreflect.ValueOfMessage(v.ProtoReflect()))
			}, none, checkValue(parsed)
		}
		object, ok := parsed.(map[string]any)
		if !ok {
			return nil, none, fmt.Errorf("%s is not an object", text)
		}
		if err := fill(dynamicOf(fd), object); err != nil {
			return nil, none, err
		}
		return func(m protoreflect.Message) {
			_ = fill(m.Mutable(fd).Message(), object) // it went well above, on an empty message
		}, none, nil
	}
	v, err := scalar(fd, parsed)
	if err != nil {
		return nil, none, err
	}
	return func(m protoreflect.Message) { m.Set(fd, v) }, v, nil
}

func checkValue(v any) error {
	_, err := structpb.NewValue(v)
	return err
}

// dynamicOf returns an empty message of a field's type.
func dynamicOf(fd protoreflect.FieldDescriptor) protoreflect.Message {
	return newMessage(fd.Message())
}

func fill(m protoreflect.Message, object map[string]any) error {
	for name, v := range object {
		fd := m.Descriptor().Fields().ByJSONName(name)
		if fd == nil {
			return fmt.Errorf("unknown field %q", name)
		}
		if fd.Message() != nil {
			sub, ok := v.(map[string]any)
			if !ok || fd.IsList() || fd.IsMap() {
				return fmt.Errorf("field %q is not an object", name)
			}
			if err := fill(m.Mutable(fd).Message(), sub); err != nil {
				return err
			}
			continue
		}
		s, err := scalar(fd, v)
		if err != nil {
			return err
		}
		m.Set(fd, s)
	}
	return nil
}

func scalar(fd protoreflect.FieldDescriptor, v any) (protoreflect.Value, error) {
	switch fd.Kind() {
	case protoreflect.StringKind:
		if s, ok := v.(string); ok {
			return protoreflect.ValueOfString(s), nil
		}
	case protoreflect.BoolKind:
		if b, ok := v.(bool); ok {
			return protoreflect.ValueOfBool(b), nil
		}
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		if n, ok := v.(json.Number); ok {
			i, err := n.Int64()
			if err != nil {
				return protoreflect.Value{}, err
			}
			if fd.Kind() == protoreflect.Int32Kind {
				return protoreflect.ValueOfInt32(int32(i)), nil
			}
			return protoreflect.ValueOfInt64(i), nil
		}
	}
	return protoreflect.Value{}, fmt.Errorf("%v is no %s", v, fd.Kind())
}

// Default fills in what the object leaves out. Doing so twice changes nothing more.
func (s *Schema) Default(obj proto.Message) { s.root.fill(obj.ProtoReflect()) }

func (m *message) fill(msg protoreflect.Message) {
	if m.defaulter != nil {
		m.defaulter(msg.Interface())
	}
	o := m.open(msg)
	for _, f := range m.fields {
		if f.set != nil && !o.has(f) {
			f.set(msg)
		}
		if f.message == nil || !f.message.defaults || !o.has(f) {
			continue
		}
		v := msg.Get(f.fd)
		switch {
		case f.fd.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, e protoreflect.Value) bool {
				f.message.fill(e.Message())
				return true
			})
		case f.fd.IsList():
			for i := range v.List().Len() {
				f.message.fill(v.List().Get(i).Message())
			}
		default:
			f.message.fill(v.Message())
		}
	}
}

// Warnings name the fields that the user set and that nothing acts on yet. To be asked before Default; a field with the
// value it would get anyway is not worth a warning.
func (s *Schema) Warnings(obj proto.Message) []string {
	var out []string
	s.root.warn(nowhere, obj.ProtoReflect(), &out)
	if out != nil {
		out = out[:0]
		s.root.warn(nil, obj.ProtoReflect(), &out)
	}
	return out
}

func (m *message) warn(p *path, msg protoreflect.Message, out *[]string) {
	o := m.open(msg)
	for _, f := range m.fields {
		if !f.options.GetUnenforced() && (f.message == nil || !f.message.unenforced) || !o.has(f) {
			continue
		}
		here := p.field(f.name)
		v := msg.Get(f.fd)
		if f.options.GetUnenforced() {
			if !f.value.IsValid() || !v.Equal(f.value) {
				*out = append(*out, here.String()+": accepted, but not enforced yet")
			}
			continue
		}
		switch {
		case f.fd.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, e protoreflect.Value) bool {
				f.message.warn(here.key(k.String()), e.Message(), out)
				return true
			})
		case f.fd.IsList():
			for i := range v.List().Len() {
				f.message.warn(here.item(i), v.List().Get(i).Message(), out)
			}
		default:
			f.message.warn(here, v.Message(), out)
		}
	}
}

// ValidateCreate returns everything wrong with a new object, after Default.
func (s *Schema) ValidateCreate(obj proto.Message) []apierr.Violation { return s.validate(obj, nil) }

// ValidateUpdate returns everything wrong with an object that replaces old, after Default.
func (s *Schema) ValidateUpdate(obj, old proto.Message) []apierr.Violation {
	return s.validate(obj, old)
}

// validate goes through the object once to see whether anything is wrong, and only then once more to say where. Most
// objects are right, and for them no paths are made and nothing is put in order.
func (s *Schema) validate(obj, old proto.Message) []apierr.Violation {
	out := &violations{}
	if s.walk(nowhere, obj, old, out); len(out.list) == 0 {
		return nil
	}
	out = &violations{}
	s.walk(nil, obj, old, out)
	return out.all()
}

func (s *Schema) walk(p *path, obj, old proto.Message, out *violations) {
	if o, ok := obj.(interface{ GetMetadata() *metav1.ObjectMeta }); ok {
		s.metadata(p.field("metadata"), o.GetMetadata(), out)
	}
	s.root.validate(p, obj.ProtoReflect(), out)
	if old != nil {
		s.root.unchanged(p, obj.ProtoReflect(), old.ProtoReflect(), out)
	}
}
