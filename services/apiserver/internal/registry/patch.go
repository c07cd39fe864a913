package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"trireme.dev/client/apierr"
	"trireme.dev/client/manifest"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	maxPatchOps   = 10000
	maxPatchBytes = 3 << 20
)

// Patch changes part of an object. It is tried again when another write came between, unless the patch itself names a
// resourceVersion.
func (r *Resource) Patch(ctx context.Context, req *metav1.PatchRequest) (Result, error) {
	if err := checkOptions(req.GetOptions()); err != nil {
		return Result{}, err
	}
	sub := Subresource(req.GetSubresource())
	if sub != Main && (sub != Status || !r.Kind.HasStatus) {
		return Result{}, apierr.BadRequest(fmt.Sprintf("%s has no subresource %q", r.Kind.Name, req.GetSubresource()))
	}
	apply, err := parsePatch(req)
	if err != nil {
		return Result{}, err
	}
	for try := 1; ; try++ {
		old, entry, err := r.load(ctx, req.GetNamespace(), req.GetName())
		if err != nil {
			return Result{}, err
		}
		next, err := r.patched(old, apply)
		if err != nil {
			return Result{}, err
		}
		warnings := r.newWarnings(next, old)
		result, err := r.replace(ctx, old, next, entry, sub, req.GetOptions())
		if errors.Is(err, errMoved) {
			if try < patchTries {
				continue
			}
			return Result{}, apierr.Conflict(r.Kind.Name, r.Kind.Key(req.GetNamespace(), req.GetName()), "")
		}
		result.Warnings = warnings
		return result, err
	}
}

// newWarnings are those that the patch brought in: an old object is not warned about again.
func (r *Resource) newWarnings(next, old Object) []string {
	had := map[string]bool{}
	for _, w := range r.schema.Warnings(old) {
		had[w] = true
	}
	var out []string
	for _, w := range r.schema.Warnings(next) {
		if !had[w] {
			out = append(out, w)
		}
	}
	return out
}

func parsePatch(req *metav1.PatchRequest) (func([]byte) ([]byte, error), error) {
	patch := req.GetPatch()
	if len(patch) > maxPatchBytes {
		return nil, apierr.BadRequest(fmt.Sprintf("patch has %d bytes, at most %d are allowed", len(patch), maxPatchBytes))
	}
	switch req.GetType() {
	case metav1.PatchType_PATCH_TYPE_JSON:
		ops, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, apierr.BadRequest("patch is not a JSON patch: " + err.Error())
		}
		if len(ops) > maxPatchOps {
			return nil, apierr.BadRequest(fmt.Sprintf("patch has %d operations, at most %d are allowed", len(ops), maxPatchOps))
		}
		options := jsonpatch.NewApplyOptions()
		options.AccumulatedCopySizeLimit = maxPatchBytes
		return func(doc []byte) ([]byte, error) { return ops.ApplyWithOptions(doc, options) }, nil
	case metav1.PatchType_PATCH_TYPE_MERGE:
		var object map[string]json.RawMessage
		if err := json.Unmarshal(patch, &object); err != nil {
			return nil, apierr.BadRequest("patch is not a JSON object: " + err.Error())
		}
		return func(doc []byte) ([]byte, error) { return jsonpatch.MergePatch(doc, patch) }, nil
	default:
		return nil, apierr.Invalid("", "", apierr.Violation{
			Field:   "type",
			Message: fmt.Sprintf("Unsupported value: %q: supported values: \"PATCH_TYPE_JSON\", \"PATCH_TYPE_MERGE\"", req.GetType()),
		})
	}
}

// patched returns old with the patch applied, decoded again.
func (r *Resource) patched(old Object, apply func([]byte) ([]byte, error)) (Object, error) {
	meta := old.GetMetadata()
	key := r.Kind.Key(meta.GetNamespace(), meta.GetName())
	doc, err := manifest.ToJSON(old)
	if err != nil {
		return nil, fmt.Errorf("%s %s as JSON: %w", r.Kind.Name, key, err)
	}
	doc, err = apply(doc)
	if err != nil {
		return nil, &apierr.Error{
			Reason: apierr.ReasonInvalid, Kind: r.Kind.Name, Key: key,
			Message: fmt.Sprintf("the patch does not apply to %s %q", r.Kind.Name, key), Err: err,
		}
	}
	next := r.New()
	if err := manifest.FromJSON(doc, next); err != nil {
		return nil, &apierr.Error{
			Reason: apierr.ReasonInvalid, Kind: r.Kind.Name, Key: key,
			Message: fmt.Sprintf("the patch makes %s %q invalid", r.Kind.Name, key), Err: err,
		}
	}
	if next.GetMetadata() == nil {
		return nil, apierr.BadRequest("the patch removes metadata")
	}
	if m := next.GetMetadata(); m.GetName() != meta.GetName() || m.GetNamespace() != meta.GetNamespace() {
		return nil, r.invalid(meta, apierr.Violation{
			Field: "metadata.name", Message: "Invalid value: a patch may change neither name nor namespace",
		})
	}
	return next, nil
}
