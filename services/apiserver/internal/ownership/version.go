package ownership

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
)

// Version is a version of a kind and how its objects become those of the stored one. Of the stored one itself nothing is
// to convert: both functions are nil.
type Version struct {
	Kind                 *kind.Kind
	ToStored, FromStored func(Object) (Object, error)
}

// shape is a version's fields: several apiVersions may share one.
type shape struct {
	Version
	parse typed.ParseableType
	// notMain are fields that a write to the object never owns, its status, and notStatus all others.
	notMain, notStatus *fieldpath.Set
}

func newShape(v Version) (*shape, error) {
	types, err := compileSchema(v.Kind)
	if err != nil {
		return nil, err
	}
	root := string(v.Kind.Message.Descriptor().FullName())
	s := &shape{
		Version: v, parse: typed.ParseableType{Schema: &schema.Schema{Types: types}, TypeRef: named(root)},
		notMain: fieldpath.NewSet(), notStatus: fieldpath.NewSet(),
	}
	if !s.parse.IsValid() {
		return nil, fmt.Errorf("schema of %s has no root", v.Kind)
	}
	fields := v.Kind.Message.Descriptor().Fields()
	for i := range fields.Len() {
		path := fieldpath.MakePathOrDie(fields.Get(i).JSONName())
		if fields.Get(i).Name() == "status" {
			s.notMain.Insert(path)
		} else {
			s.notStatus.Insert(path)
		}
	}
	return s, nil
}

// shape finds that of an apiVersion; of one that the kind does not have, it is the stored one.
func (t *Type) shape(version fieldpath.APIVersion) *shape {
	for _, s := range t.shapes {
		if slices.Contains(s.Kind.APIVersions, string(version)) {
			return s
		}
	}
	return t.shapes[0]
}

// new returns an object of the version.
func (s *shape) new() Object {
	obj, _ := s.Kind.Message.New().Interface().(Object)
	return obj
}

// live gives the value of an object of the stored version in this one. Duplicates are let pass: somebody got them in
// before they were refused.
func (s *shape) live(obj Object) (*typed.TypedValue, error) {
	if s.FromStored != nil {
		var err error
		if obj, err = s.FromStored(obj); err != nil {
			return nil, err
		}
	}
	fields, err := manifest.Fields(obj)
	if err != nil {
		return nil, err
	}
	if meta, ok := fields["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	if err := bounded(s.Kind, obj, fields); err != nil {
		return nil, err
	}
	value, err := s.parse.FromUnstructured(fields, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("read the fields of %s: %w", s.Kind.Name, err)
	}
	return value, nil
}

// object is the way back: an object of the stored version from a value of this one.
func (s *shape) object(value *typed.TypedValue) (Object, error) {
	text, err := json.Marshal(value.AsValue().Unstructured())
	if err != nil {
		return nil, err
	}
	obj := s.new()
	if err := manifest.FromJSON(text, obj); err != nil {
		return nil, err
	}
	if obj.GetMetadata() == nil {
		obj.ProtoReflect().Mutable(obj.ProtoReflect().Descriptor().Fields().ByNumber(1))
	}
	if s.ToStored != nil {
		return s.ToStored(obj)
	}
	return obj, nil
}

// converter converts between versions of different shape; those that share one need no conversion. What is owned in a
// version that is no longer known is owned by nobody.
type converter struct{ kind *Type }

var errUnknownVersion = errors.New("unknown apiVersion")

func (c converter) Convert(value *typed.TypedValue, version fieldpath.APIVersion) (*typed.TypedValue, error) {
	to := c.kind.shape(version)
	if !slices.Contains(to.Kind.APIVersions, string(version)) {
		return nil, errUnknownVersion
	}
	root := value.TypeRef().NamedType
	for _, from := range c.kind.shapes {
		if root == nil || *root != string(from.Kind.Message.Descriptor().FullName()) {
			continue
		}
		if from == to {
			return value, nil
		}
		stored, err := from.object(value)
		if err != nil {
			return nil, err
		}
		return to.live(stored)
	}
	return nil, fmt.Errorf("value of %s is of no known version", c.kind.kind)
}

func (c converter) IsMissingVersionError(err error) bool { return errors.Is(err, errUnknownVersion) }
