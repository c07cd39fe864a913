// Package tracing carries one trace through everything that happens to an object: the gateway writes the trace's context
// into the object's metadata, and whoever handles the object later records its spans under that context, however many
// queues and processes lie between. Waits are spans too.
//
// Everything here is OpenTelemetry's API: without a provider (kit/telemetry sets one) all calls do nothing. Sampling is
// decided once, by the gateway when it creates an object; here it is only followed.
package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/timestamppb"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// scope is the instrumentation scope of every span of this repository.
const scope = "trireme.dev"

// DeliverySpan is the name of the span that Received records.
const DeliverySpan = "watch delivery"

const traceparent = "traceparent"

// flagsAt is where the two hexadecimal digits of the flags stand in a traceparent of version 00:
// https://www.w3.org/TR/trace-context/#traceparent-header.
const flagsAt = len("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-")

// Sampled reports whether spans of the object's trace are recorded. It costs nothing: ask before building attributes.
func Sampled(meta *metav1.ObjectMeta) bool {
	tc := meta.GetTraceContext()
	if len(tc) < flagsAt+2 {
		return false
	}
	switch c := tc[flagsAt+1]; {
	case '0' <= c && c <= '9':
		return c&1 == 1
	case 'a' <= c && c <= 'f':
		return (c-'a')&1 == 1
	}
	return false
}

// Context returns ctx with the object's trace as the parent of what is started under it. Without a trace in the object,
// or with one that does not parse, it returns a context without any: an object's spans never end up in another's trace.
func Context(ctx context.Context, meta *metav1.ObjectMeta) context.Context {
	return trace.ContextWithRemoteSpanContext(ctx, SpanContext(meta))
}

// SpanContext is the trace that the object carries; invalid where it carries none.
func SpanContext(meta *metav1.ObjectMeta) trace.SpanContext {
	if meta.GetTraceContext() == "" {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{traceparent: meta.GetTraceContext()}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// Traceparent writes the span of ctx as objects carry it; empty where ctx has none.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparent]
}

// Set makes ctx's span the trace of the object and notes now as the time of its handing over; without a span it clears
// both. Only the gateway calls it.
func Set(ctx context.Context, meta *metav1.ObjectMeta, now time.Time) {
	meta.TraceContext, meta.TraceTime = Traceparent(ctx), nil
	if Sampled(meta) {
		meta.TraceTime = timestamppb.New(now)
	}
}

// Start begins a span under that of ctx. The caller ends it.
func Start(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	return tracer().Start(ctx, name, trace.WithAttributes(attributes...))
}

// StartAt is Start for a span that has begun already.
func StartAt(ctx context.Context, name string, start time.Time, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	return tracer().Start(ctx, name, trace.WithTimestamp(start), trace.WithAttributes(attributes...))
}

// StartRoot begins a new trace at the time given, linked to ctx's span where that is recorded. Whether it is recorded is the
// provider's decision, and of all services only the gateway's provider says yes. Without a provider ctx's own trace goes on.
func StartRoot(ctx context.Context, name string, start time.Time, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	options := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithTimestamp(start), trace.WithAttributes(attributes...)}
	if sc := trace.SpanContextFromContext(ctx); sc.IsSampled() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: sc}))
	}
	return tracer().Start(ctx, name, options...)
}

// StartLinkedAt begins a new trace that is linked to the object's, at the time given: what happens to an object long after
// it was made. It is recorded where the object's own trace is.
func StartLinkedAt(ctx context.Context, meta *metav1.ObjectMeta, name string, start time.Time, attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	return tracer().Start(ctx, name, trace.WithNewRoot(), trace.WithTimestamp(start), trace.WithAttributes(attributes...),
		trace.WithLinks(trace.Link{SpanContext: SpanContext(meta)}))
}

// Record writes a span that is over: a wait, of which one knows only afterwards that it was one.
func Record(ctx context.Context, name string, start, end time.Time, attributes ...attribute.KeyValue) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return
	}
	_, span := StartAt(ctx, name, start, attributes...)
	span.End(trace.WithTimestamp(end))
}

// Received records the way of an object from the gateway's write to whoever heard of it at the given time. by says who:
// scheduler, nodeagent. Call it once per object and write, not for every event.
func Received(ctx context.Context, meta *metav1.ObjectMeta, at time.Time, by string) {
	if !Sampled(meta) || meta.GetTraceTime() == nil {
		return
	}
	start := meta.GetTraceTime().AsTime()
	if start.After(at) { // another machine's clock
		start = at
	}
	Record(Context(ctx, meta), DeliverySpan, start, at, Receiver(by))
}

// Fail marks a span as failed with err; nil leaves it as it is.
func Fail(span trace.Span, err error) {
	if err == nil || !span.IsRecording() {
		return
	}
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}

func tracer() trace.Tracer { return otel.GetTracerProvider().Tracer(scope) }
