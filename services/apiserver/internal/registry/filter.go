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
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/watchcache"
)

const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
	// fieldOwner equals a value where any owner reference has that uid.
	fieldOwner = "metadata.ownerReferences.uid"
)

// filter says which objects a caller wants. Namespace and name are read off the key, labels and fields out of the bytes.
type filter struct {
	resource  *Resource
	namespace string
	labels    *selector.Labels            // nil for all
	keyed     []selector.FieldRequirement // by name and namespace
	fields    []selector.FieldRequirement // by the kind's selectable fields
	owners    []selector.FieldRequirement // by owner's uid
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
		if req.Path == fieldOwner {
			f.owners = append(f.owners, req)
			continue
		}
		if _, ok := r.fields[req.Path]; !ok {
			return nil, apierr.BadRequest(fmt.Sprintf("field label not supported: %s; of %s these are: %s",
				req.Path, r.Kind.Name, strings.Join(r.selectable(), ", ")))
		}
		f.fields = append(f.fields, req)
	}
	return f, nil
}

func (r *Resource) selectable() []string {
	paths := []string{fieldName}
	if r.Kind.Namespaced {
		paths = append(paths, fieldNamespace)
	}
	return append(append(paths, fieldOwner), r.Kind.Options.GetSelectableFields()...)
}

// all reports whether nothing but the namespace narrows the list.
func (f *filter) all() bool { return f.byKey() && len(f.keyed) == 0 }

// byKey reports whether namespace and name alone decide.
func (f *filter) byKey() bool { return f.labels == nil && len(f.fields) == 0 && len(f.owners) == 0 }

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

// matchBytes decides by labels and fields, and reads of the bytes only what the selectors name.
func (f *filter) matchBytes(namespace, name string, payload []byte) (bool, error) {
	if f.labels != nil {
		var failed error
		ok := f.labels.MatchesLookup(func(key string) (string, bool) {
			value, found, err := envelope.Label(payload, key)
			if err != nil {
				failed = err
			}
			return value, found
		})
		if failed != nil || !ok {
			return false, failed
		}
	}
	for _, req := range f.fields {
		value, err := f.resource.fields[req.Path].read(payload)
		if err != nil {
			return false, fmt.Errorf("field %s: %w", req.Path, err)
		}
		if (value == req.Value) == req.Negated {
			return false, nil
		}
	}
	for _, req := range f.owners {
		owned := false
		err := envelope.OwnerUIDs(payload, func(uid string) { owned = owned || uid == req.Value })
		if err != nil || owned == req.Negated {
			return false, err
		}
	}
	return true, nil
}

func (f *filter) matchEntry(key string, payload []byte) (bool, error) {
	if f.all() {
		return true, nil
	}
	namespace, name := watchcache.SplitKey(key)
	if !f.matchKey(namespace, name) {
		return false, nil
	}
	return f.matchBytes(namespace, name, payload)
}

// matchEvent returns the type under which a watcher with this filter sees the event, and false where it does not.
func (f *filter) matchEvent(e *watchcache.Event) (metav1.WatchEventType, bool, error) {
	if f.namespace == "" && f.all() {
		return e.Type(), true, nil
	}
	namespace, name := watchcache.SplitKey(e.Key())
	if !f.matchKey(namespace, name) {
		return 0, false, nil
	}
	if f.byKey() {
		return e.Type(), true, nil
	}
	match := func(o *watchcache.Object) (bool, error) {
		if o == nil {
			return false, nil
		}
		payload, err := o.Payload()
		if err != nil {
			return false, err
		}
		return f.matchBytes(namespace, name, payload)
	}
	now, err := match(e.Now)
	if err != nil {
		return 0, false, err
	}
	before, err := match(e.Before)
	if err != nil {
		return 0, false, err
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
