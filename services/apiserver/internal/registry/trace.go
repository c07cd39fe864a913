package registry

import "context"

type traceKey struct{}

// WithTraceParent notes the W3C traceparent of a request, which a created object carries from then on.
func WithTraceParent(ctx context.Context, traceparent string) context.Context {
	return context.WithValue(ctx, traceKey{}, traceparent)
}

// TraceParent returns the request's traceparent, or "".
func TraceParent(ctx context.Context) string {
	s, _ := ctx.Value(traceKey{}).(string)
	return s
}
