package registry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"trireme.dev/client/tracing"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Names of spans.
const (
	// CreateSpan, with the kind behind it, roots the trace of an object whose creation is not a call of its own: that of
	// a pod which a controller makes, and of whatever apply creates.
	CreateSpan    = "Create"
	admissionSpan = "Admission"
)

// begin gives a new object the trace under which everything that happens to it is recorded: the request's or, for a pod
// that a controller makes, one of its own with a link to the request. Whatever the caller put there is gone. The caller
// ends the span, which is none where nothing new began.
func (r *Resource) begin(ctx context.Context, meta *metav1.ObjectMeta, now time.Time, dryRun bool) (context.Context, trace.Span) {
	span := trace.SpanFromContext(context.Background())
	if dryRun {
		// Nothing will come of it. Its request's span began before anyone could know.
		meta.TraceContext, meta.TraceTime = "", nil
		trace.SpanFromContext(ctx).SetAttributes(tracing.KeyReason.String("dry run"))
		return ctx, span
	}
	if r.Kind.Name == "Pod" && controlled(meta) {
		request := trace.SpanFromContext(ctx)
		ctx, span = tracing.StartRoot(ctx, CreateSpan+r.Kind.Name, now)
		if span.IsRecording() && request.IsRecording() {
			request.AddLink(trace.Link{SpanContext: span.SpanContext()})
		}
	}
	tracing.Set(ctx, meta, now)
	return ctx, span
}

// root begins the trace of what an apply creates: only now is it known that it creates, so the call's own span began none.
// A caller's trace goes on. The caller ends the span.
func (r *Resource) root(ctx context.Context, meta *metav1.ObjectMeta, dryRun bool) (context.Context, trace.Span) {
	if dryRun || trace.SpanContextFromContext(ctx).IsSampled() || (r.Kind.Name == "Pod" && controlled(meta)) {
		return ctx, trace.SpanFromContext(context.Background())
	}
	return tracing.StartRoot(ctx, CreateSpan+r.Kind.Name, time.Now())
}

// controlled reports whether a controller makes the object.
func controlled(meta *metav1.ObjectMeta) bool {
	for _, o := range meta.GetOwnerReferences() {
		if o.GetController() {
			return true
		}
	}
	return false
}

// step begins a span of a request that is traced; of others it returns one that does nothing.
func step(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ctx, trace.SpanFromContext(context.Background())
	}
	return tracing.Start(ctx, name, attributes...)
}

// bound records the commit of a binding in the traces of the pods that it put on nodes: the call was made for all of them
// and belongs to the trace of one of them at most.
func bound(ctx context.Context, metas []*metav1.ObjectMeta, start time.Time, name string, revision int64) {
	request := trace.SpanContextFromContext(ctx)
	end := time.Now()
	for _, meta := range metas {
		if sc := tracing.SpanContext(meta); sc.IsSampled() && sc.TraceID() != request.TraceID() {
			tracing.Record(tracing.Context(ctx, meta), name, start, end, tracing.KeyRevision.Int64(revision), tracing.KeyCount.Int(len(metas)))
		}
	}
}
