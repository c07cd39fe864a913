package reconcile

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"trireme.dev/client"
	"trireme.dev/client/tracing"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// young is for how long what is done for an object belongs to the trace in which it was made. Later work is a trace of
// its own, linked to the object's, or the trace of a ReplicaSet would grow for years.
const young = 10 * time.Minute

// waitSpan is the name of the span of a key's wait for a worker.
const waitSpan = "queue wait"

// Writing returns ctx for a write on behalf of the object that is being reconciled. The first call of a reconciliation
// begins the span that Config.Span names, in the object's trace and dated back to the reconciliation's begin, and records
// the wait before it: a reconciliation that writes nothing leaves no span. It returns ctx as it is where the object's
// trace is not recorded, and outside of a Runner. It may be called from several goroutines.
func Writing(ctx context.Context, object client.Object) context.Context {
	t, _ := ctx.Value(turnKey{}).(*turn)
	if t == nil || t.runner.config.Span == "" || !tracing.Sampled(object.GetMetadata()) {
		return ctx
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.span == nil {
		t.begin(object)
	}
	return trace.ContextWithSpan(ctx, t.span)
}

// Created tells the trace of an object that the reconciliation has made where it came from: a span as that of Writing,
// from the reconciliation's begin until now, linked to it. An object that is in the same trace already needs none.
func Created(ctx context.Context, object client.Object) {
	t, _ := ctx.Value(turnKey{}).(*turn)
	meta := object.GetMetadata()
	if t == nil || t.runner.config.Span == "" || !tracing.Sampled(meta) {
		return
	}
	own := trace.SpanContextFromContext(ctx)
	if own.TraceID() == tracing.SpanContext(meta).TraceID() {
		return
	}
	_, span := tracing.StartAt(tracing.Context(ctx, meta), t.runner.config.Span, t.begun,
		tracing.KeyController.String(t.runner.config.Name), tracing.KeyName.String(t.key.String()))
	if own.IsValid() {
		span.AddLink(trace.Link{SpanContext: own})
	}
	span.End()
}

type turnKey struct{}

// turn is one reconciliation of a key.
type turn struct {
	runner       *Runner
	key          Key
	added, begun time.Time

	mu   sync.Mutex
	span trace.Span // nil until something is written
}

func (t *turn) begin(object client.Object) {
	meta := object.GetMetadata()
	attributes := append(tracing.Object(string(object.ProtoReflect().Descriptor().Name()), meta),
		tracing.KeyController.String(t.runner.config.Name))
	seen, first := t.runner.sights.take(t.key, meta)
	if created := meta.GetCreationTimestamp(); created != nil && t.begun.Sub(created.AsTime()) > young {
		_, t.span = tracing.StartLinkedAt(context.Background(), meta, t.runner.config.Span, t.begun, attributes...)
		return
	}
	ctx := tracing.Context(context.Background(), meta)
	added := t.added
	if first {
		tracing.Received(ctx, meta, seen, t.runner.config.Name)
		if added.Before(seen) { // another object's change had enqueued the key already
			added = seen
		}
	}
	if added.Before(t.begun) {
		tracing.Record(ctx, waitSpan, added, t.begun, tracing.KeyController.String(t.runner.config.Name))
	}
	_, t.span = tracing.StartAt(ctx, t.runner.config.Span, t.begun, attributes...)
}

func (t *turn) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.span == nil {
		return
	}
	tracing.Fail(t.span, err)
	t.span.End()
}

// sights remembers when objects were first heard of, until somebody tells their traces. It holds only objects whose
// traces are recorded, and none that is gone.
type sights struct {
	mu  sync.Mutex
	all map[Key]sight
}

type sight struct {
	uid string
	at  time.Time
}

// untouched reports whether no controller has acted on the object yet: those that were there before this process may have
// been seen by the one before it, and then its traces have told.
func untouched(object client.Object) bool {
	m := object.ProtoReflect()
	status := m.Descriptor().Fields().ByName("status")
	return status == nil || !m.Has(status)
}

func (s *sights) saw(object client.Object) {
	meta := object.GetMetadata()
	if !tracing.Sampled(meta) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[Key]sight{}
	}
	s.all[KeyOf(object)] = sight{meta.GetUid(), time.Now()}
}

func (s *sights) gone(object client.Object) {
	if tracing.Sampled(object.GetMetadata()) {
		s.take(KeyOf(object), object.GetMetadata())
	}
}

func (s *sights) take(key Key, meta *metav1.ObjectMeta) (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.all[key]
	if !ok || seen.uid != meta.GetUid() {
		return time.Time{}, false
	}
	delete(s.all, key)
	return seen.at, true
}
