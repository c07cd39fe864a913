package merge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func optionsOf(fd protoreflect.FieldDescriptor) *metav1.FieldOptions {
	options, _ := proto.GetExtension(fd.Options(), metav1.E_Field).(*metav1.FieldOptions)
	return options
}

// elements are those of a list, told apart by keys.
type elements struct {
	keys  []string
	byKey map[string]protoreflect.Message
}

// elementsOf reads a list. It reports false where two elements have the same key, so that they cannot be told apart.
func elementsOf(fd protoreflect.FieldDescriptor, list protoreflect.List) (e elements, unique bool) {
	e.byKey = make(map[string]protoreflect.Message, list.Len())
	for i := range list.Len() {
		m := list.Get(i).Message()
		key := keyOf(fd, m)
		e.keys = append(e.keys, key)
		e.byKey[key] = m
	}
	return e, len(e.keys) == len(e.byKey)
}

// keyOf joins the values of the fields that tell an element from others. An absent one has its default value: the
// gateway fills it in, so that live always shows it and manifests rarely do.
func keyOf(fd protoreflect.FieldDescriptor, m protoreflect.Message) string {
	var parts []string
	for _, name := range optionsOf(fd).GetListMapKeys() {
		part := m.Descriptor().Fields().ByJSONName(name)
		value := m.Get(part).String()
		if byDefault := optionsOf(part).GetDefaultValue(); byDefault != "" && !m.Has(part) {
			var parsed any
			if err := json.Unmarshal([]byte(byDefault), &parsed); err == nil {
				value = fmt.Sprint(parsed)
			}
		}
		parts = append(parts, fmt.Sprintf("%q", value))
	}
	return strings.Join(parts, ",")
}

// keyed merges a list element by element. It reports false, and has done nothing, where that is not possible: then the
// list is taken as a whole.
func keyed(fd protoreflect.FieldDescriptor, last, live, desired protoreflect.Message) bool {
	wanted, ok := elementsOf(fd, desired.Get(fd).List())
	if !ok {
		return false
	}
	present, ok := elementsOf(fd, live.Get(fd).List())
	if !ok {
		return false
	}
	// Of two alike in last either will do: they were refused, or told apart by nobody.
	before, _ := elementsOf(fd, last.Get(fd).List())

	merged := make(map[string]protoreflect.Message, len(wanted.keys)+len(present.keys))
	for key, m := range wanted.byKey {
		old := present.byKey[key]
		if old == nil {
			merged[key] = m
			continue
		}
		if optionsOf(fd).GetRetainKeys() {
			retain(old, m)
		}
		was := before.byKey[key]
		if was == nil {
			was = m.New()
		}
		message(was, old, m)
		merged[key] = old
	}
	order := slices.Clone(wanted.keys)
	follows := ""
	for _, key := range present.keys {
		if wanted.byKey[key] == nil {
			if before.byKey[key] != nil {
				continue
			}
			merged[key] = present.byKey[key]
			order = slices.Insert(order, slices.Index(order, follows)+1, key)
		}
		follows = key
	}

	list := live.NewField(fd).List()
	for _, key := range order {
		list.Append(protoreflect.ValueOfMessage(merged[key]))
	}
	if list.Len() == 0 {
		live.Clear(fd)
	} else {
		live.Set(fd, protoreflect.ValueOfList(list))
	}
	return true
}
