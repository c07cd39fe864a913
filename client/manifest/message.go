package manifest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// decoder fills messages from trees and collects all that is wrong.
type decoder struct {
	file     string
	document int
	errors   Errors
}

func (d *decoder) fail(p *path, line int, format string, args ...any) {
	d.errors = append(d.errors, &Error{
		File: d.file, Document: d.document, Line: line, Path: p.String(), Message: fmt.Sprintf(format, args...),
	})
}

// sorted returns the errors in the order of the text.
func (d *decoder) sorted() Errors {
	slices.SortStableFunc(d.errors, func(a, b *Error) int { return a.Line - b.Line })
	return d.errors
}

// expected reports a value of the wrong type, with the way out where there is one.
func (d *decoder) expected(p *path, n *node, what string) {
	hint := ""
	switch {
	case what == "a string" && (n.shape == shapeBool || n.shape == shapeInteger || n.shape == shapeFloat):
		hint = fmt.Sprintf("; quote it: %q", n.source)
	case what == "a list" && n.shape != shapeNull:
		hint = `; begin each item with "- "`
	case what == "an integer" && n.shape == shapeFloat:
		if value, err := strconv.ParseFloat(n.text, 64); err == nil && value == math.Trunc(value) && math.Abs(value) < 1<<53 {
			hint = "; write " + strconv.FormatFloat(value, 'f', 0, 64)
		}
	case n.shape == shapeText:
		if actual, _ := resolvePlain(n.text); what == "true or false" && actual == shapeBool ||
			strings.HasPrefix(what, "an integer") && actual == shapeInteger {
			hint = "; remove the quotes"
		}
	}
	d.fail(p, n.line, "expected %s, got %s%s", what, n.describe(), hint)
}

// entries returns those of an object, without repeated keys, which it reports.
func (d *decoder) entries(p *path, n *node) []entry {
	const few = 12
	if len(n.entries) <= few {
		for i := 1; i < len(n.entries); i++ {
			for j := range i {
				if n.entries[i].key == n.entries[j].key {
					return d.unique(p, n)
				}
			}
		}
		return n.entries
	}
	return d.unique(p, n)
}

func (d *decoder) unique(p *path, n *node) []entry {
	lines := make(map[string]int, len(n.entries))
	unique := make([]entry, 0, len(n.entries))
	for _, e := range n.entries {
		if line, repeated := lines[e.key]; repeated {
			d.fail(p.field(e.key), e.line, "duplicate key, first given in line %d", line)
			continue
		}
		lines[e.key] = e.line
		unique = append(unique, e)
	}
	return unique
}

// message fills m from an object. skip names keys that belong to the caller (apiVersion and kind).
func (d *decoder) message(p *path, n *node, m protoreflect.Message, skip ...string) {
	if n.shape != shapeObject {
		d.expected(p, n, "a mapping of fields")
		return
	}
	s := schemaOf(m.Descriptor())
next:
	for _, e := range d.entries(p, n) {
		for _, key := range skip {
			if e.key == key {
				continue next
			}
		}
		f := s.byName[e.key]
		if f == nil {
			d.fail(p.field(e.key), e.line, "unknown field%s", suggestField(s, m.Descriptor(), e.key))
			continue
		}
		// null is absent.
		if e.value.shape != shapeNull {
			d.field(p.field(e.key), f, &e.value, s, m)
		}
	}
}

func (d *decoder) field(p *path, f *field, n *node, parent *schema, m protoreflect.Message) {
	switch {
	case f.IsMap():
		d.mapField(p, f, n, m)
	case f.IsList():
		if n.shape != shapeList {
			d.expected(p, n, "a list")
			return
		}
		if len(n.items) == 0 {
			return
		}
		list := m.Mutable(f.FieldDescriptor).List()
		for i := range n.items {
			if value, ok := d.single(p.item(i), f, f.FieldDescriptor, &n.items[i], list.NewElement); ok {
				list.Append(value)
			}
		}
	default:
		before := len(d.errors)
		// The message makes its own parts: an object known only at run time keeps its metadata in a type of its choice.
		fresh := m.NewField
		if f.messageType != nil {
			fresh = m.Mutable
		}
		value, ok := d.single(p, f, f.FieldDescriptor, n, func() protoreflect.Value { return fresh(f.FieldDescriptor) })
		if !ok {
			if len(d.errors) > before && f.Kind() == protoreflect.BytesKind {
				d.hintPlainText(parent)
			}
			return
		}
		m.Set(f.FieldDescriptor, value)
		// What is printed when empty is printed when absent too, so an empty value says nothing.
		if f.printEmpty && (f.messageType == nil && value.Equal(f.Default()) || f.messageType != nil && isEmpty(value.Message())) {
			m.Clear(f.FieldDescriptor)
		}
	}
}

// isEmpty reports whether no field is set.
func isEmpty(m protoreflect.Message) bool {
	return proto.Size(m.Interface()) == 0
}

func (d *decoder) mapField(p *path, f *field, n *node, m protoreflect.Message) {
	if n.shape != shapeObject {
		d.expected(p, n, "a mapping")
		return
	}
	if f.MapKey().Kind() != protoreflect.StringKind {
		d.fail(p, n.line, "maps whose keys are %s cannot be written in a manifest", f.MapKey().Kind())
		return
	}
	values := m.Mutable(f.FieldDescriptor).Map()
	for _, e := range d.entries(p, n) {
		before := len(d.errors)
		if value, ok := d.single(p.key(e.key), f, f.MapValue(), &e.value, values.NewValue); ok {
			values.Set(protoreflect.ValueOfString(e.key).MapKey(), value)
		} else if len(d.errors) > before && f.MapValue().Kind() == protoreflect.BytesKind {
			d.hintPlainText(schemaOf(m.Descriptor()))
		}
	}
}

// hintPlainText completes the error just reported, about base64, where the message has a field for plain text.
func (d *decoder) hintPlainText(parent *schema) {
	if parent.byName["stringData"] != nil {
		d.errors[len(d.errors)-1].Message += "; plain text belongs in stringData"
	}
}

// single reads one value: a field, an element of a list, or a value of a map (fd says which type). A null that gets
// here stands in a list or map, where it is the zero value, as it is for Kubernetes.
func (d *decoder) single(p *path, f *field, fd protoreflect.FieldDescriptor, n *node, fresh func() protoreflect.Value) (protoreflect.Value, bool) {
	if f.messageType == nil {
		return d.scalar(p, f, fd, n, fresh)
	}
	value := fresh()
	before := len(d.errors)
	switch f.wellKnown {
	case "":
		if n.shape != shapeNull {
			d.message(p, n, value.Message())
		}
	case timestampName:
		d.timestamp(p, f, n, value.Message())
	default:
		if what, wrong := wrongForFormat(f, n); wrong {
			d.expected(p, n, what)
			break
		}
		d.raw(p, n, value.Message())
	}
	return value, len(d.errors) == before
}
