package rpc

import (
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/grpc"
)

// serverSpans continues the caller's trace in every call. Which calls begin one is the provider's decision. Durations of
// calls are metrics of the services themselves, under Kubernetes' names.
func serverSpans() grpc.ServerOption {
	return grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithMeterProvider(noop.NewMeterProvider())))
}

// clientSpans passes the trace of a call's context on to the server.
func clientSpans() grpc.DialOption {
	return grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithMeterProvider(noop.NewMeterProvider())))
}
