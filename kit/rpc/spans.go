package rpc

import (
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
)

// ServerSpans continues the caller's trace in every call. Which calls begin one is the provider's decision; without a
// provider the caller's trace is still known to the handler. Durations of calls are metrics of the services themselves,
// under Kubernetes' names. NewServer has it already: it is for servers that are made without this package.
func ServerSpans() grpc.ServerOption {
	return grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithMeterProvider(noop.NewMeterProvider()), otelgrpc.WithPropagators(propagation.TraceContext{})))
}

// ClientSpans passes the trace of a call's context on to the server. Dial has it already.
func ClientSpans() grpc.DialOption {
	return grpc.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithMeterProvider(noop.NewMeterProvider()), otelgrpc.WithPropagators(propagation.TraceContext{})))
}
