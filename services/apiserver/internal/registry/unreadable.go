package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/telemetry"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/watchcache"
)

// errUnreadable is in errors about stored values that are no objects.
var errUnreadable = errors.New("stored value is no object")

// corrupt is the error of who asks for what is no object.
func (r *Resource) corrupt(key string, err error) error {
	r.registry.logger.Error("stored bytes are not an object", telemetry.KeyKey, key, telemetry.KeyError, err)
	return &apierr.Error{
		Reason: apierr.ReasonInternal, Kind: r.Kind.Name,
		Message: fmt.Sprintf("what is stored at %s is not a %s: %v; deleting it removes it", key, r.Kind.Name, err),
		Err:     fmt.Errorf("%w: %w", errUnreadable, err),
	}
}

// Unreadable says in a sentence each what lists and watches of a namespace leave out because it is no object.
func (r *Resource) Unreadable(namespace string) []string {
	found := r.registry.cache.Unreadable(r.scope(namespace))
	var out []string
	for _, key := range slices.Sorted(maps.Keys(found)) {
		r.registry.logger.Error("stored bytes are not an object", telemetry.KeyKey, key, telemetry.KeyError, found[key])
		namespace, name := watchcache.SplitKey(key)
		out = append(out, fmt.Sprintf("%s %s is left out: what is stored at %s is not a %s: %v", r.Kind.Name, r.Kind.Key(namespace, name),
			key, r.Kind.Name, found[key]))
		if len(out) == maxUnreadable && len(found) > maxUnreadable {
			return append(out, fmt.Sprintf("and %d more", len(found)-maxUnreadable))
		}
	}
	return out
}

// maxUnreadable bounds how many are named: the sentences travel in trailers.
const maxUnreadable = 10

// Unreadable is Resource.Unreadable.
func (v *Version) Unreadable(namespace string) []string { return v.stored.Unreadable(namespace) }

// deleteUnreadable removes what is no object. Nothing is known of finalizers or a grace period, so nothing holds it; what
// the caller demands of its identity cannot be true.
func (r *Resource) deleteUnreadable(ctx context.Context, namespace, name string, entry storage.Entry, opts *metav1.DeleteOptions) (Result, error) {
	last := r.New()
	meta := ensureMeta(last)
	meta.Namespace, meta.Name = namespace, name
	if pre := opts.GetPreconditions(); pre != nil {
		asked := &metav1.ObjectMeta{Uid: pre.GetUid(), ResourceVersion: pre.GetResourceVersion()}
		if err := r.checkVersions(asked, meta, entry.Revision); err != nil {
			return Result{}, err
		}
	}
	if err := r.admit(ctx, Write{Operation: Delete, Old: last}); err != nil {
		return Result{}, err
	}
	stored, err := envelope.Encode(last)
	if err != nil {
		return Result{}, err
	}
	result := Result{Payload: stored[2:], Revision: entry.Revision, Warnings: []string{fmt.Sprintf(
		"what was stored at %s was not a %s: it was removed whatever held it", entry.Key, r.Kind.Name)}}
	if opts.GetDryRun() {
		return result, nil
	}
	result.Revision, err = r.commitOne(ctx, storage.Op{Key: entry.Key}, entry.Revision)
	return result, err
}
