// Package merge brings what a user wants together with what is there: the three-way merge of `trireme apply`.
//
// It is pure: three messages in, one out. It never talks to anyone, never reads text (client/manifest does) and never
// decides what to store (the gateway does).
package merge

import (
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ThreeWay returns the object to write: live, with the user's last manifest replaced by the new one. last is the
// manifest applied before, and may be nil; live is the object as the gateway has it; desired is the new manifest. All
// are of one kind and none is changed.
//
//   - What desired sets is set. Messages are merged field by field, maps key by key, lists whose elements are told
//     apart by fields (list_map_keys) element by element; all other lists are replaced.
//   - What last set and desired does not is removed: fields, keys of maps, elements of lists.
//   - What only live has stays: defaults, and what others wrote. Elements of lists stay behind the element that they
//     followed. Where a field says so (retain_keys) nothing stays beside what desired sets: its fields exclude each
//     other.
//
// Status, identity (name, namespace) and the metadata that the gateway sets are live's.
func ThreeWay(last, live, desired proto.Message) proto.Message {
	merged := proto.Clone(live).ProtoReflect()
	// Parts of desired go into the result.
	wanted := proto.Clone(desired).ProtoReflect()
	before := merged.New()
	if last != nil && last.ProtoReflect().IsValid() {
		before = last.ProtoReflect()
	}
	fields := merged.Descriptor().Fields()
	for i := range fields.Len() {
		switch fd := fields.Get(i); {
		case fd.Name() == "status":
		case isMetadata(fd) && !live.ProtoReflect().Has(fd) && !wanted.Has(fd):
		case isMetadata(fd):
			metadata(before.Get(fd).Message(), merged.Mutable(fd).Message(), wanted.Get(fd).Message())
		default:
			field(fd, before, merged, wanted)
		}
	}
	return merged.Interface()
}

func isMetadata(fd protoreflect.FieldDescriptor) bool {
	return fd.Name() == "metadata" && fd.Message() != nil && fd.Message().FullName() == "trireme.meta.v1.ObjectMeta"
}

// metadata merges what of an object's metadata is the user's.
func metadata(last, live, desired protoreflect.Message) {
	fields := live.Descriptor().Fields()
	for _, name := range []protoreflect.Name{"labels", "annotations", "owner_references"} {
		field(fields.ByName(name), last, live, desired)
	}
	finalizers(fields.ByName("finalizers"), last, live, desired)
}

// finalizers are a set: each belongs to whoever put it there, and a manifest must not remove another's.
func finalizers(fd protoreflect.FieldDescriptor, last, live, desired protoreflect.Message) {
	mine, theirs := texts(desired.Get(fd).List()), texts(last.Get(fd).List())
	merged := texts(live.Get(fd).List())
	merged = slices.DeleteFunc(merged, func(s string) bool { return slices.Contains(theirs, s) && !slices.Contains(mine, s) })
	for _, s := range mine {
		if !slices.Contains(merged, s) {
			merged = append(merged, s)
		}
	}
	live.Clear(fd)
	for _, s := range merged {
		live.Mutable(fd).List().Append(protoreflect.ValueOfString(s))
	}
}

func texts(list protoreflect.List) []string {
	all := make([]string, list.Len())
	for i := range all {
		all[i] = list.Get(i).String()
	}
	return all
}

// message merges desired into live, which it changes.
func message(last, live, desired protoreflect.Message) {
	fields := live.Descriptor().Fields()
	for i := range fields.Len() {
		field(fields.Get(i), last, live, desired)
	}
}

func field(fd protoreflect.FieldDescriptor, last, live, desired protoreflect.Message) {
	options := optionsOf(fd)
	switch {
	case options.GetInternal():
	case fd.IsMap():
		mapField(fd, last, live, desired)
	case fd.IsList() && len(options.GetListMapKeys()) > 0 && keyed(fd, last, live, desired):
	case !desired.Has(fd):
		if last.Has(fd) {
			live.Clear(fd)
		}
	case fd.IsList() || isAtomic(fd) || !live.Has(fd):
		live.Set(fd, desired.Get(fd))
	default:
		into := live.Mutable(fd).Message()
		if options.GetRetainKeys() {
			retain(into, desired.Get(fd).Message())
		}
		message(last.Get(fd).Message(), into, desired.Get(fd).Message())
	}
}

// isAtomic reports whether a single field is taken as a whole: scalars, and messages that stand for JSON values.
func isAtomic(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() == nil || fd.Message().FullName().Parent() == "google.protobuf"
}

// retain clears the fields of live that desired does not set.
func retain(live, desired protoreflect.Message) {
	fields := live.Descriptor().Fields()
	for i := range fields.Len() {
		if fd := fields.Get(i); live.Has(fd) && !desired.Has(fd) {
			live.Clear(fd)
		}
	}
}

func mapField(fd protoreflect.FieldDescriptor, last, live, desired protoreflect.Message) {
	wanted := desired.Get(fd).Map()
	if !live.Has(fd) && wanted.Len() == 0 {
		return
	}
	merged := live.Mutable(fd).Map()
	for key := range last.Get(fd).Map().Range {
		if !wanted.Has(key) {
			merged.Clear(key)
		}
	}
	for key, value := range wanted.Range {
		if fd.MapValue().Message() == nil || isAtomic(fd.MapValue()) || !merged.Has(key) {
			merged.Set(key, value)
			continue
		}
		before := merged.NewValue().Message()
		if last.Get(fd).Map().Has(key) {
			before = last.Get(fd).Map().Get(key).Message()
		}
		message(before, merged.Mutable(key).Message(), value.Message())
	}
}
