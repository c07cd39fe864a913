// Package ownership knows who set which field of an object: it keeps metadata.managedFields and merges what a manager
// applies. One Type per kind is compiled from the kind's descriptors; the merge itself is structured-merge-diff's, the
// library that defines what Kubernetes' server-side apply does, down to the form of the field sets.
//
// It is pure: objects in, an object or conflicts out. It stores nothing, sets no defaults and checks no rule of a kind.
// In the chain it stands inside the registry, between what a request asks for and what is admitted.
package ownership

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	operationApply  = "Apply"
	operationUpdate = "Update"

	// BeforeFirstApply owns what was there when an object that nobody kept owners of was first applied.
	BeforeFirstApply = "before-first-apply"
	// ancientChanges owns what the oldest updates set, once there are more than maxUpdaters.
	ancientChanges = "ancient-changes"
	maxUpdaters    = 10
	// maxConflicts bounds an answer: it travels in headers.
	maxConflicts = 200
)

// Object is an object of any kind.
type Object interface {
	proto.Message
	GetMetadata() *metav1.ObjectMeta
}

// Writer is who writes, and through what.
type Writer struct {
	// Manager is the name of the writer; empty counts as "unknown".
	Manager string
	// Subresource that the write goes to; empty, status or scale.
	Subresource string
	// APIVersion that the fields are expressed in; empty is the kind's first.
	APIVersion string
}

// Type is what is known of a kind's fields, in all its versions. It is immutable and safe for concurrent use.
type Type struct {
	kind   *kind.Kind
	shapes []*shape // the stored one first
	main   *merge.Updater
	status *merge.Updater
}

// Compile reads the descriptors of a kind and of its versions other than the stored one.
func Compile(k *kind.Kind, versions ...Version) (*Type, error) {
	t := &Type{kind: k}
	for _, v := range append([]Version{{Kind: k}}, versions...) {
		s, err := newShape(v)
		if err != nil {
			return nil, err
		}
		t.shapes = append(t.shapes, s)
	}
	t.main, t.status = t.updater(func(s *shape) *fieldpath.Set { return s.notMain }), t.updater(func(s *shape) *fieldpath.Set { return s.notStatus })
	return t, nil
}

func (t *Type) updater(ignored func(*shape) *fieldpath.Set) *merge.Updater {
	filters := map[fieldpath.APIVersion]fieldpath.Filter{}
	for _, s := range t.shapes {
		for _, v := range s.Kind.APIVersions {
			filters[fieldpath.APIVersion(v)] = fieldpath.NewExcludeSetFilter(ignored(s))
		}
	}
	return (&merge.UpdaterBuilder{Converter: converter{t}, IgnoreFilter: filters}).BuildUpdater()
}

func (t *Type) updaterOf(w Writer) *merge.Updater {
	if w.Subresource == "status" {
		return t.status
	}
	return t.main
}

// serverOwned are the fields that no writer ever owns.
var serverOwned = fieldpath.NewSet(
	fieldpath.MakePathOrDie("apiVersion"),
	fieldpath.MakePathOrDie("kind"),
	fieldpath.MakePathOrDie("metadata"),
	fieldpath.MakePathOrDie("metadata", "name"),
	fieldpath.MakePathOrDie("metadata", "namespace"),
	fieldpath.MakePathOrDie("metadata", "creationTimestamp"),
	fieldpath.MakePathOrDie("metadata", "deletionTimestamp"),
	fieldpath.MakePathOrDie("metadata", "deletionGracePeriodSeconds"),
	fieldpath.MakePathOrDie("metadata", "selfLink"),
	fieldpath.MakePathOrDie("metadata", "uid"),
	fieldpath.MakePathOrDie("metadata", "generation"),
	fieldpath.MakePathOrDie("metadata", "managedFields"),
	fieldpath.MakePathOrDie("metadata", "resourceVersion"),
)

// Tracked reports whether owners are kept of an object.
func Tracked(obj Object) bool { return len(obj.GetMetadata().GetManagedFields()) > 0 }

// Start begins to keep owners of a new object: all that is set is the writer's.
func (t *Type) Start(obj Object, w Writer, now time.Time) error {
	managed, err := t.given(obj)
	if err != nil {
		return err
	}
	return t.update(t.shapes[0].new(), obj, managed, w, now)
}

// Update notes in next, which replaces old, that the writer set what differs. What next says of owners itself counts,
// where it says anything: an entry that is empty, alone, ends the keeping of owners.
func (t *Type) Update(old, next Object, w Writer, now time.Time) error {
	meta := next.GetMetadata()
	if isReset(meta.GetManagedFields()) {
		meta.ManagedFields = nil
		return nil
	}
	var managed *owners
	var err error
	if w.Subresource == "" && len(meta.GetManagedFields()) > 0 {
		managed, err = t.given(next)
	} else {
		managed, err = t.decode(old.GetMetadata().GetManagedFields())
	}
	if err != nil {
		return err
	}
	if len(managed.sets) == 0 {
		meta.ManagedFields = nil
		return nil
	}
	return t.update(old, next, managed, w, now)
}

func (t *Type) update(old, next Object, managed *owners, w Writer, now time.Time) error {
	meta := next.GetMetadata()
	meta.ManagedFields = nil
	in := t.shape(t.version(w))
	before, err := in.live(old)
	if err != nil {
		return err
	}
	after, err := in.live(next)
	if err != nil {
		return err
	}
	if err := t.own(before, after, managed, w, now); err != nil {
		return err
	}
	managed.cap()
	meta.ManagedFields, err = managed.encode()
	return err
}

// current is the name of the write under way, so that what it took can be told from what its writer had.
const current = "current-operation"

// own adds what differs between two values to what the writer owns, and takes it from others.
func (t *Type) own(before, after *typed.TypedValue, managed *owners, w Writer, now time.Time) error {
	_, sets, err := t.updaterOf(w).Update(before, after, t.version(w), managed.sets, current)
	if err != nil {
		return fmt.Errorf("find the fields that differ: %w", err)
	}
	managed.sets = sets
	taken, ok := sets[current]
	if !ok {
		return nil
	}
	delete(sets, current)
	set := taken.Set().Difference(serverOwned)
	id := w.id(operationUpdate, string(taken.APIVersion()))
	if had, ok := sets[id]; ok {
		set = set.Union(had.Set())
	}
	if set.Empty() {
		return nil
	}
	sets[id] = fieldpath.NewVersionedSet(set, taken.APIVersion(), false)
	managed.times[id] = now
	return nil
}

// Apply merges what a manager wants into what there is and returns the result with its owners: live itself is not
// changed, and is nil where the object is new. Live and the result are of the stored version, config is of the writer's. The error is an *apierr.Error with every conflict unless force is set.
func (t *Type) Apply(live, config Object, w Writer, force bool, now time.Time) (Object, error) {
	fresh := live == nil
	if fresh {
		live = t.shapes[0].new()
	}
	in := t.shape(t.version(w))
	managed, err := t.decode(live.GetMetadata().GetManagedFields())
	if err != nil {
		return nil, err
	}
	before, err := in.live(live)
	if err != nil {
		return nil, err
	}
	fields, err := manifest.Fields(config)
	if err != nil {
		return nil, err
	}
	if err := bounded(t.kind, config, fields); err != nil {
		return nil, err
	}
	wanted, err := in.parse.FromUnstructured(fields)
	if err != nil {
		return nil, t.invalid(config, err)
	}
	id := w.id(operationApply, "")
	switch {
	case fresh:
	case len(managed.sets) == 0:
		empty, err := in.live(t.shapes[0].new())
		if err != nil {
			return nil, err
		}
		others := Writer{Manager: BeforeFirstApply}
		if in != t.shapes[0] {
			others.APIVersion = w.APIVersion // before is in that shape
		}
		if err := t.own(empty, before, managed, others, now); err != nil {
			return nil, err
		}
		t.takeLastApplied(live, before, managed, w, id)
	default:
		t.takeLastApplied(live, before, managed, w, id)
	}
	had := managed.copy()
	merged, sets, err := t.updaterOf(w).Apply(before, wanted, t.version(w), managed.sets, id, force)
	var conflicts merge.Conflicts
	if errors.As(err, &conflicts) {
		return nil, t.conflict(config, conflicts, managed)
	}
	if err != nil {
		return nil, t.invalid(config, err)
	}
	managed.sets = sets
	if set, ok := sets[id]; ok {
		managed.put(id, set.Set().Difference(serverOwned), set.APIVersion(), true)
	}
	next, _ := proto.Clone(live).(Object)
	if merged != nil {
		if next, err = in.object(merged); err != nil {
			return nil, t.invalid(config, err)
		}
		next.GetMetadata().TraceContext = live.GetMetadata().GetTraceContext()
		next.GetMetadata().TraceTime = live.GetMetadata().GetTraceTime()
	}
	if merged != nil || !had.sameAs(managed, id) {
		managed.times[id] = now
	}
	next.GetMetadata().ManagedFields, err = managed.encode()
	return next, err
}

func (t *Type) version(w Writer) fieldpath.APIVersion {
	if w.APIVersion != "" {
		return fieldpath.APIVersion(w.APIVersion)
	}
	return fieldpath.APIVersion(t.kind.APIVersion())
}

func (t *Type) key(obj Object) string {
	return t.kind.Key(obj.GetMetadata().GetNamespace(), obj.GetMetadata().GetName())
}

func (t *Type) invalid(obj Object, err error) error {
	return &apierr.Error{
		Reason: apierr.ReasonInvalid, Kind: t.kind.Name, Key: t.key(obj),
		Message: fmt.Sprintf("%s %q cannot be applied", t.kind.Name, t.key(obj)), Err: err,
	}
}

// conflict names every field that others own, and them.
func (t *Type) conflict(config Object, conflicts merge.Conflicts, managed *owners) error {
	out := make([]apierr.Violation, 0, len(conflicts))
	for _, c := range conflicts {
		out = append(out, apierr.Violation{
			Field: strings.TrimPrefix(c.Path.String(), "."), Message: "conflict with " + managed.describe(c.Manager),
		})
	}
	slices.SortFunc(out, func(a, b apierr.Violation) int {
		return strings.Compare(a.Field+"\x00"+a.Message, b.Field+"\x00"+b.Message)
	})
	total := len(out)
	if total > maxConflicts {
		out = append(out[:maxConflicts], apierr.Violation{Message: fmt.Sprintf("and %d more", total-maxConflicts)})
	}
	parts := make([]string, len(out))
	for i, v := range out {
		parts[i] = v.String()
	}
	plural := "s"
	if total == 1 {
		plural = ""
	}
	return &apierr.Error{
		Reason: apierr.ReasonConflict, Kind: t.kind.Name, Key: t.key(config), Violations: out,
		Message: fmt.Sprintf("Apply failed with %d conflict%s: %s", total, plural, strings.Join(parts, "; ")),
	}
}
