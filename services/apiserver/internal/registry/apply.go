package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"trireme.dev/client/apierr"
	"trireme.dev/client/manifest"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/ownership"
	"trireme.dev/services/apiserver/internal/schema"
)

// apply brings an object to what a manager wants of it, and creates it where it does not exist. See package ownership
// for what becomes of fields that others own and of those that the manager no longer names.
func (r *Resource) apply(ctx context.Context, req *metav1.PatchRequest, sub Subresource) (Result, error) {
	opts := req.GetOptions()
	if opts.GetFieldManager() == "" {
		return Result{}, apierr.Invalid("", "", apierr.Violation{
			Field: "options.fieldManager", Message: "Required value: is required for apply patch",
		})
	}
	config, version, err := r.config(req)
	if err != nil {
		return Result{}, err
	}
	writer := r.writer(ctx, string(sub), opts)
	writer.APIVersion = version
	meta := config.GetMetadata()
	key := r.Kind.Key(meta.GetNamespace(), meta.GetName())
	for try := 1; ; try++ {
		old, entry, err := r.load(ctx, meta.GetNamespace(), meta.GetName())
		if apierr.IsNotFound(err) && sub == Main {
			result, err := r.applyNew(ctx, config, writer, opts)
			if apierr.IsAlreadyExists(err) && try < patchTries {
				continue
			}
			return result, err
		}
		if err != nil {
			return Result{}, err
		}
		next, err := r.owners.Apply(old, config, writer, opts.GetForce(), time.Now())
		if err != nil {
			return Result{}, err
		}
		warnings := r.newWarnings(next, old)
		result, err := r.replace(ctx, old, next, entry, change{sub: sub, opts: opts, writer: writer, applied: true})
		if errors.Is(err, errMoved) {
			if try < patchTries {
				continue
			}
			return Result{}, apierr.Conflict(r.Kind.Name, key, "")
		}
		result.Warnings = warnings
		return result, err
	}
}

// applyNew creates what is applied. Where the manager believes that there is an object, it is told that there is none.
func (r *Resource) applyNew(ctx context.Context, config Object, writer ownership.Writer, opts *metav1.WriteOptions) (Result, error) {
	if err := r.absent(config.GetMetadata()); err != nil {
		return Result{}, err
	}
	obj, err := r.owners.Apply(nil, config, writer, opts.GetForce(), time.Now())
	if err != nil {
		return Result{}, err
	}
	ctx, span := r.root(ctx, obj.GetMetadata(), opts.GetDryRun())
	defer span.End()
	return r.createOwned(ctx, obj, opts, func(time.Time) error { return nil })
}

// absent refuses an apply that believes in an object where there is none.
func (r *Resource) absent(meta *metav1.ObjectMeta) error {
	key := r.Kind.Key(meta.GetNamespace(), meta.GetName())
	for what, asked := range map[string]string{"resourceVersion": meta.GetResourceVersion(), "uid": meta.GetUid()} {
		if asked != "" {
			return apierr.Conflict(r.Kind.Name, key, fmt.Sprintf(
				"%s %q does not exist, while the applied object has %s %s", r.Kind.Name, key, what, asked))
		}
	}
	return nil
}

// config reads the patch of an apply: what a manager wants, and the apiVersion that it says it in.
func (r *Resource) config(req *metav1.PatchRequest) (Object, string, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if len(req.GetPatch()) > maxPatchBytes {
		return nil, "", apierr.BadRequest(fmt.Sprintf("patch has %d bytes, at most %d are allowed", len(req.GetPatch()), maxPatchBytes))
	}
	if depth := depthOf(req.GetPatch()); depth > maxPatchDepth {
		return nil, "", apierr.BadRequest(fmt.Sprintf("patch is nested %d deep, at most %d is allowed", depth, maxPatchDepth))
	}
	if err := json.Unmarshal(req.GetPatch(), &head); err != nil {
		return nil, "", apierr.BadRequest("patch is not a JSON object: " + err.Error())
	}
	key := r.Kind.Key(req.GetNamespace(), req.GetName())
	if !slices.Contains(r.Kind.APIVersions, head.APIVersion) || head.Kind != r.Kind.Name {
		return nil, "", apierr.BadRequest(fmt.Sprintf("patch is of apiVersion %q and kind %q; want %s %s",
			head.APIVersion, head.Kind, r.Kind.APIVersion(), r.Kind.Name))
	}
	config := r.New()
	if err := manifest.FromJSON(req.GetPatch(), config); err != nil {
		return nil, "", &apierr.Error{
			Reason: apierr.ReasonInvalid, Kind: r.Kind.Name, Key: key,
			Message: fmt.Sprintf("the patch is no valid %s", r.Kind.Name), Err: err,
		}
	}
	meta := ensureMeta(config)
	if meta.GetName() == "" {
		meta.Name = req.GetName()
	}
	if meta.GetNamespace() == "" {
		meta.Namespace = req.GetNamespace()
	}
	switch {
	case meta.GetName() != req.GetName() || meta.GetNamespace() != req.GetNamespace():
		return nil, "", apierr.BadRequest(fmt.Sprintf("the name of the object (%s) does not match the name of the request (%s)",
			r.Kind.Key(meta.GetNamespace(), meta.GetName()), key))
	case len(meta.GetManagedFields()) > 0:
		return nil, "", apierr.BadRequest("metadata.managedFields must be nil in an apply patch")
	}
	schema.MoveWriteOnly(config)
	return config, head.APIVersion, r.checkScope(meta)
}
