// Package strategic is Kubernetes' strategic merge patch over descriptors: a merge patch that knows by which keys the
// elements of lists are told apart (list_map_keys, set) and takes the directives $patch, $retainKeys,
// $deleteFromPrimitiveList and $setElementOrder. The algorithm is apimachinery's; what it asks of types is answered from
// the field options.
//
// It is pure: JSON in, JSON out. It checks neither names nor types of fields; client/manifest does when it reads the
// result.
package strategic

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Apply returns the original with the patch in it. Both are JSON of the message that d describes.
func Apply(d protoreflect.MessageDescriptor, original, patch []byte) (merged []byte, err error) {
	var from, change map[string]any
	if err := json.Unmarshal(original, &from); err != nil {
		return nil, fmt.Errorf("original: %w", err)
	}
	if err := json.Unmarshal(patch, &change); err != nil {
		return nil, fmt.Errorf("patch: %w", err)
	}
	// The library asserts types of what directives hold.
	defer func() {
		if r := recover(); r != nil {
			merged, err = nil, fmt.Errorf("patch is malformed: %v", r)
		}
	}()
	result, err := strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(from, change, place{message: d})
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// Diff returns a patch that makes modified of the original.
func Diff(d protoreflect.MessageDescriptor, original, modified []byte) ([]byte, error) {
	return strategicpatch.CreateTwoWayMergePatchUsingLookupPatchMeta(original, modified, place{message: d})
}

// place is where in a message the library stands. It has at most one of its parts: neither is free-form JSON or a scalar,
// of which nothing is known.
type place struct {
	message protoreflect.MessageDescriptor
	entries protoreflect.FieldDescriptor // of a map
}

var _ strategicpatch.LookupPatchMeta = place{}

// Name implements LookupPatchMeta.
func (p place) Name() string {
	switch {
	case p.message != nil:
		return string(p.message.FullName())
	case p.entries != nil:
		return string(p.entries.FullName())
	}
	return "value"
}

// LookupPatchMetadataForStruct implements LookupPatchMeta.
func (p place) LookupPatchMetadataForStruct(key string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	meta := strategicpatch.PatchMeta{}
	switch {
	case p.entries != nil:
		return placeOf(p.entries.MapValue()), meta, nil
	case p.message == nil:
		return place{}, meta, nil
	}
	fd := p.message.Fields().ByJSONName(key)
	if fd == nil {
		// Reported with its path by whoever reads the result.
		return place{}, meta, nil
	}
	options, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
	var strategies []string
	if !options.GetAtomic() {
		switch keys := options.GetListMapKeys(); {
		case len(keys) > 0:
			// Of several keys the language knows the first alone.
			meta.SetPatchMergeKey(keys[0])
			strategies = append(strategies, "merge")
		case options.GetSet():
			strategies = append(strategies, "merge")
		}
	}
	if options.GetRetainKeys() {
		strategies = append(strategies, "retainKeys")
	}
	meta.SetPatchStrategies(strategies)
	if fd.IsMap() {
		return place{entries: fd}, meta, nil
	}
	return placeOf(fd), meta, nil
}

// LookupPatchMetadataForSlice implements LookupPatchMeta.
func (p place) LookupPatchMetadataForSlice(key string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	// A repeated field's descriptor describes its elements.
	return p.LookupPatchMetadataForStruct(key)
}

func placeOf(fd protoreflect.FieldDescriptor) place {
	if fd.Message() == nil || fd.Message().ParentFile().Package() == "google.protobuf" {
		return place{}
	}
	return place{message: fd.Message()}
}
