package registry

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"trireme.dev/client/apierr"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/feed"
	"trireme.dev/services/apiserver/internal/storage"
)

// bookmarkPeriod is how often a watcher that asked for bookmarks is told how far it has come.
const bookmarkPeriod = time.Minute

// Watch sends changes as responses {events = 1; revision = 2; more = 3; initial_events_end = 4} until ctx ends or an
// error does.
func (r *Resource) Watch(ctx context.Context, req *metav1.WatchRequest, send func([]byte) error) error {
	filter, err := r.filter(req.GetNamespace(), req.GetLabelSelector(), req.GetFieldSelector())
	if err != nil {
		return err
	}
	after, err := parseRevision(req.GetResourceVersion())
	if err != nil {
		return err
	}
	out := &responses{send: send, told: after}
	if after == 0 {
		if after, err = r.initial(ctx, req, filter, out); err != nil {
			return err
		}
	}
	deliver := func(b *feed.Batch) error {
		if b.Revision <= after {
			return nil
		}
		return r.deliver(ctx, b, filter, out)
	}
	watcher, err := r.registry.feed.Watch(ctx, r.prefix, after, func(b *feed.Batch) error {
		if err := deliver(b); err != nil {
			return err
		}
		after = max(after, b.Revision)
		return out.flush()
	})
	if err != nil {
		return r.watchError(ctx, err, after)
	}
	defer watcher.Close()

	var bookmark <-chan time.Time
	if req.GetAllowBookmarks() {
		// Watchers that began together do not speak up together.
		ticker := time.NewTicker(bookmarkPeriod - rand.N(bookmarkPeriod/10))
		defer ticker.Stop()
		bookmark = ticker.C
	}
	for {
		batches, position, err := watcher.Next(ctx, bookmark)
		if err != nil {
			return r.watchError(ctx, err, after)
		}
		for _, b := range batches {
			if err := deliver(b); err != nil {
				return err
			}
			after = max(after, b.Revision)
		}
		if err := out.flush(); err != nil {
			return err
		}
		// Not more than the last event: one that the filter took out tells the watcher nothing.
		if len(batches) == 0 && position > out.told {
			after = max(after, position)
			if err := out.bookmark(position); err != nil {
				return err
			}
		}
	}
}

func (r *Resource) deliver(ctx context.Context, b *feed.Batch, filter *filter, out *responses) error {
	for _, e := range b.Events {
		if e.Err() != nil {
			return r.corrupt(e.Key, e.Err())
		}
		typ, ok, err := filter.matchEvent(e)
		if err != nil {
			return r.corrupt(e.Key, err)
		}
		if !ok {
			continue
		}
		event := e.Encoded(typ)
		if err := out.add(event, e.Revision); err != nil {
			return err
		}
		r.registry.metrics.sent(ctx, event, r.labels)
	}
	return nil
}

// initial sends the objects of now as ADDED, then one response with initial_events_end, and returns their revision.
// All but the last are sent with more set: a watcher cut off before the end cannot resume.
func (r *Resource) initial(ctx context.Context, req *metav1.WatchRequest, filter *filter, out *responses) (int64, error) {
	var revision int64
	from := ""
	for {
		page, err := r.registry.store.List(ctx, r.scope(req.GetNamespace()), storage.ListOptions{Revision: revision, From: from, Limit: pageEntries})
		if err != nil {
			return 0, r.listError(err, false)
		}
		revision = page.Revision
		for _, entry := range page.Entries {
			payload, err := envelope.Open(entry.Value)
			if err != nil {
				return 0, r.corrupt(entry.Key, err)
			}
			if ok, err := filter.matchEntry(entry.Key, payload); err != nil {
				return 0, r.corrupt(entry.Key, err)
			} else if !ok {
				continue
			}
			event := feed.AppendEvent(nil, metav1.WatchEventType_WATCH_EVENT_TYPE_ADDED, payload, entry.Revision)
			if err := out.add(event, revision); err != nil {
				return 0, err
			}
			r.registry.metrics.sent(ctx, event, r.labels)
		}
		if !page.More {
			break
		}
		from = page.Entries[len(page.Entries)-1].Key + "\x00"
	}
	return revision, out.end(revision)
}

func (r *Resource) watchError(ctx context.Context, err error, after int64) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, storage.ErrCompacted):
		return apierr.Expired("too old resource version: " + strconv.FormatInt(after, 10) + ": list again")
	case errors.Is(err, storage.ErrFutureRevision):
		return &apierr.Error{
			Reason:     apierr.ReasonTimeout,
			Message:    "Too large resource version: " + strconv.FormatInt(after, 10),
			RetryAfter: retryLarge,
		}
	case errors.Is(err, feed.ErrSlow), errors.Is(err, feed.ErrInterrupted):
		return apierr.Conflict(r.Kind.Name, "", err.Error())
	case errors.Is(err, context.Canceled):
		return apierr.Unavailable("the gateway is stopping")
	}
	var sent *sendError
	if errors.As(err, &sent) {
		return sent.err
	}
	var typed *apierr.Error
	if errors.As(err, &typed) {
		return err
	}
	return r.storeError(err, "", "")
}

// responses packs events into watch responses. A response that ends within a revision has more set.
type responses struct {
	send     func([]byte) error
	buf      []byte
	revision int64 // of the last event in buf
	told     int64 // the last revision sent
}

// sendError is a failure of the caller's stream, told apart from those of the store.
type sendError struct{ err error }

func (e *sendError) Error() string { return e.err.Error() }
func (e *sendError) Unwrap() error { return e.err }

// add puts an encoded event into the response under way; where it has no room, that one is sent first.
func (o *responses) add(event []byte, revision int64) error {
	if len(o.buf) > 0 && len(o.buf)+len(event) > chunkBytes {
		if err := o.close(o.revision, revision == o.revision, false); err != nil {
			return err
		}
	}
	o.buf = append(o.buf, event...)
	o.revision = revision
	return nil
}

// flush sends what has been added; the revision of the last event is complete.
func (o *responses) flush() error {
	if len(o.buf) == 0 {
		return nil
	}
	return o.close(o.revision, false, false)
}

// end closes the initial events, even where there are none.
func (o *responses) end(revision int64) error { return o.close(revision, false, true) }

// bookmark tells that everything up to the revision has been seen.
func (o *responses) bookmark(revision int64) error { return o.close(revision, false, false) }

func (o *responses) close(revision int64, more, initialEnd bool) error {
	b := protowire.AppendTag(o.buf, 2, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(revision))
	if more {
		b = protowire.AppendTag(b, 3, protowire.VarintType)
		b = protowire.AppendVarint(b, 1)
	}
	if initialEnd {
		b = protowire.AppendTag(b, 4, protowire.VarintType)
		b = protowire.AppendVarint(b, 1)
	}
	o.buf, o.told = nil, revision
	if err := o.send(b); err != nil {
		return &sendError{err}
	}
	return nil
}
