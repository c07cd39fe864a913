package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client/apierr"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/watchcache"
)

// Delete removes an object, or begins its end: while finalizers or a grace period hold it, it stays with a deletion
// timestamp. The result is its last state.
func (r *Resource) Delete(ctx context.Context, namespace, name string, opts *metav1.DeleteOptions) (Result, error) {
	switch opts.GetPropagationPolicy() {
	case "", "Background", "Foreground", "Orphan":
	default:
		return Result{}, apierr.Invalid(r.Kind.Name, r.Kind.Key(namespace, name), apierr.Violation{
			Field: "options.propagationPolicy",
			Message: fmt.Sprintf("Unsupported value: %q: supported values: \"Background\", \"Foreground\", \"Orphan\"",
				opts.GetPropagationPolicy()),
		})
	}
	for try := 1; ; try++ {
		obj, entry, err := r.load(ctx, namespace, name)
		var result Result
		switch {
		case errors.Is(err, errUnreadable):
			result, err = r.deleteUnreadable(ctx, namespace, name, entry, opts)
		case err == nil:
			result, err = r.deleteOnce(ctx, obj, entry, opts)
		}
		if errors.Is(err, errMoved) {
			if try < writeTries {
				continue
			}
			return Result{}, apierr.Conflict(r.Kind.Name, r.Kind.Key(namespace, name), "")
		}
		return result, err
	}
}

func (r *Resource) deleteOnce(ctx context.Context, obj Object, entry storage.Entry, opts *metav1.DeleteOptions) (Result, error) {
	if pre := opts.GetPreconditions(); pre != nil {
		asked := &metav1.ObjectMeta{Uid: pre.GetUid(), ResourceVersion: pre.GetResourceVersion()}
		if err := r.checkVersions(asked, obj.GetMetadata(), entry.Revision); err != nil {
			return Result{}, err
		}
	}
	if err := r.admit(ctx, Write{Operation: Delete, Old: obj}); err != nil {
		return Result{}, err
	}
	last, err := envelope.Open(entry.Value)
	if err != nil {
		return Result{}, r.corrupt(entry.Key, err)
	}
	next, _ := proto.Clone(obj).(Object)
	r.markDeleted(next, opts)
	if r.releasable(next) {
		if opts.GetDryRun() {
			return Result{Payload: last, Revision: entry.Revision}, nil
		}
		revision, err := r.commitOne(ctx, storage.Op{Key: entry.Key}, entry.Revision)
		if err != nil {
			return Result{}, err
		}
		return Result{Payload: last, Revision: revision}, nil
	}
	next.GetMetadata().ResourceVersion, obj.GetMetadata().ResourceVersion = "", ""
	if proto.Equal(next, obj) {
		return Result{Payload: last, Revision: entry.Revision}, nil
	}
	stored, err := r.encode(next)
	if err != nil || opts.GetDryRun() {
		return Result{Payload: stored[min(2, len(stored)):], Revision: entry.Revision}, err
	}
	revision, err := r.commitOne(ctx, storage.Op{Key: entry.Key, Value: stored}, entry.Revision)
	if err != nil {
		return Result{}, err
	}
	return Result{Payload: stored[2:], Revision: revision}, nil
}

// markDeleted puts the marks of a deletion on an object. A deletion that has begun can only be brought forward.
func (r *Resource) markDeleted(obj Object, opts *metav1.DeleteOptions) {
	meta := obj.GetMetadata()
	var grace int64
	if r.strategy.grace != nil {
		grace = r.strategy.grace(obj, opts)
	}
	switch {
	case meta.GetDeletionTimestamp() == nil:
		meta.DeletionTimestamp = timestamppb.New(time.Now().Truncate(time.Second).Add(time.Duration(grace) * time.Second))
		meta.DeletionGracePeriodSeconds = proto.Int64(grace)
		if !r.Kind.Options.GetHasNoGeneration() {
			meta.Generation++
		}
	case grace < meta.GetDeletionGracePeriodSeconds():
		sooner := time.Duration(meta.GetDeletionGracePeriodSeconds()-grace) * time.Second
		meta.DeletionTimestamp = timestamppb.New(meta.GetDeletionTimestamp().AsTime().Add(-sooner))
		meta.DeletionGracePeriodSeconds = proto.Int64(grace)
	}
	propagate(meta, opts.GetPropagationPolicy())
	if r.strategy.prepareDelete != nil {
		r.strategy.prepareDelete(obj)
	}
}

// propagate puts the finalizer of the policy on an object and takes that of another one off: who deletes again may think
// better of it. Who says nothing leaves things as they are.
func propagate(meta *metav1.ObjectMeta, policy string) {
	if policy == "" {
		return
	}
	meta.Finalizers = slices.DeleteFunc(meta.Finalizers, func(f string) bool {
		return f == finalizerForeground && policy != "Foreground" || f == finalizerOrphan && policy != "Orphan"
	})
	switch policy {
	case "Foreground":
		addFinalizer(meta, finalizerForeground)
	case "Orphan":
		addFinalizer(meta, finalizerOrphan)
	}
}

func addFinalizer(meta *metav1.ObjectMeta, name string) {
	if !slices.Contains(meta.GetFinalizers(), name) {
		meta.Finalizers = append(meta.Finalizers, name)
	}
}

// DeleteCollection deletes all objects that match, each on its own, and returns how many.
func (r *Resource) DeleteCollection(ctx context.Context, req *metav1.DeleteCollectionRequest) (int, error) {
	if r.Kind.Namespaced && req.GetNamespace() == "" {
		return 0, apierr.BadRequest(fmt.Sprintf("namespace to delete %s in is missing", r.Kind.Plural))
	}
	filter, err := r.filter(req.GetNamespace(), req.GetLabelSelector(), req.GetFieldSelector())
	if err != nil {
		return 0, err
	}
	pos := position{mode: mostRecent}
	v, err := r.view(ctx, pos)
	if err != nil {
		return 0, err
	}
	deleted := 0
	prefix := r.scope(req.GetNamespace())
	_, err = v.each(ctx, prefix, "", 0, func(key string, stored []byte, _ int64) (bool, error) {
		payload, err := envelope.Open(stored)
		if err != nil {
			return true, nil // nothing says whether it matches
		}
		if ok, err := filter.matchEntry(key, payload); err != nil {
			return false, r.corrupt(key, err)
		} else if !ok {
			return true, nil
		}
		namespace, name := watchcache.SplitKey(key)
		_, err = r.Delete(ctx, namespace, name, req.GetOptions())
		switch {
		case apierr.IsNotFound(err): // somebody else was faster
		case err != nil:
			return false, fmt.Errorf("after %d deletions: %w", deleted, err)
		default:
			deleted++
		}
		return true, nil
	})
	if err != nil {
		return deleted, r.listError(err, &metav1.ListRequest{}, prefix, pos)
	}
	return deleted, nil
}
