package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client/apierr"
	"trireme.dev/client/tracing"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/ownership"
	"trireme.dev/services/apiserver/internal/storage"
)

const (
	nameAlphabet = "bcdfghjklmnpqrstvwxz2456789"
	nameSuffix   = 5
	maxNameBase  = 63 - nameSuffix
	nameTries    = 8
	writeTries   = 10 // of read-modify-write loops that the caller asked no version of
	patchTries   = 5
	maxObject    = 1536 << 10 // etcd's own default limit of a request

	finalizerForeground = "foregroundDeletion"
	finalizerOrphan     = "orphan"
)

// Subresource that a write goes to: none or status.
type Subresource string

// The subresources.
const (
	Main   Subresource = ""
	Status Subresource = "status"
)

// Create stores a new object. The object is changed: defaults and what the gateway sets are filled in.
func (r *Resource) Create(ctx context.Context, obj Object, opts *metav1.WriteOptions) (Result, error) {
	if err := checkOptions(opts); err != nil {
		return Result{}, err
	}
	return r.createOwned(ctx, obj, opts, func(now time.Time) error {
		if opts.GetFieldManager() == "" && !ownership.Tracked(obj) {
			return nil
		}
		return r.owners.Start(obj, ownership.Writer{Manager: managerOf(ctx, opts)}, now)
	})
}

// createOwned is Create; own notes who set the fields of the object, once they are all set.
func (r *Resource) createOwned(ctx context.Context, obj Object, opts *metav1.WriteOptions, own func(time.Time) error) (Result, error) {
	meta := ensureMeta(obj)
	if err := r.checkScope(meta); err != nil {
		return Result{}, err
	}
	if meta.GetResourceVersion() != "" {
		return Result{}, r.invalid(meta, apierr.Violation{
			Field: "metadata.resourceVersion", Message: "Forbidden: must not be set on an object to be created",
		})
	}
	warnings := r.schema.Warnings(obj)

	now := time.Now()
	ctx, span := r.begin(ctx, meta, now, opts.GetDryRun())
	defer span.End()
	meta.Uid = uuid.NewString()
	meta.CreationTimestamp = timestamppb.New(now.Truncate(time.Second))
	meta.DeletionTimestamp, meta.DeletionGracePeriodSeconds = nil, nil
	meta.SelfLink = ""
	meta.Generation = 0
	if !r.Kind.Options.GetHasNoGeneration() {
		meta.Generation = 1
	}
	if r.strategy.prepareCreate != nil {
		r.strategy.prepareCreate(obj)
	}
	r.schema.Default(obj)
	if err := own(now); err != nil {
		return Result{}, err
	}
	if err := r.admit(ctx, Write{Operation: Create, Object: obj}); err != nil {
		tracing.Fail(span, err)
		return Result{}, err
	}

	generated := meta.GetName() == "" && meta.GetGenerateName() != ""
	for try := 1; ; try++ {
		if generated {
			meta.Name = generateName(meta.GetGenerateName())
		}
		result, err := r.create(ctx, obj, opts.GetDryRun())
		if generated && try < nameTries && apierr.IsAlreadyExists(err) {
			continue
		}
		if span.IsRecording() {
			span.SetAttributes(tracing.Pod(meta)...)
			tracing.Fail(span, err)
		}
		result.Warnings = warnings
		return result, err
	}
}

// admit asks admission about a write.
func (r *Resource) admit(ctx context.Context, w Write) error {
	ctx, span := step(ctx, admissionSpan)
	defer span.End()
	w.Kind = r.Kind
	err := r.registry.admit(ctx, w)
	tracing.Fail(span, err)
	return err
}

func (r *Resource) create(ctx context.Context, obj Object, dryRun bool) (Result, error) {
	meta := obj.GetMetadata()
	if violations := r.schema.ValidateCreate(obj); len(violations) > 0 {
		return Result{}, r.invalid(meta, violations...)
	}
	key, ok := r.key(meta.GetNamespace(), meta.GetName())
	if !ok {
		return Result{}, r.badName(meta.GetNamespace(), meta.GetName())
	}
	stored, err := r.encode(obj)
	if err != nil {
		return Result{}, err
	}
	if dryRun {
		_, found, _, err := r.registry.store.Get(ctx, key)
		if err != nil {
			return Result{}, r.storeError(err, meta.GetNamespace(), meta.GetName())
		}
		if found {
			return Result{}, r.exists(meta)
		}
		return Result{Payload: stored[2:]}, nil
	}
	revision, err := r.registry.store.Commit(ctx, storage.Txn{
		If:   []storage.Condition{{Key: key}},
		Then: []storage.Op{{Key: key, Value: stored}},
	})
	var conflict *storage.ConflictError
	if errors.As(err, &conflict) {
		return Result{}, r.exists(meta)
	}
	if err != nil {
		return Result{}, r.storeError(err, meta.GetNamespace(), meta.GetName())
	}
	return Result{Payload: stored[2:], Revision: revision}, nil
}

// Update replaces an object: on Main all but its status, on Status its status only. With a resource_version it must
// still be current; without one the update is unconditional.
func (r *Resource) Update(ctx context.Context, obj Object, sub Subresource, opts *metav1.WriteOptions) (Result, error) {
	if err := checkOptions(opts); err != nil {
		return Result{}, err
	}
	meta := ensureMeta(obj)
	if err := r.checkScope(meta); err != nil {
		return Result{}, err
	}
	if sub == Status && !r.Kind.HasStatus {
		return Result{}, apierr.Unimplemented(r.Kind.Name + " has no status")
	}
	if meta.GetResourceVersion() == "" && r.Kind.Options.GetRequiresResourceVersion() {
		return Result{}, r.invalid(meta, apierr.Violation{
			Field: "metadata.resourceVersion", Message: "Invalid value: \"\": must be specified for an update",
		})
	}
	for try := 0; ; try++ {
		old, entry, fresh, err := r.loadForUpdate(ctx, meta, try > 0 || opts.GetDryRun())
		if err != nil {
			return Result{}, err
		}
		var warnings []string
		if sub == Main {
			warnings = r.newWarnings(obj, old)
		}
		// Each try starts from what the caller sent: the steps below change the object.
		next, _ := proto.Clone(obj).(Object)
		result, err := r.replace(ctx, old, next, entry, change{sub: sub, opts: opts, writer: r.writer(ctx, string(sub), opts)})
		if !fresh && !unanswered(err) && (err != nil || result.Revision == entry.Revision) {
			continue // nothing was committed: what the cache has may be old, so it is no ground to refuse or to do nothing
		}
		if errors.Is(err, errMoved) {
			// Where the caller named a version, the next try refuses it and says what there is now.
			if try < writeTries {
				continue
			}
			return Result{}, apierr.Conflict(r.Kind.Name, r.Kind.Key(meta.GetNamespace(), meta.GetName()), "")
		}
		result.Warnings = warnings
		return result, err
	}
}

// loadForUpdate reads what an update replaces. At first the cache is asked: it nearly always has what there is, and an
// update that rests on an old state does not commit.
func (r *Resource) loadForUpdate(ctx context.Context, meta *metav1.ObjectMeta, surely bool) (obj Object, entry storage.Entry, fresh bool, err error) {
	if !surely {
		return r.loadCached(ctx, meta.GetNamespace(), meta.GetName())
	}
	obj, entry, err = r.load(ctx, meta.GetNamespace(), meta.GetName())
	return obj, entry, true, err
}

// unanswered reports whether a write may have happened or not: it must not be repeated.
func unanswered(err error) bool {
	switch apierr.ReasonOf(err) {
	case apierr.ReasonUnavailable, apierr.ReasonTimeout, apierr.ReasonCanceled, apierr.ReasonInternal:
		return true
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// errMoved says that the object changed between read and write.
var errMoved = errors.New("object changed between read and write")

// change is how an object is replaced.
type change struct {
	sub    Subresource // what of it is written: all but the status, or the status
	opts   *metav1.WriteOptions
	writer ownership.Writer
	// applied says that the new object carries its owners already.
	applied bool
	// statusAnnotations are annotations that stand for status of another version; they are written with it.
	statusAnnotations []string
}

// replace writes next over old, which was read from entry.
func (r *Resource) replace(ctx context.Context, old, next Object, entry storage.Entry, how change) (Result, error) {
	if err := r.checkVersions(next.GetMetadata(), old.GetMetadata(), entry.Revision); err != nil {
		return Result{}, err
	}
	sub, given := how.sub, next.GetMetadata().GetManagedFields()
	if sub == Status {
		status := next
		next = r.withStatus(old, status)
		copyAnnotations(next, status, how.statusAnnotations)
	} else {
		copyAnnotations(next, old, how.statusAnnotations)
		r.keepStatus(old, next)
	}
	r.keepSystemFields(old, next)
	meta := next.GetMetadata()
	if sub == Main && r.strategy.prepareUpdate != nil {
		r.strategy.prepareUpdate(next, old)
	}
	r.schema.Default(next)
	if err := r.own(old, next, given, how); err != nil {
		return Result{}, err
	}
	if err := r.admit(ctx, Write{Operation: Update, Subresource: sub, Object: next, Old: old}); err != nil {
		return Result{}, err
	}
	violations := r.schema.ValidateUpdate(next, old)
	if sub == Main {
		violations = append(violations, finalizersWhileDeleting(meta, old.GetMetadata())...)
		if r.strategy.validateUpdate != nil {
			violations = append(violations, r.strategy.validateUpdate(next, old)...)
		}
	}
	if len(violations) > 0 {
		return Result{}, r.invalid(meta, violations...)
	}
	if r.specChanged(next, old) {
		meta.Generation++
	}

	stored, err := r.encode(next)
	if err != nil {
		return Result{}, err
	}
	switch {
	case bytes.Equal(stored, entry.Value):
		// Nothing would change: no revision, no event.
		return Result{Payload: stored[2:], Revision: entry.Revision}, nil
	case how.opts.GetDryRun():
		return Result{Payload: stored[2:], Revision: entry.Revision}, nil
	}
	op := storage.Op{Key: entry.Key, Value: stored}
	if r.releasable(next) {
		op.Value = nil
	}
	revision, err := r.commitOne(ctx, op, entry.Revision)
	if err != nil {
		return Result{}, err
	}
	return Result{Payload: stored[2:], Revision: revision}, nil
}

// commitOne writes one key if it is still at the revision; otherwise the error is errMoved.
func (r *Resource) commitOne(ctx context.Context, op storage.Op, revision int64) (int64, error) {
	now, err := r.registry.store.Commit(ctx, storage.Txn{
		If:   []storage.Condition{{Key: op.Key, Revision: revision}},
		Then: []storage.Op{op},
	})
	var conflict *storage.ConflictError
	if errors.As(err, &conflict) {
		return 0, errMoved
	}
	if err != nil {
		return 0, r.storeError(err, "", op.Key[len(r.prefix):])
	}
	return now, nil
}

// checkVersions refuses a write based on another version, or another object, than what is stored.
func (r *Resource) checkVersions(asked, have *metav1.ObjectMeta, revision int64) error {
	key := r.Kind.Key(have.GetNamespace(), have.GetName())
	if uid := asked.GetUid(); uid != "" && uid != have.GetUid() {
		return apierr.Conflict(r.Kind.Name, key, fmt.Sprintf(
			"%s %q: Precondition failed: UID in precondition: %s, UID in object meta: %s", r.Kind.Name, key, uid, have.GetUid()))
	}
	if rv := asked.GetResourceVersion(); rv != "" && rv != strconv.FormatInt(revision, 10) {
		return r.stale(key, rv, revision)
	}
	return nil
}

func (r *Resource) stale(key, asked string, have int64) error {
	return apierr.Conflict(r.Kind.Name, key, fmt.Sprintf(
		"%s %q has been changed: the write is based on resourceVersion %s, the object is at %d; get it again and repeat the change",
		r.Kind.Name, key, asked, have))
}

// withStatus returns old with the status of next.
func (r *Resource) withStatus(old, next Object) Object {
	merged, _ := proto.Clone(old).(Object)
	copyField(merged, next, "status")
	return merged
}

// keepStatus gives next the status of old.
func (r *Resource) keepStatus(old, next Object) {
	if r.Kind.HasStatus {
		copyField(next, old, "status")
	}
}

func copyField(dst, src Object, name protoreflect.Name) {
	d, s := dst.ProtoReflect(), src.ProtoReflect()
	fd := d.Descriptor().Fields().ByName(name)
	if s.Has(fd) {
		d.Set(fd, s.Get(fd))
	} else {
		d.Clear(fd)
	}
}

// keepSystemFields gives next what only the gateway sets.
func (r *Resource) keepSystemFields(old, next Object) {
	have, meta := old.GetMetadata(), next.GetMetadata()
	meta.Uid = have.GetUid()
	meta.Generation = have.GetGeneration()
	meta.CreationTimestamp = have.GetCreationTimestamp()
	meta.DeletionTimestamp = have.GetDeletionTimestamp()
	meta.DeletionGracePeriodSeconds = have.DeletionGracePeriodSeconds
	meta.TraceContext, meta.TraceTime = have.GetTraceContext(), have.GetTraceTime()
	meta.SelfLink, meta.ManagedFields, meta.ResourceVersion = "", have.GetManagedFields(), ""
	if meta.GetGenerateName() == "" {
		meta.GenerateName = have.GetGenerateName()
	}
}

func finalizersWhileDeleting(meta, old *metav1.ObjectMeta) []apierr.Violation {
	if old.GetDeletionTimestamp() == nil {
		return nil
	}
	for _, f := range meta.GetFinalizers() {
		if !slices.Contains(old.GetFinalizers(), f) {
			return []apierr.Violation{{
				Field:   "metadata.finalizers",
				Message: fmt.Sprintf("Forbidden: no new finalizers can be added if the object is being deleted, found new finalizer %q", f),
			}}
		}
	}
	return nil
}

func (r *Resource) specChanged(next, old Object) bool {
	if r.Kind.Options.GetHasNoGeneration() || !r.Kind.HasSpec {
		return false
	}
	fd := next.ProtoReflect().Descriptor().Fields().ByName("spec")
	return !proto.Equal(next.ProtoReflect().Get(fd).Message().Interface(), old.ProtoReflect().Get(fd).Message().Interface())
}

// releasable reports whether an object that is being deleted has nothing left that holds it.
func (r *Resource) releasable(obj Object) bool {
	meta := obj.GetMetadata()
	if meta.GetDeletionTimestamp() == nil || len(meta.GetFinalizers()) > 0 || meta.GetDeletionGracePeriodSeconds() > 0 {
		return false
	}
	return r.strategy.holds == nil || !r.strategy.holds(obj)
}

func (r *Resource) encode(obj Object) ([]byte, error) {
	meta := obj.GetMetadata()
	stored, err := envelope.Encode(obj)
	if err != nil {
		return nil, r.invalid(meta, apierr.Violation{Message: err.Error()})
	}
	if len(stored) > maxObject {
		return nil, r.invalid(meta, apierr.Violation{
			Message: fmt.Sprintf("Too long: the object has %d bytes, at most %d can be stored", len(stored), maxObject),
		})
	}
	return stored, nil
}

func (r *Resource) invalid(meta *metav1.ObjectMeta, violations ...apierr.Violation) error {
	return apierr.Invalid(r.Kind.Name, r.Kind.Key(meta.GetNamespace(), meta.GetName()), violations...)
}

func (r *Resource) exists(meta *metav1.ObjectMeta) error {
	return apierr.AlreadyExists(r.Kind.Name, r.Kind.Key(meta.GetNamespace(), meta.GetName()))
}

// checkScope holds namespace and kind together.
func (r *Resource) checkScope(meta *metav1.ObjectMeta) error {
	switch {
	case r.Kind.Namespaced && meta.GetNamespace() == "":
		return r.invalid(meta, apierr.Violation{Field: "metadata.namespace", Message: "Required value"})
	case !r.Kind.Namespaced && meta.GetNamespace() != "":
		return r.invalid(meta, apierr.Violation{Field: "metadata.namespace", Message: "Forbidden: not allowed on this type"})
	}
	return nil
}

func checkOptions(opts *metav1.WriteOptions) error {
	if wrong := ownership.CheckManager(opts.GetFieldManager()); wrong != "" {
		return apierr.Invalid("", "", apierr.Violation{Field: "options.fieldManager", Message: wrong})
	}
	return nil
}

func ensureMeta(obj Object) *metav1.ObjectMeta {
	if meta := obj.GetMetadata(); meta != nil {
		return meta
	}
	m := obj.ProtoReflect()
	m.Mutable(m.Descriptor().Fields().ByNumber(1))
	return obj.GetMetadata()
}

func generateName(base string) string {
	if len(base) > maxNameBase {
		base = base[:maxNameBase]
	}
	suffix := make([]byte, nameSuffix)
	for i := range suffix {
		suffix[i] = nameAlphabet[rand.IntN(len(nameAlphabet))]
	}
	return base + string(suffix)
}
