package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func (m *message) validate(p *path, msg protoreflect.Message, out *violations) {
	if out.full() {
		return
	}
	o := m.open(msg)
	for _, f := range m.fields {
		if !o.has(f) {
			if f.options.GetRequired() {
				out.required(p.field(f.name), "")
			}
			continue
		}
		if f.check == nil && !f.unique && !f.options.GetRequired() && (f.message == nil || !f.message.checks) {
			continue
		}
		here := p.field(f.name)
		v := msg.Get(f.fd)
		if f.options.GetRequired() && f.fd.Kind() == protoreflect.StringKind && !f.fd.IsList() && v.String() == "" {
			out.required(here, "")
			continue
		}
		if f.check != nil {
			f.check(here, v, out)
		}
		if f.unique {
			f.duplicates(here, v.List(), out)
		}
		if f.message == nil || !f.message.checks {
			continue
		}
		switch {
		case f.fd.IsMap():
			eachEntry(here, v.Map(), func(p *path, _ string, e protoreflect.Value) { f.message.validate(p, e.Message(), out) })
		case f.fd.IsList():
			for i := range v.List().Len() {
				f.message.validate(here.item(i), v.List().Get(i).Message(), out)
			}
		default:
			f.message.validate(here, v.Message(), out)
		}
	}
	m.ask(p, msg, out)
	if m.check != nil {
		m.check(p, msg.Interface(), out)
	}
}

// eachEntry goes through a map, in order of its keys where anybody can see it.
func eachEntry(p *path, m protoreflect.Map, visit func(p *path, key string, value protoreflect.Value)) {
	if p == nowhere {
		m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			visit(p, k.String(), v)
			return true
		})
		return
	}
	for _, k := range sortedKeys(m) {
		visit(p.key(k.String()), k.String(), m.Get(k))
	}
}

func sortedKeys(m protoreflect.Map) []protoreflect.MapKey {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// duplicates refuses two elements with the same keys. Where there is one key the violation names it.
func (f *field) duplicates(p *path, list protoreflect.List, out *violations) {
	if list.Len() < 2 {
		return
	}
	seen := make(map[string]bool, list.Len())
	for i := range list.Len() {
		element := list.Get(i).Message()
		id := ""
		for _, k := range f.keys {
			id += element.Get(k).String() + "\x00"
		}
		if !seen[id] {
			seen[id] = true
			continue
		}
		if len(f.keys) == 1 {
			out.duplicate(p.item(i).field(f.keys[0].JSONName()), quote(f.keys[0], element.Get(f.keys[0])))
			continue
		}
		parts := make([]string, len(f.keys))
		for j, k := range f.keys {
			parts[j] = k.JSONName() + ": " + quote(k, element.Get(k))
		}
		out.duplicate(p.item(i), "{"+strings.Join(parts, ", ")+"}")
	}
}

func quote(fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	if fd.Kind() == protoreflect.StringKind {
		return strconv.Quote(v.String())
	}
	return v.String()
}

// unchanged refuses changes of immutable fields, and those that a rule refuses. Elements of lists are told apart by their keys; in lists without keys
// nothing is immutable.
func (m *message) unchanged(p *path, msg, old protoreflect.Message, out *violations) {
	if !m.immutables && !m.transitions || m.name == metadataName {
		return
	}
	for _, r := range m.rules {
		if r.transition {
			r.ask(p, msg, old, out)
		}
	}
	next, prev := m.open(msg), m.open(old)
	for _, f := range m.fields {
		if !f.options.GetImmutable() && (f.message == nil || !f.message.immutables && !f.message.transitions) {
			continue
		}
		has, had := next.has(f), prev.has(f)
		if f.options.GetImmutable() {
			if has != had || has && !msg.Get(f.fd).Equal(old.Get(f.fd)) {
				out.invalid(p.field(f.name), describe(f.fd, msg), "field is immutable")
			}
			continue
		}
		if f.message == nil || !f.message.immutables && !f.message.transitions || !had || f.fd.IsMap() {
			continue
		}
		here := p.field(f.name)
		if !f.fd.IsList() {
			now := msg.Get(f.fd).Message()
			if !has {
				if f.options.GetRequired() {
					continue // reported as such
				}
				// Who leaves out a message leaves out what may not change in it.
				now = newMessage(f.fd.Message())
			}
			f.message.unchanged(here, now, old.Get(f.fd).Message(), out)
			continue
		}
		if len(f.keys) == 0 {
			continue
		}
		list, before := msg.Get(f.fd).List(), old.Get(f.fd).List()
		for i := range list.Len() {
			for j := range before.Len() {
				if f.sameKeys(list.Get(i).Message(), before.Get(j).Message()) {
					f.message.unchanged(here.item(i), list.Get(i).Message(), before.Get(j).Message(), out)
				}
			}
		}
	}
}

func (f *field) sameKeys(a, b protoreflect.Message) bool {
	for _, k := range f.keys {
		if !a.Get(k).Equal(b.Get(k)) {
			return false
		}
	}
	return true
}

// describe prints a field's value for a message; what is not a scalar is left out.
func describe(fd protoreflect.FieldDescriptor, m protoreflect.Message) string {
	switch {
	case !m.Has(fd):
		return "null"
	case fd.IsList(), fd.IsMap(), fd.Message() != nil:
		if v, ok := m.Get(fd).Interface().(protoreflect.Message); ok {
			if scalar, ok := v.Interface().(*structpb.Value); ok {
				return fmt.Sprint(scalar.AsInterface())
			}
		}
		return "(" + fd.JSONName() + ")"
	}
	return quote(fd, m.Get(fd))
}

// ChangedFields names the fields of two messages of one type that differ, as JSON spells them.
func ChangedFields(a, b proto.Message) []string {
	ma, mb := a.ProtoReflect(), b.ProtoReflect()
	var out []string
	for i := range ma.Descriptor().Fields().Len() {
		fd := ma.Descriptor().Fields().Get(i)
		if has := ma.Has(fd); has != mb.Has(fd) || has && !ma.Get(fd).Equal(mb.Get(fd)) {
			out = append(out, fd.JSONName())
		}
	}
	return out
}

// compileCheck turns the options of a field into one function; nil where there is nothing to check.
func compileCheck(fd protoreflect.FieldDescriptor, o *metav1.FieldOptions) func(*path, protoreflect.Value, *violations) {
	if o == nil {
		return nil
	}
	one := compileElement(fd, o)
	count := o.MaxItems != nil || o.MinItems != nil
	switch {
	case fd.IsMap():
		key, value := mapFormat(o.GetFormat())
		if key == nil && value == nil && !count {
			return nil
		}
		return func(p *path, v protoreflect.Value, out *violations) {
			checkCount(p, v.Map().Len(), o, out)
			if key == nil && value == nil {
				return
			}
			eachEntry(p, v.Map(), func(here *path, k string, e protoreflect.Value) {
				if out.full() {
					return
				}
				if key != nil {
					key(p, k, out)
				}
				if value != nil {
					value(here, e.String(), out)
				}
			})
		}
	case fd.IsList():
		if one == nil && !count {
			return nil
		}
		return func(p *path, v protoreflect.Value, out *violations) {
			checkCount(p, v.List().Len(), o, out)
			if one == nil {
				return
			}
			for i := range v.List().Len() {
				if out.full() {
					return
				}
				one(p.item(i), v.List().Get(i), out)
			}
		}
	}
	return one
}

func checkCount(p *path, n int, o *metav1.FieldOptions, out *violations) {
	if o.MaxItems != nil && n > int(o.GetMaxItems()) {
		out.add(p, fmt.Sprintf("Too many: %d: must have at most %d items", n, o.GetMaxItems()))
	}
	if o.MinItems != nil && n < int(o.GetMinItems()) {
		out.invalid(p, strconv.Itoa(n), fmt.Sprintf("must have at least %d items", o.GetMinItems()))
	}
}

// compileElement checks one value that is neither list nor map.
func compileElement(fd protoreflect.FieldDescriptor, o *metav1.FieldOptions) func(*path, protoreflect.Value, *violations) {
	var parts []func(*path, protoreflect.Value, *violations)
	switch fd.Kind() {
	case protoreflect.StringKind:
		if allowed := o.GetAllowedValues(); len(allowed) > 0 {
			parts = append(parts, func(p *path, v protoreflect.Value, out *violations) {
				if !slices.Contains(allowed, v.String()) {
					out.unsupported(p, strconv.Quote(v.String()), allowed)
				}
			})
		}
		if o.MaxLength != nil {
			limit := int(o.GetMaxLength())
			parts = append(parts, func(p *path, v protoreflect.Value, out *violations) {
				if len(v.String()) > limit {
					out.add(p, fmt.Sprintf("Too long: may not be more than %d bytes", limit))
				}
			})
		}
		if format := stringFormat(o.GetFormat()); format != nil {
			parts = append(parts, func(p *path, v protoreflect.Value, out *violations) {
				// An empty optional string is as good as an absent one: manifests write "" for nothing.
				if v.String() != "" {
					format(p, v.String(), out)
				}
			})
		}
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		if o.Minimum != nil || o.Maximum != nil {
			parts = append(parts, func(p *path, v protoreflect.Value, out *violations) { checkBounds(p, v.Int(), o, out) })
		}
	case protoreflect.MessageKind:
		if fd.Message().FullName() == valueName {
			if check := valueFormat(o.GetFormat()); check != nil {
				parts = append(parts, check)
			}
		}
	}
	switch len(parts) {
	case 0:
		return nil
	case 1:
		return parts[0]
	}
	return func(p *path, v protoreflect.Value, out *violations) {
		for _, part := range parts {
			part(p, v, out)
		}
	}
}

func checkBounds(p *path, n int64, o *metav1.FieldOptions, out *violations) {
	switch {
	case o.Minimum != nil && o.Maximum != nil && (n < o.GetMinimum() || n > o.GetMaximum()):
		out.invalid(p, strconv.FormatInt(n, 10), fmt.Sprintf("must be between %d and %d, inclusive", o.GetMinimum(), o.GetMaximum()))
	case o.Minimum != nil && n < o.GetMinimum():
		out.invalid(p, strconv.FormatInt(n, 10), fmt.Sprintf("must be greater than or equal to %d", o.GetMinimum()))
	case o.Maximum != nil && n > o.GetMaximum():
		out.invalid(p, strconv.FormatInt(n, 10), fmt.Sprintf("must be less than or equal to %d", o.GetMaximum()))
	}
}
