package informer

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"time"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Between two tries of a watch lies a random time up to a bound that doubles from backoffBase to backoffMax and begins
// anew with every watch that delivered something.
const (
	backoffBase = 800 * time.Millisecond
	backoffMax  = 30 * time.Second
)

// reflector makes an informer mirror the gateway.
//
//	           Watch "" ───▶ collect ADDED ── initial_events_end ──▶ replace ┐
//	    ▲                                                                    ▼
//	Expired ◀── Watch N ◀── stream broke ◀──────────────────────── follow: apply whole revisions
type reflector[T client.Object] struct {
	resource *client.Resource[T]
	informer *Informer[T]
	logger   *slog.Logger

	// complete is the last revision of which every event is in the store; only from there may a watch resume. 0 asks
	// for everything.
	complete  int64
	failures  int
	reachable connection
	lists     lists
}

type connection int

const (
	untried connection = iota
	up
	down
)

func (r *reflector[T]) run(ctx context.Context) {
	for ctx.Err() == nil {
		resuming := r.complete != 0
		err := r.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		if apierr.IsExpired(err) {
			r.complete, r.lists.reason = 0, relistExpired
			r.logger.Info("watch expired", slog.Any("error", err))
			if resuming {
				continue // A fresh watch cannot expire at once, so this cannot spin.
			}
		} else {
			r.lost(err)
		}
		r.pause(ctx)
	}
}

func (r *reflector[T]) pause(ctx context.Context) {
	bound := backoffMax
	if r.failures < 6 {
		bound = min(backoffMax, backoffBase<<r.failures)
	}
	r.failures++
	timer := time.NewTimer(rand.N(bound))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// watch follows one stream to its end.
func (r *reflector[T]) watch(ctx context.Context) error {
	options := client.WatchOptions{
		Namespace: r.informer.config.Namespace, LabelSelector: r.informer.config.LabelSelector,
		FieldSelector: r.informer.config.FieldSelector, AllowBookmarks: true,
	}
	if r.complete != 0 {
		options.ResourceVersion = strconv.FormatInt(r.complete, 10)
	}
	w, err := r.resource.Watch(ctx, options)
	if err != nil {
		return err
	}
	defer w.Close()
	receive := func() (*client.Response[T], error) {
		response, err := w.Recv()
		if err == nil {
			r.failures = 0
			r.found()
		}
		return response, err
	}
	if r.complete == 0 {
		r.lists.count()
		if err := r.collect(receive); err != nil {
			return err
		}
	}
	return r.follow(receive)
}

// collect gathers the initial state aside, so that readers keep the old one until the new one is whole.
func (r *reflector[T]) collect(receive func() (*client.Response[T], error)) error {
	snapshot := map[key]T{}
	ended := false
	for {
		response, err := receive()
		if err != nil {
			return err
		}
		for _, e := range response.Events {
			if e.Type == metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED {
				delete(snapshot, keyOf(e.Object))
			} else {
				snapshot[keyOf(e.Object)] = e.Object
			}
		}
		ended = ended || response.InitialEventsEnd
		if ended && !response.More {
			r.informer.replace(snapshot, response.Revision)
			r.complete = response.Revision
			return nil
		}
	}
}

// follow applies revisions as they become complete. What has come of an incomplete one is dropped with the stream: the
// next one sends it again, and the store must not see it twice.
func (r *reflector[T]) follow(receive func() (*client.Response[T], error)) error {
	var partial []client.Event[T]
	for {
		response, err := receive()
		if err != nil {
			return err
		}
		partial = append(partial, response.Events...)
		if response.More {
			continue
		}
		r.informer.apply(partial, response.Revision)
		r.complete = max(r.complete, response.Revision)
		partial = nil
	}
}

// lost and found log once per change of state, not once per try.
func (r *reflector[T]) lost(err error) {
	if errors.Is(err, io.EOF) || apierr.IsConflict(err) {
		// Ended in good order, or for being slow: both resume at once and lose nothing.
		r.logger.Debug("watch ended", slog.Any("error", err))
		return
	}
	if r.reachable != down {
		r.logger.Warn("watch lost", slog.Any("error", err))
	}
	r.reachable = down
}

func (r *reflector[T]) found() {
	if r.reachable == down {
		r.logger.Info("watch restored", slog.Int64("revision", r.complete))
	}
	r.reachable = up
}
