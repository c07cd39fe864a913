package ownership

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"trireme.dev/client/apierr"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// MaxManager is how long the name of a manager may be, in bytes.
const MaxManager = 128

// identity is what tells entries apart. An applier is the same whatever version it applies in.
type identity struct {
	Manager     string `json:"manager"`
	Operation   string `json:"operation"`
	APIVersion  string `json:"apiVersion,omitempty"`
	Subresource string `json:"subresource,omitempty"`
}

func (w Writer) id(operation, apiVersion string) string {
	name := w.Manager
	if name == "" {
		name = "unknown"
	}
	return identity{name, operation, apiVersion, w.Subresource}.String()
}

// String is the identity as a key of a map.
func (i identity) String() string {
	text, _ := json.Marshal(i) // strings alone
	return string(text)
}

// owners are the entries of one object, decoded.
type owners struct {
	sets  fieldpath.ManagedFields
	times map[string]time.Time
}

func (o *owners) copy() *owners { return &owners{sets: o.sets.Copy(), times: maps.Clone(o.times)} }

// put replaces an entry; an empty set removes it.
func (o *owners) put(id string, set *fieldpath.Set, version fieldpath.APIVersion, applied bool) {
	if set.Empty() {
		delete(o.sets, id)
		return
	}
	o.sets[id] = fieldpath.NewVersionedSet(set, version, applied)
}

// sameAs reports whether an entry is the same in both.
func (o *owners) sameAs(other *owners, id string) bool {
	a, b := o.sets[id], other.sets[id]
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.APIVersion() == b.APIVersion() && a.Set().Equals(b.Set())
}

// identity reads a key back.
func (o *owners) identity(id string) identity {
	var i identity
	if err := json.Unmarshal([]byte(id), &i); err != nil {
		return identity{Manager: id}
	}
	return i
}

// describe names an owner as messages do.
func (o *owners) describe(id string) string {
	i := o.identity(id)
	text := fmt.Sprintf("%q", i.Manager)
	if i.Subresource != "" {
		text += fmt.Sprintf(" with subresource %q", i.Subresource)
	}
	if i.Operation == operationUpdate {
		text += " using " + i.APIVersion
		if at, ok := o.times[id]; ok {
			text += " at " + at.UTC().Format(time.RFC3339)
		}
	}
	return text
}

// cap merges the oldest updates of a version into one entry while there are too many.
func (o *owners) cap() {
	var updaters []string
	for id, set := range o.sets {
		if !set.Applied() {
			updaters = append(updaters, id)
		}
	}
	if len(updaters) <= maxUpdaters {
		return
	}
	slices.SortFunc(updaters, func(a, b string) int {
		if c := o.times[a].Compare(o.times[b]); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	first := map[fieldpath.APIVersion]string{}
	left := len(updaters)
	for _, id := range updaters {
		if left <= maxUpdaters {
			return
		}
		set := o.sets[id]
		version := set.APIVersion()
		other, seen := first[version]
		if !seen {
			first[version] = id
			continue
		}
		bucket := identity{Manager: ancientChanges, Operation: operationUpdate, APIVersion: string(version)}.String()
		if old, ok := o.sets[other]; ok && other != bucket {
			o.sets[bucket] = old
			delete(o.sets, other)
			first[version] = bucket
		}
		if id != bucket {
			o.sets[bucket] = fieldpath.NewVersionedSet(set.Set().Union(o.sets[bucket].Set()), version, false)
			delete(o.sets, id)
		}
		o.times[bucket] = o.times[id]
		left--
	}
}

// decode reads entries as they are stored.
func (t *Type) decode(entries []*metav1.ManagedFieldsEntry) (*owners, error) {
	o := &owners{sets: fieldpath.ManagedFields{}, times: map[string]time.Time{}}
	for i, e := range entries {
		set := &fieldpath.Set{}
		text := []byte("{}")
		if e.GetFieldsV1() != nil {
			var err error
			if text, err = protojson.Marshal(e.GetFieldsV1()); err != nil {
				return nil, wrong(i, "fieldsV1", err.Error())
			}
		}
		if err := set.FromJSON(bytes.NewReader(text)); err != nil {
			return nil, wrong(i, "fieldsV1", err.Error())
		}
		applied := e.GetOperation() == operationApply
		version := e.GetApiVersion()
		id := identity{Manager: e.GetManager(), Operation: e.GetOperation(), Subresource: e.GetSubresource()}
		if !applied {
			id.APIVersion = version
		}
		o.sets[id.String()] = fieldpath.NewVersionedSet(set, fieldpath.APIVersion(version), applied)
		if e.GetTime() != nil {
			o.times[id.String()] = e.GetTime().AsTime()
		}
	}
	return o, nil
}

func wrong(i int, field, message string) error {
	return apierr.Invalid("", "", apierr.Violation{
		Field: fmt.Sprintf("metadata.managedFields[%d].%s", i, field), Message: "Invalid value: " + message,
	})
}

// encode gives the entries as they are stored: appliers first, then by time.
func (o *owners) encode() ([]*metav1.ManagedFieldsEntry, error) {
	out := make([]*metav1.ManagedFieldsEntry, 0, len(o.sets))
	for id, set := range o.sets {
		i := o.identity(id)
		text, err := set.Set().ToJSON()
		if err != nil {
			return nil, fmt.Errorf("fields of %s: %w", i.Manager, err)
		}
		fields := &structpb.Struct{}
		if err := protojson.Unmarshal(text, fields); err != nil {
			return nil, fmt.Errorf("fields of %s: %w", i.Manager, err)
		}
		e := &metav1.ManagedFieldsEntry{
			Manager: proto.String(i.Manager), Operation: proto.String(i.Operation), FieldsType: proto.String("FieldsV1"),
			ApiVersion: proto.String(string(set.APIVersion())), FieldsV1: fields,
		}
		if i.Subresource != "" {
			e.Subresource = proto.String(i.Subresource)
		}
		if at, ok := o.times[id]; ok {
			e.Time = timestamppb.New(at.Truncate(time.Second))
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *metav1.ManagedFieldsEntry) int {
		if c := strings.Compare(a.GetOperation(), b.GetOperation()); c != 0 {
			return c
		}
		if c := a.GetTime().AsTime().Compare(b.GetTime().AsTime()); c != 0 {
			return c
		}
		return strings.Compare(
			a.GetManager()+"\x00"+a.GetApiVersion()+"\x00"+a.GetSubresource(),
			b.GetManager()+"\x00"+b.GetApiVersion()+"\x00"+b.GetSubresource())
	})
	return out, nil
}

// isReset reports whether entries say that owners are to be forgotten.
func isReset(entries []*metav1.ManagedFieldsEntry) bool {
	return len(entries) == 1 && proto.Size(entries[0]) == 0
}

// given reads the entries that a request brings itself.
func (t *Type) given(obj Object) (*owners, error) {
	entries := obj.GetMetadata().GetManagedFields()
	if isReset(entries) {
		return t.decode(nil)
	}
	if violations := Check(entries); len(violations) > 0 {
		return nil, apierr.Invalid(t.kind.Name, t.key(obj), violations...)
	}
	return t.decode(entries)
}

// Check returns everything wrong with entries that a request brings.
func Check(entries []*metav1.ManagedFieldsEntry) []apierr.Violation {
	var out []apierr.Violation
	add := func(i int, field, message string) {
		out = append(out, apierr.Violation{Field: fmt.Sprintf("metadata.managedFields[%d].%s", i, field), Message: message})
	}
	for i, e := range entries {
		switch e.GetOperation() {
		case operationApply, operationUpdate:
		default:
			add(i, "operation", fmt.Sprintf("Invalid value: %q: must be `Apply` or `Update`", e.GetOperation()))
		}
		if e.GetFieldsType() != "FieldsV1" {
			add(i, "fieldsType", fmt.Sprintf("Invalid value: %q: must be `FieldsV1`", e.GetFieldsType()))
		}
		if e.GetApiVersion() == "" {
			add(i, "apiVersion", "Required value")
		}
		if message := CheckManager(e.GetManager()); message != "" {
			add(i, "manager", message)
		}
		if e.GetFieldsV1() != nil {
			text, err := protojson.Marshal(e.GetFieldsV1())
			if err == nil {
				err = (&fieldpath.Set{}).FromJSON(bytes.NewReader(text))
			}
			if err != nil {
				add(i, "fieldsV1", "Invalid value: "+err.Error())
			}
		}
	}
	return out
}

// CheckManager says what is wrong with the name of a manager; nothing where it is "".
func CheckManager(name string) string {
	if len(name) > MaxManager {
		return fmt.Sprintf("Too long: may not be more than %d bytes", MaxManager)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Sprintf("Invalid value: %q: should only contain printable characters", name)
		}
	}
	return ""
}
