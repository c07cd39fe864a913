package registry

import (
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/watchcache"
)

// labelIndex is the name of the index by a label; fields' indexes have the field's path.
func labelIndex(label string) string { return "metadata.labels." + label }

// indexes returns what the watch cache may find watchers of the kind by: each selectable field, the owners, and the
// labels that the schema names.
func (r *Resource) indexes() map[string]watchcache.Index {
	out := map[string]watchcache.Index{
		fieldOwner: func(payload []byte, emit func(string)) {
			// Bytes that do not decode have the values found until there.
			_ = envelope.OwnerUIDs(payload, emit)
		},
	}
	for path, reader := range r.fields {
		out[path] = func(payload []byte, emit func(string)) {
			if value, err := reader.read(payload); err == nil {
				emit(value)
			}
		}
	}
	for _, label := range r.Kind.Options.GetIndexLabels() {
		out[labelIndex(label)] = func(payload []byte, emit func(string)) {
			if value, ok, err := envelope.Label(payload, label); ok && err == nil {
				emit(value)
			}
		}
	}
	return out
}

// scope returns the narrowest index that rules out nothing the filter lets through.
func (f *filter) scope() watchcache.Scope {
	namespace, name := f.namespace, ""
	for _, req := range f.keyed {
		switch {
		case req.Negated:
		case req.Path == fieldName:
			name = req.Value
		case req.Path == fieldNamespace:
			namespace = req.Value
		}
	}
	switch {
	case name != "" && !f.resource.Kind.Namespaced:
		return watchcache.Scope{Index: watchcache.ByKey, Value: name}
	case name != "" && namespace != "":
		return watchcache.Scope{Index: watchcache.ByKey, Value: namespace + "/" + name}
	}
	for _, req := range f.owners {
		if !req.Negated {
			return watchcache.Scope{Index: fieldOwner, Value: req.Value}
		}
	}
	// In the order of the schema, which names first what tells most objects apart.
	for _, path := range f.resource.Kind.Options.GetSelectableFields() {
		for _, req := range f.fields {
			if req.Path == path && !req.Negated {
				return watchcache.Scope{Index: path, Value: req.Value}
			}
		}
	}
	for _, label := range f.resource.Kind.Options.GetIndexLabels() {
		if value, ok := f.labels.Exact(label); ok {
			return watchcache.Scope{Index: labelIndex(label), Value: value}
		}
	}
	if namespace != "" {
		return watchcache.Scope{Index: watchcache.ByNamespace, Value: namespace}
	}
	return watchcache.Scope{}
}
