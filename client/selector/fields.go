package selector

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
)

// FieldRequirement is one term of a field selector.
type FieldRequirement struct {
	// Path as manifests spell it, without a leading dot: spec.nodeName.
	Path string
	// Value that the field must have, or must not have where Negated. An absent field has the empty value.
	Value   string
	Negated bool
}

// Fields selects by the values of fields; all requirements must hold. A nil one selects everything. It is immutable.
type Fields struct{ requirements []FieldRequirement }

// ParseFields reads the string form: spec.nodeName=n1,status.phase!=Failed. An empty string selects everything.
func ParseFields(s string) (*Fields, error) {
	parsed, err := fields.ParseSelector(s)
	if err != nil {
		return nil, fmt.Errorf("field selector %q: %w", brief(s), err)
	}
	f := &Fields{}
	for _, r := range parsed.Requirements() {
		if r.Field == "" {
			return nil, fmt.Errorf("field selector %q: a field is missing", brief(s))
		}
		f.requirements = append(f.requirements, FieldRequirement{
			Path: r.Field, Value: r.Value, Negated: r.Operator == selection.NotEquals,
		})
	}
	return f, nil
}

// Requirements returns the terms; they must not be changed.
func (f *Fields) Requirements() []FieldRequirement {
	if f == nil {
		return nil
	}
	return f.requirements
}

// Matches reports whether an object whose fields value gives is selected.
func (f *Fields) Matches(value func(path string) string) bool {
	for _, r := range f.Requirements() {
		if (value(r.Path) == r.Value) == r.Negated {
			return false
		}
	}
	return true
}

// MatchesMessage is Matches over the fields of a message. A path that leads nowhere has the empty value: refuse those
// at parse time with ValidPath.
func (f *Fields) MatchesMessage(m proto.Message) bool {
	return f.Matches(func(path string) string { return FieldValue(m.ProtoReflect(), path) })
}

// String gives the form that ParseFields reads.
func (f *Fields) String() string {
	terms := make([]string, len(f.Requirements()))
	for i, r := range f.Requirements() {
		op := "="
		if r.Negated {
			op = "!="
		}
		terms[i] = r.Path + op + fields.EscapeValue(r.Value)
	}
	return strings.Join(terms, ",")
}

// ValidPath reports whether path names a string, bool, integer or enum in messages of this type.
func ValidPath(d protoreflect.MessageDescriptor, path string) bool {
	for {
		head, rest, nested := strings.Cut(path, ".")
		f := d.Fields().ByJSONName(head)
		switch {
		case f == nil || f.Cardinality() == protoreflect.Repeated:
			return false
		case !nested:
			return f.Message() == nil && f.Kind() != protoreflect.BytesKind
		case f.Message() == nil:
			return false
		}
		d, path = f.Message(), rest
	}
}

// FieldValue reads the field at path as text; an absent one, and a path that ValidPath refuses, is empty. Of a bool
// the text is true or false, whether it is set or not.
func FieldValue(m protoreflect.Message, path string) string {
	if !ValidPath(m.Descriptor(), path) {
		return ""
	}
	for {
		head, rest, nested := strings.Cut(path, ".")
		f := m.Descriptor().Fields().ByJSONName(head)
		if nested {
			m, path = m.Get(f).Message(), rest
			continue
		}
		v := m.Get(f)
		switch f.Kind() {
		case protoreflect.BoolKind:
			return strconv.FormatBool(v.Bool())
		case protoreflect.StringKind:
			return v.String()
		case protoreflect.EnumKind:
			if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
				return string(e.Name())
			}
		}
		if !m.Has(f) {
			return ""
		}
		return v.String()
	}
}
