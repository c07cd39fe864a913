package rpc

import (
	"context"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// ServerSpans continues the caller's trace in every call. Which calls begin one is the provider's decision; without a
// provider the caller's trace is still known to the handler. Durations of calls are metrics of the services themselves,
// under Kubernetes' names. NewServer has it already: it is for servers that are made without this package.
func ServerSpans() grpc.ServerOption {
	return grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithMeterProvider(metricnoop.NewMeterProvider()), otelgrpc.WithPropagators(propagation.TraceContext{})))
}

// ClientSpans passes the trace of a call's context on to the server. Dial has it already.
func ClientSpans() grpc.DialOption {
	return grpc.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithMeterProvider(metricnoop.NewMeterProvider()), otelgrpc.WithPropagators(propagation.TraceContext{})))
}

// untraced reports whether this process records no spans. Then traces of others are only passed on, which must cost
// nothing where there are none: gRPC's statistics cost each call more than the rest of this package does.
func untraced() bool {
	_, off := otel.GetTracerProvider().(noop.TracerProvider)
	return off
}

// traceparent is the header that says to which trace a call belongs.
const traceparent = "traceparent"

// remote returns the context with the caller's trace, and whether there is one.
func remote(ctx context.Context) (context.Context, bool) {
	if len(metadata.ValueFromIncomingContext(ctx, traceparent)) == 0 {
		return ctx, false
	}
	md, _ := metadata.FromIncomingContext(ctx)
	header := propagation.MapCarrier{}
	for k, v := range md {
		if len(v) > 0 {
			header[k] = v[0]
		}
	}
	return propagation.TraceContext{}.Extract(ctx, header), true
}

func remoteUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, _ = remote(ctx)
	return next(ctx, req)
}

func remoteStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if ctx, ok := remote(ss.Context()); ok {
		ss = &contextStream{ServerStream: ss, ctx: ctx}
	}
	return next(srv, ss)
}

// passOn adds the trace of a context to the metadata of a call.
func passOn(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	header := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, header)
	pairs := make([]string, 0, 2*len(header))
	for k, v := range header {
		pairs = append(pairs, k, v)
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

func passOnUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(passOn(ctx), method, req, reply, cc, opts...)
}

func passOnStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return open(passOn(ctx), desc, cc, method, opts...)
}

func serverSpans() []grpc.ServerOption {
	if untraced() {
		return []grpc.ServerOption{grpc.ChainUnaryInterceptor(remoteUnary), grpc.ChainStreamInterceptor(remoteStream)}
	}
	return []grpc.ServerOption{ServerSpans()}
}

func clientSpans() []grpc.DialOption {
	if untraced() {
		return []grpc.DialOption{grpc.WithChainUnaryInterceptor(passOnUnary), grpc.WithChainStreamInterceptor(passOnStream)}
	}
	return []grpc.DialOption{ClientSpans()}
}
