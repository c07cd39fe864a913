package registry

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/watchcache"
)

const (
	// maxWait is how long a reader who is ahead of the cache waits for it, and retryLarge when it should come again.
	maxWait    = 3 * time.Second
	retryLarge = time.Second
)

// Result is an object as stored, to be sent without being decoded.
type Result struct {
	Payload  []byte
	Revision int64
	Warnings []string
}

// Bytes returns the object with its resource_version.
func (r Result) Bytes() []byte {
	return envelope.Append(make([]byte, 0, envelope.Size(r.Payload, r.Revision)), r.Payload, r.Revision)
}

// Get returns one object as it is now.
func (r *Resource) Get(ctx context.Context, req *metav1.GetRequest) (Result, error) {
	key, ok := r.key(req.GetNamespace(), req.GetName())
	if !ok {
		return Result{}, r.badName(req.GetNamespace(), req.GetName())
	}
	least, err := parseRevision(req.GetResourceVersion())
	if err != nil {
		return Result{}, err
	}
	var stored []byte
	var revision int64
	if req.GetResourceVersion() == "" {
		// The most recent: a read of the key costs the store no more than one of its revision would.
		entry, found, _, err := r.registry.store.Get(ctx, key)
		if err != nil {
			return Result{}, r.storeError(err, req.GetNamespace(), req.GetName())
		}
		if !found {
			return Result{}, r.notFound(req.GetNamespace(), req.GetName())
		}
		stored, revision = entry.Value, entry.Revision
	} else {
		snapshot, err := r.notOlderThan(ctx, least)
		if err != nil {
			return Result{}, err
		}
		object, found := snapshot.Get(key)
		if reason, spoilt := r.registry.cache.Unreadable(key)[key]; spoilt && !found {
			return Result{}, r.corrupt(key, reason)
		}
		if !found {
			return Result{}, r.notFound(req.GetNamespace(), req.GetName())
		}
		stored, revision = object.Stored(), object.Revision
	}
	payload, err := envelope.Open(stored)
	if err != nil {
		return Result{}, r.corrupt(key, err)
	}
	return Result{Payload: payload, Revision: revision}, nil
}

// notOlderThan returns the cache's state once it has reached a revision, or says that it has not in good time.
func (r *Resource) notOlderThan(ctx context.Context, revision int64) (*watchcache.Snapshot, error) {
	cache := r.registry.cache
	if err := cache.Wait(ctx, revision, maxWait); err != nil {
		if errors.Is(err, watchcache.ErrBehind) {
			return nil, tooLarge(revision, cache.Position())
		}
		return nil, r.storeError(err, "", "")
	}
	snapshot, err := cache.Current(ctx, r.prefix)
	if err != nil {
		return nil, r.storeError(err, "", "")
	}
	return snapshot, nil
}

// load returns an object decoded, and its revision.
func (r *Resource) load(ctx context.Context, namespace, name string) (Object, storage.Entry, error) {
	key, ok := r.key(namespace, name)
	if !ok {
		return nil, storage.Entry{}, r.badName(namespace, name)
	}
	entry, found, _, err := r.registry.store.Get(ctx, key)
	if err != nil {
		return nil, storage.Entry{}, r.storeError(err, namespace, name)
	}
	if !found {
		return nil, storage.Entry{}, r.notFound(namespace, name)
	}
	obj, err := r.decode(entry)
	return obj, entry, err
}

// loadCached is load from the watch cache, which may have an old state: only what is committed under its revision is
// certain. Fresh tells that the store was asked, because the cache has no such object.
func (r *Resource) loadCached(ctx context.Context, namespace, name string) (obj Object, entry storage.Entry, fresh bool, err error) {
	if key, ok := r.key(namespace, name); ok {
		if entry, ok := r.cached(key); ok {
			if obj, err := r.decode(entry); err == nil {
				return obj, entry, false, nil
			}
		}
	}
	obj, entry, err = r.load(ctx, namespace, name)
	return obj, entry, true, err
}

// cached is an object as the watch cache has it.
func (r *Resource) cached(key string) (storage.Entry, bool) {
	o, ok := r.registry.cache.Find(r.prefix, key)
	if !ok {
		return storage.Entry{}, false
	}
	return storage.Entry{Key: o.Key, Value: o.Stored(), Revision: o.Revision}, true
}

func (r *Resource) decode(entry storage.Entry) (Object, error) {
	obj := r.New()
	if err := envelope.Decode(entry.Value, entry.Revision, obj); err != nil {
		return nil, r.corrupt(entry.Key, err)
	}
	return obj, nil
}

func parseRevision(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, apierr.Invalid("", "", apierr.Violation{
			Field: "resourceVersion", Message: fmt.Sprintf("Invalid value: %q: must be a decimal number", s),
		})
	}
	return n, nil
}

func tooLarge(asked, current int64) error {
	return &apierr.Error{
		Reason:     apierr.ReasonTimeout,
		Message:    fmt.Sprintf("Too large resource version: %d, current: %d", asked, current),
		RetryAfter: retryLarge,
	}
}

// WayOutOfSpace is what an operator does about a store that is full.
const WayOutOfSpace = "`trireme defragment` makes room; if that is not enough, delete objects or raise the quota " +
	"(--etcd-quota of the gateway, --quota-backend-bytes of an etcd that runs by itself)"

// storeError gives a failure of the store the reason that callers see.
func (r *Resource) storeError(err error, namespace, name string) error {
	key := r.Kind.Key(namespace, name)
	e := &apierr.Error{Reason: apierr.ReasonInternal, Kind: r.Kind.Name, Key: key, Err: err}
	var full *storage.NoSpaceError
	switch {
	case errors.As(err, &full):
		return &apierr.Error{Reason: apierr.ReasonUnavailable, Message: full.Error() + " and takes no writes: " + WayOutOfSpace}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, storage.ErrUnavailable):
		e.Reason, e.Message = apierr.ReasonUnavailable, "the store does not answer"
	case errors.Is(err, storage.ErrCompacted):
		return apierr.Expired("the revision asked for has been compacted")
	case errors.Is(err, storage.ErrFutureRevision):
		return &apierr.Error{Reason: apierr.ReasonTimeout, Message: "Too large resource version", RetryAfter: retryLarge}
	case errors.Is(err, storage.ErrTooLarge):
		e.Reason, e.Message = apierr.ReasonInvalid, "the write is larger than the store accepts"
	default:
		e.Message = "the store failed"
	}
	return e
}

func (r *Resource) notFound(namespace, name string) error {
	return apierr.NotFound(r.Kind.Name, r.Kind.Key(namespace, name))
}

// badName explains why no object can have this namespace and name.
func (r *Resource) badName(namespace, name string) error {
	switch {
	case name == "":
		return apierr.BadRequest(fmt.Sprintf("name of the %s is missing", r.Kind.Name))
	case r.Kind.Namespaced && namespace == "":
		return apierr.BadRequest(fmt.Sprintf("namespace of %s %q is missing", r.Kind.Name, name))
	case !r.Kind.Namespaced && namespace != "":
		return apierr.BadRequest(fmt.Sprintf("%s %q: the kind has no namespaces", r.Kind.Name, name))
	}
	return r.notFound(namespace, name)
}

func (r *Resource) decodePayload(payload []byte, revision int64) (Object, error) {
	obj := r.New()
	if err := proto.Unmarshal(payload, obj); err != nil {
		return nil, fmt.Errorf("stored value: %w", err)
	}
	ensureMeta(obj).ResourceVersion = strconv.FormatInt(revision, 10)
	return obj, nil
}

// Load returns one object decoded, as it is now.
func (r *Resource) Load(ctx context.Context, namespace, name string) (Object, error) {
	obj, _, err := r.load(ctx, namespace, name)
	return obj, err
}
