// Package strategic is Kubernetes' strategic merge patch over descriptors: a merge patch that knows by which keys the
// elements of lists are told apart (list_map_keys, set) and takes the directives $patch, $retainKeys,
// $deleteFromPrimitiveList and $setElementOrder. A patch gives what Kubernetes' own library gives, down to the order of
// elements; test/interop holds the two together. That library itself would link OpenAPI into every gateway for no more
// than the few questions that field options answer here.
//
// It is pure: JSON in, JSON out. It checks neither names nor types of fields; client/manifest does when it reads the
// result.
package strategic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// The directives, and what the first of them may say.
const (
	directive       = "$patch"
	retainKeys      = "$retainKeys"
	deletePrimitive = "$deleteFromPrimitiveList/"
	elementOrder    = "$setElementOrder/"

	replace = "replace"
	remove  = "delete"
)

type (
	object = map[string]any
	list   = []any
)

// Apply returns the original with the patch in it. Both are JSON of the message that d describes.
func Apply(d protoreflect.MessageDescriptor, original, patch []byte) ([]byte, error) {
	from, err := decode(original)
	if err != nil {
		return nil, fmt.Errorf("original: %w", err)
	}
	change, err := decode(patch)
	if err != nil {
		return nil, fmt.Errorf("patch: %w", err)
	}
	merged, err := place{message: d}.mergeObject(from, change)
	if err != nil {
		return nil, err
	}
	return json.Marshal(merged)
}

// decode reads an object; numbers stay as they are written.
func decode(text []byte) (object, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var out object
	if err := decoder.Decode(&out); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one JSON object")
	}
	return out, nil
}

// place is where in a message a patch stands. It has at most one of its parts: neither is free-form JSON or a scalar, of
// which nothing is known.
type place struct {
	message protoreflect.MessageDescriptor
	entries protoreflect.FieldDescriptor // of a map
}

// field is what is known of a key of an object: how its value merges, and where in it one then stands. For a list that is
// the place of its elements.
type field struct {
	place
	merges bool   // a list is merged, not replaced
	key    string // of the elements of a list that is merged; empty where they are scalars
}

func (p place) field(name string) field {
	if p.entries != nil {
		return field{place: placeOf(p.entries.MapValue())}
	}
	if p.message == nil {
		return field{}
	}
	fd := p.message.Fields().ByJSONName(name)
	if fd == nil {
		return field{} // reported with its path by whoever reads the result
	}
	f := field{place: placeOf(fd)}
	if fd.IsMap() {
		f.place = place{entries: fd}
	}
	options, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
	if options.GetAtomic() {
		return f
	}
	if keys := options.GetListMapKeys(); len(keys) > 0 {
		// Of several keys the language knows the first alone.
		f.merges, f.key = true, keys[0]
	}
	f.merges = f.merges || options.GetSet()
	return f
}

func placeOf(fd protoreflect.FieldDescriptor) place {
	if fd.Message() == nil || fd.Message().ParentFile().Package() == "google.protobuf" {
		return place{}
	}
	return place{message: fd.Message()}
}

// mergeObject changes and returns original.
func (p place) mergeObject(original, patch object) (object, error) {
	if what, ok := patch[directive]; ok {
		switch what {
		case replace:
			delete(patch, directive)
			clean, _ := withoutDirectives(patch)
			patch, _ = clean.(object)
			return patch, nil
		case remove:
			return object{}, nil
		}
		return nil, fmt.Errorf("%s: %v is neither %s nor %s", directive, what, replace, remove)
	}
	if original == nil {
		original = object{}
	}
	if err := retain(original, patch); err != nil {
		return nil, err
	}
	if err := p.mergeOrdered(original, patch); err != nil {
		return nil, err
	}
	for key, value := range patch {
		if name, ok := strings.CutPrefix(key, deletePrimitive); ok {
			if err := deleteFrom(original, name, value); err != nil {
				return nil, err
			}
			continue
		}
		if value == nil {
			delete(original, key)
			continue
		}
		merged, keep, err := p.mergeValue(key, original[key], value)
		switch {
		case err != nil:
			return nil, err
		case keep:
			original[key] = merged
		default:
			delete(original, key)
		}
	}
	return original, nil
}

// mergeValue returns what a key holds after the patch, and whether it holds anything.
func (p place) mergeValue(key string, have, value any) (any, bool, error) {
	switch value := value.(type) {
	case object:
		if have, ok := have.(object); ok {
			merged, err := p.field(key).mergeObject(have, value)
			return merged, true, err
		}
	case list:
		if have, ok := have.(list); ok {
			f := p.field(key)
			if !f.merges {
				clean, keep := withoutDirectives(value)
				return clean, keep, nil
			}
			merged, err := f.mergeList(have, value)
			if err != nil {
				err = fmt.Errorf("%s: %w", key, err)
			}
			return merged, true, err
		}
	}
	clean, keep := withoutDirectives(value)
	return clean, keep, nil
}

// retain obeys $retainKeys: nothing stays in original but the keys named. What the patch sets must be among them.
func retain(original, patch object) error {
	value, ok := patch[retainKeys]
	if !ok {
		return nil
	}
	delete(patch, retainKeys)
	names, ok := value.(list)
	if !ok {
		return fmt.Errorf("%s: must be a list of keys", retainKeys)
	}
	keep := map[string]bool{}
	for _, n := range names {
		name, ok := n.(string)
		if !ok {
			return fmt.Errorf("%s: must be a list of keys", retainKeys)
		}
		keep[name] = true
	}
	for key, value := range patch {
		if value != nil && !keep[key] && !strings.HasPrefix(key, deletePrimitive) && !strings.HasPrefix(key, elementOrder) {
			return fmt.Errorf("%s: the patch sets %q, which is not among the keys", retainKeys, key)
		}
	}
	for key := range original {
		if !keep[key] {
			delete(original, key)
		}
	}
	return nil
}

// deleteFrom obeys $deleteFromPrimitiveList.
func deleteFrom(original object, name string, value any) error {
	gone, ok := value.(list)
	if !ok {
		return fmt.Errorf("%s%s: must be a list of values", deletePrimitive, name)
	}
	have, ok := original[name].(list)
	if !ok {
		return nil
	}
	left := list{}
	for _, v := range have {
		if indexOf(gone, v, "") < 0 {
			left = append(left, v)
		}
	}
	original[name] = left
	return nil
}

// isDirective reports whether a key tells how to merge. No field of ours begins like that.
func isDirective(key string) bool {
	return key == directive || key == retainKeys || strings.HasPrefix(key, deletePrimitive) || strings.HasPrefix(key, elementOrder)
}

// withoutDirectives cleans what a patch brings anew: nulls and directives mean nothing there. It reports whether
// anything of it stays.
func withoutDirectives(value any) (any, bool) {
	switch value := value.(type) {
	case object:
		if _, ok := value[directive]; ok {
			return nil, false
		}
		for k, v := range value {
			clean, keep := withoutDirectives(v)
			if v == nil || !keep || isDirective(k) {
				delete(value, k)
				continue
			}
			value[k] = clean
		}
	case list:
		left := list{}
		for _, v := range value {
			if clean, keep := withoutDirectives(v); keep {
				left = append(left, clean)
			}
		}
		return left, true
	}
	return value, true
}
