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
	// CreatePodSpan roots the trace of a pod which a controller made.
	CreatePodSpan = "CreatePod"
	admissionSpan = "admission"
)

// begin gives a new object the trace under which everything that happens to it is recorded: the request's or, for a pod
// that a controller makes, one of its own with a link to the request. Whatever the caller put there is gone. The caller
// ends the span, which is none where nothing new began.
func (r *Resource) begin(ctx context.Context, meta *metav1.ObjectMeta, now time.Time, dryRun bool) (context.Context, trace.Span) {
	span := trace.SpanFromContext(context.Background())
	if dryRun {
		// Nothing will come of it.
		meta.TraceContext, meta.TraceTime = "", nil
		return ctx, span
	}
	if r.Kind.Name == "Pod" && controlled(meta) {
		request := trace.SpanFromContext(ctx)
		ctx, span = tracing.StartRoot(ctx, CreatePodSpan, now)
		if span.IsRecording() && request.IsRecording() {
			request.AddLink(trace.Link{SpanContext: span.SpanContext()})
		}
	}
	tracing.Set(ctx, meta, now)
	return ctx, span
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
