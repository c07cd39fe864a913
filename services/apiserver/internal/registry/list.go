package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/watchcache"
)

const (
	// chunkBytes bounds a List chunk and a Watch response, unless a single object is larger. It leaves room below 1 MiB.
	chunkBytes = 960 << 10
	// pageEntries is how many entries are read from the store at a time, where the cache cannot answer.
	pageEntries = 500
)

// Send passes a message on, given in parts. It must not change them, nor hold them longer than the call.
type Send func(parts [][]byte) error

// token is a continue token, Kubernetes' shape with one field more.
type token struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`    // anyRevision for the present one
	Start    string `json:"start"` // relative to the prefix of the list
	List     uint32 `json:"l"`     // which list it belongs to
}

const (
	tokenVersion = "meta.k8s.io/v1"
	// anyRevision in a token goes on at the present revision: the pages before were of another one.
	anyRevision = -1
)

// position of a list: where in history, and from which key.
type position struct {
	mode     positionMode
	revision int64
	from     string
}

type positionMode int

const (
	mostRecent   positionMode = iota // nothing that was committed before is missing
	notOlderThan                     // the cache's state, at revision or later
	exactly                          // the state at revision
)

// List sends one consistent snapshot in chunks {metadata = 1; items = 2}; the last chunk's metadata is complete.
func (r *Resource) List(ctx context.Context, req *metav1.ListRequest, send Send) error {
	filter, err := r.filter(req.GetNamespace(), req.GetLabelSelector(), req.GetFieldSelector())
	if err != nil {
		return err
	}
	prefix := r.scope(req.GetNamespace())
	pos, err := r.position(req, prefix)
	if err != nil {
		return err
	}
	limit := req.GetLimit()
	switch {
	case limit < 0:
		return apierr.BadRequest("limit must not be negative")
	case req.GetResourceVersion() == "0" && req.GetContinue() == "":
		limit = 0 // as Kubernetes has it: whoever takes what the cache has takes it whole
	}
	v, err := r.view(ctx, pos)
	if err != nil {
		return err
	}
	out := &chunks{send: send, meta: &metav1.ListMeta{}}
	sent := int64(0)
	last := ""
	left, err := v.each(ctx, prefix, pos.from, limit, func(key string, stored []byte, revision int64) (bool, error) {
		if out.meta.ResourceVersion == "" {
			out.meta.ResourceVersion = strconv.FormatInt(v.revision, 10)
		}
		payload, err := envelope.Open(stored)
		if err != nil {
			return true, nil // told of by Unreadable
		}
		if ok, err := filter.matchEntry(key, payload); err != nil {
			return false, r.corrupt(key, err)
		} else if !ok {
			return true, nil
		}
		sent, last = sent+1, key
		return sent != limit, out.add(payload, revision)
	})
	if err != nil {
		return r.listError(err, req, prefix, pos)
	}
	out.meta.ResourceVersion = strconv.FormatInt(v.revision, 10)
	// The limit was reached; a token is due only if something may follow.
	if left > 0 {
		v.keep()
		out.meta.Continue = encodeToken(v.revision, strings.TrimPrefix(last, prefix)+"\x00", listID(req, prefix))
		if filter.all() {
			out.meta.RemainingItemCount = proto.Int64(left)
		}
	}
	return out.close()
}

// view is the state of a kind at one revision: a snapshot of the cache, or the store itself.
type view struct {
	resource *Resource
	snapshot *watchcache.Snapshot // nil for the store
	revision int64                // 0 until the store's first page is read
}

// view finds the state that a list is to show.
func (r *Resource) view(ctx context.Context, pos position) (*view, error) {
	cache := r.registry.cache
	var snapshot *watchcache.Snapshot
	var err error
	switch pos.mode {
	case mostRecent:
		snapshot, err = cache.Consistent(ctx, r.prefix, maxWait)
		if errors.Is(err, watchcache.ErrBehind) {
			// The store can say what the cache cannot yet.
			return &view{resource: r}, nil
		}
		if err != nil {
			return nil, r.storeError(err, "", "")
		}
	case notOlderThan:
		if snapshot, err = r.notOlderThan(ctx, pos.revision); err != nil {
			return nil, err
		}
	case exactly:
		if _, err = r.notOlderThan(ctx, pos.revision); err != nil {
			return nil, err
		}
		if snapshot = cache.Exact(r.prefix, pos.revision); snapshot == nil {
			return &view{resource: r, revision: pos.revision}, nil
		}
	}
	return &view{resource: r, snapshot: snapshot, revision: snapshot.Revision}, nil
}

// each calls fn with the entries that have the prefix, from a key on and in order, until it returns false, and returns
// how many follow then. Limit is how many will be wanted at most; 0 for all.
func (v *view) each(ctx context.Context, prefix, from string, limit int64, fn func(key string, stored []byte, revision int64) (bool, error)) (int64, error) {
	if v.snapshot == nil {
		return v.eachStored(ctx, prefix, from, limit, fn)
	}
	var err error
	left, stopped := int64(0), false
	v.snapshot.Ascend(prefix, from, func(o *watchcache.Object) bool {
		if stopped {
			left++
			return true
		}
		var more bool
		more, err = fn(o.Key, o.Stored(), o.Revision)
		stopped = !more
		return err == nil
	})
	return left, err
}

func (v *view) eachStored(ctx context.Context, prefix, from string, limit int64, fn func(key string, stored []byte, revision int64) (bool, error)) (int64, error) {
	size := int64(pageEntries)
	if limit > 0 {
		size = min(size, limit)
	}
	for {
		page, err := v.resource.registry.store.List(ctx, prefix, storage.ListOptions{Revision: v.revision, From: from, Limit: size})
		if err != nil {
			return 0, err
		}
		v.revision = page.Revision
		for i, entry := range page.Entries {
			more, err := fn(entry.Key, entry.Value, entry.Revision)
			if err != nil || !more {
				return page.Remaining + int64(len(page.Entries)-i-1), err
			}
		}
		if !page.More {
			return 0, nil
		}
		from = page.Entries[len(page.Entries)-1].Key + "\x00"
	}
}

// keep lets the next page of a list find the same state without asking the store.
func (v *view) keep() {
	if v.snapshot != nil {
		v.snapshot.Keep()
	}
}

// chunks packs objects into list messages. The objects' bytes are not copied.
type chunks struct {
	send  Send
	meta  *metav1.ListMeta
	parts [][]byte
	head  []byte
	size  int
}

func (c *chunks) add(payload []byte, revision int64) error {
	size := envelope.Size(payload, revision)
	if c.size > 0 && c.size+size > chunkBytes {
		if err := c.close(); err != nil {
			return err
		}
	}
	start := len(c.head)
	c.head = protowire.AppendTag(c.head, 2, protowire.BytesType)
	c.head = protowire.AppendVarint(c.head, uint64(size))
	c.parts, c.head = envelope.AppendParts(c.parts, c.head, start, payload, revision)
	c.size += 1 + protowire.SizeVarint(uint64(size)) + size
	return nil
}

// close sends the chunk under way, even an empty one, with the metadata as it is now.
func (c *chunks) close() error {
	meta := protowire.AppendTag(nil, 1, protowire.BytesType)
	meta = protowire.AppendVarint(meta, uint64(proto.Size(c.meta)))
	meta, err := proto.MarshalOptions{}.MarshalAppend(meta, c.meta)
	if err != nil {
		return fmt.Errorf("encode list metadata: %w", err)
	}
	c.parts = append(c.parts, meta)
	if err := c.send(c.parts); err != nil {
		return &sendError{err}
	}
	// The list of parts is free again, what they point at is not.
	clear(c.parts)
	c.parts, c.head, c.size = c.parts[:0], make([]byte, 0, len(c.head)), 0
	return nil
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
		if t.List != listID(req, prefix) {
			return position{}, apierr.BadRequest("continue is a token of another list: kind, namespace and selectors must stay the same")
		}
		if t.Revision == anyRevision {
			return position{mode: mostRecent, from: prefix + t.Start}, nil
		}
		return position{mode: exactly, revision: t.Revision, from: prefix + t.Start}, nil
	}
	switch match {
	case "":
		switch {
		case req.GetResourceVersion() == "":
			return position{mode: mostRecent}, nil
		case revision > 0 && req.GetLimit() > 0:
			// Kubernetes' oldest clients mean exactly N when they also give a limit.
			return position{mode: exactly, revision: revision}, nil
		}
		return position{mode: notOlderThan, revision: revision}, nil
	case "NotOlderThan":
		if req.GetResourceVersion() == "" {
			return position{}, apierr.BadRequest("resourceVersionMatch is forbidden unless resourceVersion is given")
		}
		return position{mode: notOlderThan, revision: revision}, nil
	case "Exact":
		if revision == 0 {
			return position{}, apierr.BadRequest("resourceVersionMatch Exact needs a resourceVersion other than 0")
		}
		return position{mode: exactly, revision: revision}, nil
	default:
		return position{}, apierr.Invalid("", "", apierr.Violation{
			Field:   "resourceVersionMatch",
			Message: fmt.Sprintf("Unsupported value: %q: supported values: \"Exact\", \"NotOlderThan\"", match),
		})
	}
}

// listID tells lists apart, so that no token is used for another one by mistake.
func listID(req *metav1.ListRequest, prefix string) uint32 {
	h := fnv.New32a()
	for _, part := range []string{prefix, req.GetLabelSelector(), req.GetFieldSelector()} {
		_, _ = h.Write(append([]byte(part), 0)) // a hash takes everything
	}
	return h.Sum32()
}

func encodeToken(revision int64, start string, list uint32) string {
	// Strings and integers always marshal.
	raw, _ := json.Marshal(token{Version: tokenVersion, Revision: revision, Start: start, List: list})
	return base64.RawURLEncoding.EncodeToString(raw)
}

func decodeToken(s string) (token, error) {
	var t token
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil || t.Version != tokenVersion || t.Revision <= 0 && t.Revision != anyRevision || t.Start == "" || strings.HasPrefix(t.Start, "/") {
		return token{}, apierr.BadRequest("continue is not a token that a list returned")
	}
	return t, nil
}

// listError says why a list ended. A page whose revision is gone comes with a token to go on without it.
func (r *Resource) listError(err error, req *metav1.ListRequest, prefix string, pos position) error {
	var sent *sendError
	var typed *apierr.Error
	switch {
	case errors.As(err, &sent):
		return sent.err
	case errors.As(err, &typed):
		return err
	case !errors.Is(err, storage.ErrCompacted):
		return r.storeError(err, "", "")
	case req.GetContinue() == "":
		return apierr.Expired("The resourceVersion for the provided list is too old")
	}
	expired := apierr.Expired("The provided continue parameter is too old: list again from the start, or take the token of this " +
		"error, with which the rest is shown as it is now: that is not one snapshot with the pages before")
	expired.Continue = encodeToken(anyRevision, strings.TrimPrefix(pos.from, prefix), listID(req, prefix))
	return expired
}
