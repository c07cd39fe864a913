package request

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client/apierr"
)

// part is what a field of a request tells.
type part int

const (
	nested part = iota
	namespace
	name
	fieldSelector
	labelSelector
	subresource
)

// fields are those fields of a message that tell something.
type fields struct {
	numbers []protowire.Number
	parts   []part
	inner   []*fields // of those that are nested
}

// wanted are the fields that count, by name, wherever in a request they stand. A request holds the object, its scale or, of
// a stream to a container, where to.
var wanted = map[protoreflect.Name]part{
	"namespace": namespace, "name": name, "node_name": name,
	"field_selector": fieldSelector, "label_selector": labelSelector, "subresource": subresource,
	"object": nested, "scale": nested, "start": nested, "metadata": nested,
}

// compile finds the fields in a message. Of an object only the metadata counts.
func compile(d protoreflect.MessageDescriptor, of protoreflect.Name) *fields {
	f := &fields{}
	for i := range d.Fields().Len() {
		fd := d.Fields().Get(i)
		p, ok := wanted[fd.Name()]
		switch {
		case !ok || fd.IsList() || fd.IsMap():
			continue
		case (of == "object" || of == "scale") != (fd.Name() == "metadata"):
			continue
		case p == nested && fd.Message() != nil:
			f.inner = append(f.inner, compile(fd.Message(), fd.Name()))
		case p != nested && fd.Kind() == protoreflect.StringKind:
			f.inner = append(f.inner, nil)
		default:
			continue
		}
		f.numbers, f.parts = append(f.numbers, fd.Number()), append(f.parts, p)
	}
	if len(f.numbers) == 0 {
		return nil
	}
	return f
}

// Reads makes the method read attributes off requests of the type.
func (m *Method) Reads(input protoreflect.MessageDescriptor) { m.target = compile(input, "") }

// Read notes what a request says. As protobuf has it, the last of several values counts, and messages that are sent twice
// are one.
func (a *Attributes) Read(raw []byte) error {
	if a.target == nil {
		return nil
	}
	return a.read(raw, a.target)
}

func (a *Attributes) read(raw []byte, f *fields) error {
	for len(raw) > 0 {
		number, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return malformed(n)
		}
		raw = raw[n:]
		n = protowire.ConsumeFieldValue(number, typ, raw)
		if n < 0 {
			return malformed(n)
		}
		if typ == protowire.BytesType {
			for i, wanted := range f.numbers {
				if wanted != number {
					continue
				}
				value, _ := protowire.ConsumeBytes(raw)
				if f.parts[i] == nested {
					if err := a.readNested(value, f.inner[i]); err != nil {
						return err
					}
				} else {
					a.set(f.parts[i], string(value))
				}
			}
		}
		raw = raw[n:]
	}
	return nil
}

func (a *Attributes) readNested(raw []byte, f *fields) error {
	if f == nil {
		return nil
	}
	return a.read(raw, f)
}

func (a *Attributes) set(p part, value string) {
	switch p {
	case namespace:
		a.Namespace = value
	case name:
		a.Name = value
	case fieldSelector:
		a.FieldSelector = value
	case labelSelector:
		a.LabelSelector = value
	case subresource:
		a.Subresource = value
	}
}

func malformed(n int) error {
	return apierr.BadRequest("request is no protobuf message: " + protowire.ParseError(n).Error())
}
