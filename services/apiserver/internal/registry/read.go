package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/telemetry"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
)

const (
	// chunkBytes bounds a List chunk and a Watch response, unless a single object is larger. It leaves room below 1 MiB.
	chunkBytes = 960 << 10
	// pageEntries is how many entries are read from the store at a time.
	pageEntries = 500
	// retryLarge is when a reader who is ahead of the store should come again.
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
	entry, found, revision, err := r.registry.store.Get(ctx, key)
	if err != nil {
		return Result{}, r.storeError(err, req.GetNamespace(), req.GetName())
	}
	if least > revision {
		return Result{}, tooLarge(least, revision)
	}
	if !found {
		return Result{}, r.notFound(req.GetNamespace(), req.GetName())
	}
	payload, err := envelope.Open(entry.Value)
	if err != nil {
		return Result{}, r.corrupt(key, err)
	}
	return Result{Payload: payload, Revision: entry.Revision}, nil
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

func (r *Resource) decode(entry storage.Entry) (Object, error) {
	obj := r.New()
	if err := envelope.Decode(entry.Value, entry.Revision, obj); err != nil {
		return nil, r.corrupt(entry.Key, err)
	}
	return obj, nil
}

// token is a continue token, Kubernetes' shape.
type token struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	Start    string `json:"start"` // relative to the prefix of the list
}

const tokenVersion = "meta.k8s.io/v1"

// position of a list: where in history, and from which key.
type position struct {
	revision int64 // 0 for now
	least    int64 // the snapshot must not be older
	from     string
}

// List sends one consistent snapshot in chunks {metadata = 1; items = 2}; the last chunk's metadata is complete.
func (r *Resource) List(ctx context.Context, req *metav1.ListRequest, send func([]byte) error) error {
	filter, err := r.filter(req.GetNamespace(), req.GetLabelSelector(), req.GetFieldSelector())
	if err != nil {
		return err
	}
	prefix := r.scope(req.GetNamespace())
	pos, err := r.position(req, prefix)
	if err != nil {
		return err
	}
	var chunk []byte
	var left int64 // of the limit
	if left = req.GetLimit(); left < 0 {
		return apierr.BadRequest("limit must not be negative")
	}
	meta := &metav1.ListMeta{}
	for {
		limit := int64(pageEntries)
		if left > 0 && filter.all() {
			limit = min(limit, left)
		}
		page, err := r.registry.store.List(ctx, prefix, storage.ListOptions{Revision: pos.revision, From: pos.from, Limit: limit})
		if err != nil {
			return r.listError(err, req.GetContinue() != "")
		}
		if pos.revision == 0 {
			if page.Revision < pos.least {
				return tooLarge(pos.least, page.Revision)
			}
			pos.revision = page.Revision
			meta.ResourceVersion = strconv.FormatInt(page.Revision, 10)
		} else {
			meta.ResourceVersion = strconv.FormatInt(pos.revision, 10)
		}
		for i, entry := range page.Entries {
			payload, err := envelope.Open(entry.Value)
			if err != nil {
				return r.corrupt(entry.Key, err)
			}
			if ok, err := filter.matchEntry(entry.Key, payload); err != nil {
				return r.corrupt(entry.Key, err)
			} else if !ok {
				continue
			}
			size := envelope.Size(payload, entry.Revision)
			if len(chunk) > 0 && len(chunk)+size > chunkBytes {
				if err := send(closeChunk(chunk, meta)); err != nil {
					return err
				}
				chunk = nil
			}
			chunk = protowire.AppendTag(chunk, 2, protowire.BytesType)
			chunk = protowire.AppendVarint(chunk, uint64(size))
			chunk = envelope.Append(chunk, payload, entry.Revision)
			if left--; left == 0 {
				// The limit is reached; a token is due only if something may follow.
				if after := int64(len(page.Entries) - i - 1); page.More || after > 0 {
					meta.Continue = encodeToken(pos.revision, strings.TrimPrefix(entry.Key, prefix)+"\x00")
					if filter.all() {
						meta.RemainingItemCount = proto.Int64(page.Remaining + after)
					}
				}
				return send(closeChunk(chunk, meta))
			}
		}
		if !page.More {
			return send(closeChunk(chunk, meta))
		}
		pos.from = page.Entries[len(page.Entries)-1].Key + "\x00"
	}
}

func closeChunk(chunk []byte, meta *metav1.ListMeta) []byte {
	size := proto.Size(meta)
	chunk = protowire.AppendTag(chunk, 1, protowire.BytesType)
	chunk = protowire.AppendVarint(chunk, uint64(size))
	// A ListMeta of strings that are valid UTF-8 always marshals.
	chunk, _ = proto.MarshalOptions{}.MarshalAppend(chunk, meta)
	return chunk
}

// position reads resourceVersion, resourceVersionMatch and continue as Kubernetes documents them.
func (r *Resource) position(req *metav1.ListRequest, prefix string) (position, error) {
	revision, err := parseRevision(req.GetResourceVersion())
	if err != nil {
		return position{}, err
	}
	match := req.GetResourceVersionMatch()
	if req.GetContinue() != "" {
		if match != "" {
			return position{}, apierr.BadRequest("resourceVersionMatch is forbidden with continue")
		}
		if revision != 0 {
			return position{}, apierr.BadRequest("resourceVersion must be empty or 0 with continue")
		}
		t, err := decodeToken(req.GetContinue())
		if err != nil {
			return position{}, err
		}
		return position{revision: t.Revision, from: prefix + t.Start}, nil
	}
	switch match {
	case "":
		// Kubernetes' oldest clients mean exactly N when they also give a limit.
		if revision > 0 && req.GetLimit() > 0 {
			return position{revision: revision}, nil
		}
		return position{least: revision}, nil
	case "NotOlderThan":
		if req.GetResourceVersion() == "" {
			return position{}, apierr.BadRequest("resourceVersionMatch is forbidden unless resourceVersion is given")
		}
		return position{least: revision}, nil
	case "Exact":
		if revision == 0 {
			return position{}, apierr.BadRequest("resourceVersionMatch Exact needs a resourceVersion other than 0")
		}
		return position{revision: revision}, nil
	default:
		return position{}, apierr.Invalid("", "", apierr.Violation{
			Field:   "resourceVersionMatch",
			Message: fmt.Sprintf("Unsupported value: %q: supported values: \"Exact\", \"NotOlderThan\"", match),
		})
	}
}

func encodeToken(revision int64, start string) string {
	// Strings and an integer always marshal.
	raw, _ := json.Marshal(token{Version: tokenVersion, Revision: revision, Start: start})
	return base64.RawURLEncoding.EncodeToString(raw)
}

func decodeToken(s string) (token, error) {
	var t token
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil || t.Version != tokenVersion || t.Revision <= 0 || t.Start == "" || strings.HasPrefix(t.Start, "/") {
		return token{}, apierr.BadRequest("continue is not a token that a list returned")
	}
	return t, nil
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

func (r *Resource) listError(err error, paging bool) error {
	if errors.Is(err, storage.ErrCompacted) {
		if paging {
			return apierr.Expired("The provided continue parameter is too old: list again from the start")
		}
		return apierr.Expired("The resourceVersion for the provided list is too old")
	}
	return r.storeError(err, "", "")
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

func (r *Resource) corrupt(key string, err error) error {
	r.registry.logger.Error("stored bytes are not an object", telemetry.KeyKey, key, telemetry.KeyError, err)
	return &apierr.Error{
		Reason: apierr.ReasonInternal, Kind: r.Kind.Name,
		Message: fmt.Sprintf("what is stored at %s is not a %s", key, r.Kind.Name), Err: err,
	}
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
