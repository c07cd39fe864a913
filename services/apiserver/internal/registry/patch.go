package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	"trireme.dev/client/manifest"
	"trireme.dev/client/strategic"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/storage"
)

const (
	maxPatchOps   = 10000
	maxPatchBytes = 3 << 20
	// maxPatchDepth is far more than any object nests: the work on a patch grows with its length times its depth.
	maxPatchDepth = 100
)

// Patch changes part of an object. It is tried again when another write came between, unless the patch itself names a
// resourceVersion.
func (r *Resource) Patch(ctx context.Context, req *metav1.PatchRequest) (Result, error) {
	if err := checkOptions(req.GetOptions()); err != nil {
		return Result{}, err
	}
	sub := Subresource(req.GetSubresource())
	switch {
	case sub == Main, sub == Status && r.Kind.HasStatus, sub == scaleName && r.Kind.Options.GetScalable():
	default:
		return Result{}, apierr.BadRequest(fmt.Sprintf("%s has no subresource %q", r.Kind.Name, req.GetSubresource()))
	}
	switch isApply := req.GetType() == metav1.PatchType_PATCH_TYPE_APPLY; {
	case isApply && sub == scaleName:
		return Result{}, apierr.BadRequest("a scale cannot be applied: patch it, or apply the object")
	case isApply:
		return r.apply(ctx, req, sub)
	case req.GetOptions().GetForce():
		return Result{}, apierr.Invalid("", "", apierr.Violation{
			Field: "options.force", Message: "Forbidden: may not be specified for non-apply patch",
		})
	}
	apply, err := r.parsePatch(req, sub)
	if err != nil {
		return Result{}, err
	}
	for try := 1; ; try++ {
		old, entry, err := r.load(ctx, req.GetNamespace(), req.GetName())
		if err != nil {
			return Result{}, err
		}
		result, err := r.patchOnce(ctx, old, entry, sub, apply, req.GetOptions())
		if errors.Is(err, errMoved) {
			if try < patchTries {
				continue
			}
			return Result{}, apierr.Conflict(r.Kind.Name, r.Kind.Key(req.GetNamespace(), req.GetName()), "")
		}
		return result, err
	}
}

func (r *Resource) patchOnce(
	ctx context.Context, old Object, entry storage.Entry, sub Subresource, apply func([]byte) ([]byte, error), opts *metav1.WriteOptions,
) (Result, error) {
	if sub == scaleName {
		return r.patchScale(ctx, old, entry, apply, opts)
	}
	next, err := r.patched(old, apply)
	if err != nil {
		return Result{}, err
	}
	warnings := r.newWarnings(next, old)
	result, err := r.replace(ctx, old, next, entry, change{sub: sub, opts: opts, writer: r.writer(ctx, string(sub), opts)})
	result.Warnings = warnings
	return result, err
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

// parsePatch returns what turns the JSON of an object into that of the patched one.
func (r *Resource) parsePatch(req *metav1.PatchRequest, sub Subresource) (func([]byte) ([]byte, error), error) {
	patch := req.GetPatch()
	if len(patch) > maxPatchBytes {
		return nil, apierr.BadRequest(fmt.Sprintf("patch has %d bytes, at most %d are allowed", len(patch), maxPatchBytes))
	}
	if depth := depthOf(patch); depth > maxPatchDepth {
		return nil, apierr.BadRequest(fmt.Sprintf("patch is nested %d deep, at most %d is allowed", depth, maxPatchDepth))
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
	case metav1.PatchType_PATCH_TYPE_STRATEGIC_MERGE:
		var object map[string]json.RawMessage
		if err := json.Unmarshal(patch, &object); err != nil {
			return nil, apierr.BadRequest("patch is not a JSON object: " + err.Error())
		}
		d := r.Kind.Message.Descriptor()
		if sub == scaleName {
			d = (&metav1.Scale{}).ProtoReflect().Descriptor()
		}
		return func(doc []byte) ([]byte, error) { return strategic.Apply(d, doc, patch) }, nil
	default:
		return nil, apierr.Invalid("", "", apierr.Violation{
			Field: "type",
			Message: fmt.Sprintf("Unsupported value: %q: supported values: \"PATCH_TYPE_JSON\", \"PATCH_TYPE_MERGE\", "+
				"\"PATCH_TYPE_STRATEGIC_MERGE\", \"PATCH_TYPE_APPLY\"", req.GetType()),
		})
	}
}

// depthOf counts how deep the objects and lists of a JSON text nest.
func depthOf(text []byte) int {
	depth, deepest := 0, 0
	quoted, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped = c == '\\'
			quoted = c != '"'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

// patched returns old with the patch applied, decoded again.
func (r *Resource) patched(old Object, apply func([]byte) ([]byte, error)) (Object, error) {
	meta := old.GetMetadata()
	key := r.Kind.Key(meta.GetNamespace(), meta.GetName())
	doc, err := manifest.ToJSON(old)
	if err != nil {
		return nil, fmt.Errorf("%s %s as JSON: %w", r.Kind.Name, key, err)
	}
	next := r.New()
	if err := r.patchInto(next, key, doc, apply); err != nil {
		return nil, err
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

// patchInto applies a patch to a document and reads the result into a message.
func (r *Resource) patchInto(next proto.Message, key string, doc []byte, apply func([]byte) ([]byte, error)) error {
	wrong := func(format string, err error) error {
		return &apierr.Error{
			Reason: apierr.ReasonInvalid, Kind: r.Kind.Name, Key: key, Message: fmt.Sprintf(format, r.Kind.Name, key), Err: err,
		}
	}
	doc, err := apply(doc)
	if err != nil {
		return wrong("the patch does not apply to %s %q", err)
	}
	if err := manifest.FromJSON(doc, next); err != nil {
		return wrong("the patch makes %s %q invalid", err)
	}
	return nil
}
