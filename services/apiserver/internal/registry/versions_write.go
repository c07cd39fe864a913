package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/ownership"
	"trireme.dev/services/apiserver/internal/storage"
)

// Create is Resource.Create.
func (v *Version) Create(ctx context.Context, obj Object, opts *metav1.WriteOptions) (Result, error) {
	if err := checkOptions(opts); err != nil {
		return Result{}, err
	}
	if err := v.self.checkScope(ensureMeta(obj)); err != nil {
		return Result{}, err
	}
	if v.Kind.HasStatus {
		clearStatus(obj)
	}
	warnings := v.self.schema.Warnings(obj)
	stored, err := v.checkNew(obj)
	if err != nil {
		return Result{}, err
	}
	result, err := v.stored.createOwned(ctx, stored, opts, func(now time.Time) error {
		if opts.GetFieldManager() == "" && !ownership.Tracked(stored) {
			return nil
		}
		return v.stored.owners.Start(stored, v.writer(ctx, Main, opts), now)
	})
	result.Warnings = warnings
	return v.result(result, err)
}

// checkNew gives a new object its defaults, holds it against the version's rules and returns it converted.
func (v *Version) checkNew(obj Object) (Object, error) {
	v.self.schema.Default(obj)
	meta := obj.GetMetadata()
	name := meta.GetName()
	if name == "" && meta.GetGenerateName() != "" {
		meta.Name = generateName(meta.GetGenerateName()) // only to be looked at
	}
	violations := v.self.schema.ValidateCreate(obj)
	meta.Name = name
	if len(violations) > 0 {
		return nil, v.self.invalid(meta, violations...)
	}
	return v.toStored(obj)
}

// writer is who writes, in the version that the fields are expressed in.
func (v *Version) writer(ctx context.Context, sub Subresource, opts *metav1.WriteOptions) ownership.Writer {
	return ownership.Writer{Manager: managerOf(ctx, opts), Subresource: string(sub), APIVersion: v.Kind.APIVersion()}
}

// Update is Resource.Update.
func (v *Version) Update(ctx context.Context, obj Object, sub Subresource, opts *metav1.WriteOptions) (Result, error) {
	if err := checkOptions(opts); err != nil {
		return Result{}, err
	}
	meta := ensureMeta(obj)
	if err := v.self.checkScope(meta); err != nil {
		return Result{}, err
	}
	return v.modify(ctx, meta.GetNamespace(), meta.GetName(), writeTries, func(old, oldHere Object, entry storage.Entry) (Result, error) {
		next, _ := proto.Clone(obj).(Object)
		return v.replace(ctx, old, oldHere, next, entry, change{sub: sub, opts: opts, writer: v.writer(ctx, sub, opts)})
	})
}

// modify calls fn with an object as it is stored and as it is in this version, again where another write came between.
func (v *Version) modify(
	ctx context.Context, namespace, name string, tries int, fn func(old, oldHere Object, entry storage.Entry) (Result, error),
) (Result, error) {
	for try := 1; ; try++ {
		old, entry, err := v.stored.load(ctx, namespace, name)
		if err != nil {
			return Result{}, err
		}
		oldHere, err := v.fromStored(old)
		if err != nil {
			return Result{}, err
		}
		result, err := fn(old, oldHere, entry)
		if errors.Is(err, errMoved) {
			if try < tries {
				continue
			}
			return Result{}, apierr.Conflict(v.Kind.Name, v.Kind.Key(namespace, name), "")
		}
		return v.result(result, err)
	}
}

// replace writes next, an object of this version, over old, which is oldHere in this version. The result is of the stored
// version.
func (v *Version) replace(ctx context.Context, old, oldHere, next Object, entry storage.Entry, how change) (Result, error) {
	v.keepAnnotations(next, oldHere)
	var warnings []string
	if how.sub == Status {
		status := next
		next, _ = proto.Clone(oldHere).(Object)
		copyField(next, status, "status")
		copyAnnotations(next, status, v.pair.StatusHere)
		// What the caller says of identity counts as in any write.
		meta, asked := next.GetMetadata(), status.GetMetadata()
		meta.Uid, meta.ResourceVersion, meta.ManagedFields = asked.GetUid(), asked.GetResourceVersion(), asked.GetManagedFields()
	} else {
		warnings = v.self.newWarnings(next, oldHere)
		copyField(next, oldHere, "status")
		copyAnnotations(next, oldHere, v.pair.StatusHere)
	}
	v.self.schema.Default(next)
	if err := v.stored.checkVersions(next.GetMetadata(), old.GetMetadata(), entry.Revision); err != nil {
		return Result{}, err
	}
	if violations := v.self.schema.ValidateUpdate(next, oldHere); len(violations) > 0 {
		return Result{}, v.self.invalid(next.GetMetadata(), violations...)
	}
	stored, err := v.toStored(next)
	if err != nil {
		return Result{}, err
	}
	how.statusAnnotations = v.pair.Status
	result, err := v.stored.replace(ctx, old, stored, entry, how)
	result.Warnings = warnings
	return result, err
}

// keepAnnotations gives next the annotations that stand for fields which this version does not know, where it says
// nothing of them.
func (v *Version) keepAnnotations(next, old Object) {
	for _, key := range v.pair.Kept {
		if _, says := next.GetMetadata().GetAnnotations()[key]; !says {
			copyAnnotations(next, old, []string{key})
		}
	}
}

// copyAnnotations makes some annotations of dst those of src.
func copyAnnotations(dst, src Object, keys []string) {
	for _, key := range keys {
		value, ok := src.GetMetadata().GetAnnotations()[key]
		meta := ensureMeta(dst)
		switch {
		case !ok:
			delete(meta.Annotations, key)
		case meta.Annotations == nil:
			meta.Annotations = map[string]string{key: value}
		default:
			meta.Annotations[key] = value
		}
	}
}

// Patch is Resource.Patch, on an object of this version.
func (v *Version) Patch(ctx context.Context, req *metav1.PatchRequest) (Result, error) {
	opts := req.GetOptions()
	if err := checkOptions(opts); err != nil {
		return Result{}, err
	}
	sub := Subresource(req.GetSubresource())
	switch {
	case sub != Main && (sub != Status || !v.Kind.HasStatus):
		return Result{}, apierr.BadRequest(fmt.Sprintf("%s has no subresource %q", v.Kind.Name, req.GetSubresource()))
	case req.GetType() == metav1.PatchType_PATCH_TYPE_APPLY:
		return v.apply(ctx, req, sub)
	case opts.GetForce():
		return Result{}, apierr.Invalid("", "", apierr.Violation{
			Field: "options.force", Message: "Forbidden: may not be specified for non-apply patch",
		})
	}
	patch, err := v.self.parsePatch(req, sub)
	if err != nil {
		return Result{}, err
	}
	return v.modify(ctx, req.GetNamespace(), req.GetName(), patchTries, func(old, oldHere Object, entry storage.Entry) (Result, error) {
		next, err := v.self.patched(oldHere, patch)
		if err != nil {
			return Result{}, err
		}
		return v.replace(ctx, old, oldHere, next, entry, change{sub: sub, opts: opts, writer: v.writer(ctx, sub, opts)})
	})
}

// apply is Resource.apply.
func (v *Version) apply(ctx context.Context, req *metav1.PatchRequest, sub Subresource) (Result, error) {
	opts := req.GetOptions()
	if opts.GetFieldManager() == "" {
		return Result{}, apierr.Invalid("", "", apierr.Violation{
			Field: "options.fieldManager", Message: "Required value: is required for apply patch",
		})
	}
	config, version, err := v.self.config(req)
	if err != nil {
		return Result{}, err
	}
	writer := v.writer(ctx, sub, opts)
	writer.APIVersion = version
	for try := 1; ; try++ {
		result, err := v.modify(ctx, req.GetNamespace(), req.GetName(), patchTries, func(old, oldHere Object, entry storage.Entry) (Result, error) {
			stored, err := v.stored.owners.Apply(old, config, writer, opts.GetForce(), time.Now())
			if err != nil {
				return Result{}, err
			}
			next, err := v.fromStored(stored)
			if err != nil {
				return Result{}, err
			}
			return v.replace(ctx, old, oldHere, next, entry, change{sub: sub, opts: opts, writer: writer, applied: true})
		})
		if !apierr.IsNotFound(err) || sub != Main {
			return result, err
		}
		result, err = v.applyNew(ctx, config, writer, opts)
		if apierr.IsAlreadyExists(err) && try < patchTries {
			continue
		}
		return v.result(result, err)
	}
}

func (v *Version) applyNew(ctx context.Context, config Object, writer ownership.Writer, opts *metav1.WriteOptions) (Result, error) {
	if err := v.self.absent(config.GetMetadata()); err != nil {
		return Result{}, err
	}
	stored, err := v.stored.owners.Apply(nil, config, writer, opts.GetForce(), time.Now())
	if err != nil {
		return Result{}, err
	}
	obj, err := v.fromStored(stored)
	if err != nil {
		return Result{}, err
	}
	warnings := v.self.schema.Warnings(obj)
	if stored, err = v.checkNew(obj); err != nil {
		return Result{}, err
	}
	ctx, span := v.stored.root(ctx, stored.GetMetadata(), opts.GetDryRun())
	defer span.End()
	result, err := v.stored.createOwned(ctx, stored, opts, func(time.Time) error { return nil })
	result.Warnings = warnings
	return result, err
}
