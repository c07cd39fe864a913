package registry

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	"trireme.dev/client/selector"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/feed"
)

const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// filter says which objects a caller wants. Namespace and name are read off the key, labels and fields out of the bytes.
type filter struct {
	resource  *Resource
	namespace string
	labels    *selector.Labels // nil for all
	keyed     []selector.FieldRequirement
	fields    *selector.Fields // nil for all
}

func (r *Resource) filter(namespace, labelSelector, fieldSelector string) (*filter, error) {
	f := &filter{resource: r, namespace: namespace}
	if namespace != "" && !r.Kind.Namespaced {
		return nil, apierr.BadRequest(fmt.Sprintf("%s has no namespaces, but namespace %q was given", r.Kind.Name, namespace))
	}
	if labelSelector != "" {
		labels, err := selector.ParseLabels(labelSelector)
		if err != nil {
			return nil, apierr.BadRequest(err.Error())
		}
		if !labels.IsEverything() {
			f.labels = labels
		}
	}
	if fieldSelector == "" {
		return f, nil
	}
	fields, err := selector.ParseFields(fieldSelector)
	if err != nil {
		return nil, apierr.BadRequest(err.Error())
	}
	for _, req := range fields.Requirements() {
		if req.Path == fieldName || req.Path == fieldNamespace {
			f.keyed = append(f.keyed, req)
			continue
		}
		if _, ok := r.fields[req.Path]; !ok {
			return nil, apierr.BadRequest(fmt.Sprintf("field selector %q: field %s of %s cannot be selected by; supported: %s",
				fieldSelector, req.Path, r.Kind.Name, strings.Join(r.selectable(), ", ")))
		}
		f.fields = fields
	}
	return f, nil
}

func (r *Resource) selectable() []string {
	paths := []string{fieldName}
	if r.Kind.Namespaced {
		paths = append(paths, fieldNamespace)
	}
	return append(paths, r.Kind.Options.GetSelectableFields()...)
}

// all reports whether nothing but the namespace narrows the list.
func (f *filter) all() bool { return f.labels == nil && f.fields == nil && len(f.keyed) == 0 }

// matchKey decides by namespace and name alone.
func (f *filter) matchKey(namespace, name string) bool {
	if f.namespace != "" && namespace != f.namespace {
		return false
	}
	for _, req := range f.keyed {
		value := name
		if req.Path == fieldNamespace {
			value = namespace
		}
		if (value == req.Value) == req.Negated {
			return false
		}
	}
	return true
}

// matchBytes decides by labels and fields; the facts are those of the payload, and may be shared.
func (f *filter) matchBytes(namespace, name string, payload []byte, facts *feed.Facts) (bool, error) {
	if f.labels != nil {
		labels, err := facts.Labels(payload)
		if err != nil {
			return false, err
		}
		if !f.labels.Matches(labels) {
			return false, nil
		}
	}
	if f.fields != nil {
		values, err := facts.Fields(payload, f.resource.readFields)
		if err != nil {
			return false, err
		}
		return f.fields.Matches(func(path string) string {
			switch path {
			case fieldName:
				return name
			case fieldNamespace:
				return namespace
			}
			return values[path]
		}), nil
	}
	return true, nil
}

func (f *filter) matchEntry(key string, payload []byte) (bool, error) {
	if f.all() {
		return true, nil
	}
	namespace, name := feed.SplitKey(key)
	if !f.matchKey(namespace, name) {
		return false, nil
	}
	return f.matchBytes(namespace, name, payload, &feed.Facts{})
}

// matchEvent returns the type under which a watcher with this filter sees the event, and false where it does not.
func (f *filter) matchEvent(e *feed.Event) (metav1.WatchEventType, bool, error) {
	if !f.matchKey(e.Namespace, e.Name) {
		return 0, false, nil
	}
	typ := e.Type()
	if f.labels == nil && f.fields == nil {
		return typ, true, nil
	}
	var now, before bool
	var err error
	if v := e.Value(); v != nil {
		if now, err = f.matchBytes(e.Namespace, e.Name, v, e.Current()); err != nil {
			return 0, false, err
		}
	}
	if v := e.Previous(); v != nil {
		if before, err = f.matchBytes(e.Namespace, e.Name, v, e.Before()); err != nil {
			return 0, false, err
		}
	}
	switch {
	case now && before:
		return metav1.WatchEventType_WATCH_EVENT_TYPE_MODIFIED, true, nil
	case now:
		return metav1.WatchEventType_WATCH_EVENT_TYPE_ADDED, true, nil
	case before:
		return metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED, true, nil
	}
	return 0, false, nil
}

// fieldReader finds one scalar in an object's bytes.
type fieldReader struct {
	numbers []protowire.Number
	kind    protoreflect.Kind
}

// fieldReaders compiles the kind's selectable fields.
func fieldReaders(k *kind.Kind) (map[string]fieldReader, error) {
	readers := map[string]fieldReader{}
	for _, path := range k.Options.GetSelectableFields() {
		d := k.Message.Descriptor()
		var reader fieldReader
		parts := strings.Split(path, ".")
		for i, part := range parts {
			fd := d.Fields().ByJSONName(part)
			if fd == nil || fd.IsList() || fd.IsMap() || (fd.Message() == nil) != (i == len(parts)-1) {
				return nil, fmt.Errorf("selectable field %s does not name a scalar", path)
			}
			reader.numbers = append(reader.numbers, fd.Number())
			reader.kind = fd.Kind()
			d = fd.Message()
		}
		switch reader.kind {
		case protoreflect.StringKind, protoreflect.BoolKind, protoreflect.Int32Kind, protoreflect.Int64Kind:
		default:
			return nil, fmt.Errorf("selectable field %s has type %s, which selectors cannot compare", path, reader.kind)
		}
		readers[path] = reader
	}
	return readers, nil
}

// readFields returns the values of all selectable fields.
func (r *Resource) readFields(payload []byte) (map[string]string, error) {
	values := make(map[string]string, len(r.fields))
	for path, reader := range r.fields {
		value, err := reader.read(payload)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", path, err)
		}
		values[path] = value
	}
	return values, nil
}

// read returns the value as selectors write it: an absent string is empty, an absent bool false, an absent number 0.
func (f fieldReader) read(b []byte) (string, error) {
	for depth, number := range f.numbers {
		last := depth == len(f.numbers)-1
		var found []byte
		var scalar uint64
		for len(b) > 0 {
			num, typ, n := protowire.ConsumeTag(b)
			if n < 0 {
				return "", protowire.ParseError(n)
			}
			b = b[n:]
			m := protowire.ConsumeFieldValue(num, typ, b)
			if m < 0 {
				return "", protowire.ParseError(m)
			}
			if num == number {
				switch typ {
				case protowire.BytesType:
					found, _ = protowire.ConsumeBytes(b)
				case protowire.VarintType:
					scalar, _ = protowire.ConsumeVarint(b)
				}
			}
			b = b[m:]
		}
		if !last {
			b = found
			continue
		}
		switch f.kind {
		case protoreflect.StringKind:
			return string(found), nil
		case protoreflect.BoolKind:
			return strconv.FormatBool(scalar != 0), nil
		default:
			return strconv.FormatInt(int64(scalar), 10), nil
		}
	}
	return "", nil
}
