package registry

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"trireme.dev/client/apierr"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/watchcache"
)

// bookmarkPeriod is how often a watcher that asked for bookmarks is told how far it has come.
const bookmarkPeriod = time.Minute

// Watch sends changes as responses {events = 1; revision = 2; more = 3; initial_events_end = 4} until ctx ends or an
// error does.
func (r *Resource) Watch(ctx context.Context, req *metav1.WatchRequest, send Send) error {
	filter, err := r.filter(req.GetNamespace(), req.GetLabelSelector(), req.GetFieldSelector())
	if err != nil {
		return err
	}
	w := &watch{resource: r, filter: filter, out: &responses{send: send}}
	scope := filter.scope()
	if scope == (watchcache.Scope{}) || scope.Index == watchcache.ByNamespace {
		var leave func()
		w.shared, leave = r.broadcasts.join(strings.Join([]string{req.GetNamespace(), req.GetLabelSelector(), req.GetFieldSelector()}, "\x00"))
		defer leave()
	}
	if err := w.begin(ctx, req); err != nil {
		return r.watchError(ctx, err, w.after)
	}
	watcher, err := r.registry.cache.Watch(ctx, r.prefix, scope, w.after, func(events []*watchcache.Event) error {
		return w.own(ctx, events)
	})
	if err != nil {
		return r.watchError(ctx, err, w.after)
	}
	defer watcher.Close()
	err = w.follow(ctx, watcher, req.GetAllowBookmarks())
	if ctx.Err() != nil && req.GetAllowBookmarks() && w.after > w.out.told {
		// The last word before the gateway stops: the next one then has less to go through. Who has gone away does not
		// hear it.
		_ = w.out.bookmark(w.after)
	}
	return r.watchError(ctx, err, w.after)
}

// watch is one running Watch.
type watch struct {
	resource *Resource
	filter   *filter
	out      *responses
	after    int64 // everything up to here has been dealt with
	// shared is what others with the same filter are sent; nil where an index narrows it, so that it is mostly alone.
	shared *broadcast
}

// begin finds out where the watch starts, and sends the initial events where they are wanted.
func (w *watch) begin(ctx context.Context, req *metav1.WatchRequest) error {
	revision, err := parseRevision(req.GetResourceVersion())
	if err != nil {
		return err
	}
	switch match := req.GetResourceVersionMatch(); {
	case match == "":
	case match != "NotOlderThan":
		return apierr.BadRequest("resourceVersionMatch of a watch must be NotOlderThan")
	case req.SendInitialEvents == nil:
		return apierr.BadRequest("resourceVersionMatch is forbidden unless sendInitialEvents is given")
	}
	initial := revision == 0
	if req.SendInitialEvents != nil {
		initial = req.GetSendInitialEvents()
	}
	if !initial && revision > 0 {
		w.after, w.out.told = revision, revision
		return nil
	}
	pos := position{mode: notOlderThan, revision: revision}
	if req.GetResourceVersion() == "" {
		pos.mode = mostRecent
	}
	if !initial {
		if w.after = w.resource.registry.cache.Position(); pos.mode == mostRecent || w.after == 0 {
			if w.after, err = w.resource.registry.cache.Latest(ctx); err != nil {
				return err
			}
		}
		// The caller does not know from where on it will be told.
		return w.out.bookmark(w.after)
	}
	v, err := w.resource.view(ctx, pos)
	if err != nil {
		return err
	}
	if err := w.initial(ctx, v, w.resource.scope(req.GetNamespace())); err != nil {
		return err
	}
	w.after = v.revision
	return nil
}

// initial sends a state as ADDED, then one response with initial_events_end. All but the last are sent with more set: a
// watcher cut off before the end cannot resume.
func (w *watch) initial(ctx context.Context, v *view, prefix string) error {
	n := int64(0)
	defer func() { w.resource.counted(ctx, n) }()
	_, err := v.each(ctx, prefix, "", 0, func(key string, stored []byte, revision int64) (bool, error) {
		payload, err := envelope.Open(stored)
		if err != nil {
			return true, nil // told of by Unreadable
		}
		if ok, err := w.filter.matchEntry(key, payload); err != nil {
			return false, w.resource.corrupt(key, err)
		} else if !ok {
			return true, nil
		}
		event := watchcache.EncodeEvent(metav1.WatchEventType_WATCH_EVENT_TYPE_ADDED, payload, revision)
		n++
		w.resource.measured(ctx, event)
		return true, w.out.add(event, v.revision)
	})
	if err != nil {
		return err
	}
	return w.out.end(v.revision)
}

// follow sends what the watcher gets until an error ends it.
func (w *watch) follow(ctx context.Context, watcher *watchcache.Watcher, bookmarks bool) error {
	var tick <-chan time.Time
	if bookmarks {
		// Watchers that began together do not speak up together.
		ticker := time.NewTicker(bookmarkPeriod - rand.N(bookmarkPeriod/10))
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		events, position, err := watcher.Next(ctx, tick)
		if err != nil {
			return err
		}
		switch {
		case len(events) == 0:
		case w.shared.worth() && events[0].Revision > w.after:
			err = w.shared.deliver(ctx, w, events)
		default:
			err = w.own(ctx, events)
		}
		if err != nil {
			return err
		}
		w.after = max(w.after, position)
		// Not after each event: one that the filter took out tells the watcher nothing.
		if len(events) == 0 && position > w.out.told {
			if err := w.out.bookmark(position); err != nil {
				return err
			}
		}
	}
}

// own sends the events that the filter lets through, to this watcher alone.
func (w *watch) own(ctx context.Context, events []*watchcache.Event) error {
	n, err := w.deliver(ctx, events)
	w.resource.counted(ctx, n)
	if err != nil {
		return err
	}
	return w.out.flush()
}

// deliver adds the events that the filter lets through, and returns how many; they are whole revisions.
func (w *watch) deliver(ctx context.Context, events []*watchcache.Event) (n int64, err error) {
	revision := w.after
	for _, e := range events {
		if e.Revision <= w.after {
			continue
		}
		revision = e.Revision
		typ, ok, err := w.filter.matchEvent(e)
		if err != nil {
			return n, w.resource.corrupt(e.Key(), err)
		}
		if !ok {
			continue
		}
		parts, first, err := e.Encoded(typ)
		if err != nil {
			return n, w.resource.corrupt(e.Key(), err)
		}
		if err := w.out.add(parts, e.Revision); err != nil {
			return n, err
		}
		n++
		if first {
			w.resource.measured(ctx, parts)
		}
	}
	w.after = revision
	return n, nil
}

func (r *Resource) watchError(ctx context.Context, err error, after int64) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, storage.ErrCompacted):
		return apierr.Expired("too old resource version: " + strconv.FormatInt(after, 10) + ": list again")
	case errors.Is(err, watchcache.ErrRewound):
		return apierr.Expired(err.Error())
	case errors.Is(err, storage.ErrFutureRevision):
		return &apierr.Error{
			Reason:     apierr.ReasonTimeout,
			Message:    "Too large resource version: " + strconv.FormatInt(after, 10),
			RetryAfter: retryLarge,
		}
	case errors.Is(err, watchcache.ErrSlow), errors.Is(err, watchcache.ErrInterrupted):
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
	send     Send
	parts    [][]byte
	size     int
	revision int64 // of the last event in parts
	told     int64 // the last revision sent
}

// sendError is a failure of the caller's stream, told apart from those of the store.
type sendError struct{ err error }

func (e *sendError) Error() string { return e.err.Error() }
func (e *sendError) Unwrap() error { return e.err }

// add puts an encoded event into the response under way; where it has no room, that one is sent first.
func (o *responses) add(event [][]byte, revision int64) error {
	size := 0
	for _, p := range event {
		size += len(p)
	}
	if o.size > 0 && o.size+size > chunkBytes {
		if err := o.close(o.revision, revision == o.revision, false); err != nil {
			return err
		}
	}
	o.parts = append(o.parts, event...)
	o.size += size
	o.revision = revision
	return nil
}

// flush sends what has been added; the revision of the last event is complete.
func (o *responses) flush() error {
	if o.size == 0 {
		return nil
	}
	return o.close(o.revision, false, false)
}

// end closes the initial events, even where there are none.
func (o *responses) end(revision int64) error { return o.close(revision, false, true) }

// bookmark tells that everything up to the revision has been seen.
func (o *responses) bookmark(revision int64) error { return o.close(revision, false, false) }

func (o *responses) close(revision int64, more, initialEnd bool) error {
	b := protowire.AppendTag(make([]byte, 0, 16), 2, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(revision))
	if more {
		b = protowire.AppendTag(b, 3, protowire.VarintType)
		b = protowire.AppendVarint(b, 1)
	}
	if initialEnd {
		b = protowire.AppendTag(b, 4, protowire.VarintType)
		b = protowire.AppendVarint(b, 1)
	}
	parts := append(o.parts, b)
	o.parts, o.size, o.told = parts[:0], 0, revision
	if err := o.send(parts); err != nil {
		return &sendError{err}
	}
	clear(parts)
	return nil
}
