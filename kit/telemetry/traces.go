package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
)

// traces is the process's provider of spans and what it lost.
type traces struct {
	provider trace.TracerProvider
	gate     *gate // nil where tracing is off
	logger   *slog.Logger
	reported atomic.Int64 // nanoseconds since the epoch of the last line about the collector
}

// reportEvery is how often at most a collector that does not answer is worth a line.
const reportEvery = time.Minute

func startTraces(ctx context.Context, res *resource.Resource, roots func(string) bool, logger *slog.Logger) (*traces, error) {
	t := &traces{logger: logger, provider: noop.NewTracerProvider()}
	env, err := ReadEnvironment()
	if err != nil {
		return nil, err
	}
	if !env.Tracing() {
		return t, nil // the contexts of others are still passed on
	}
	options := []otlptracegrpc.Option{otlptracegrpc.WithDialOption(
		grpc.WithChainUnaryInterceptor(t.countRejected),
		// Else the collector's name waits for a TXT record, ten seconds where no name server knows of any.
		grpc.WithDisableServiceConfig())}
	if path, ok := strings.CutPrefix(env.Endpoint, "unix://"); ok {
		// The exporter reads the variable itself, and loses the scheme.
		options = append(options, otlptracegrpc.WithEndpoint("unix://"+path), otlptracegrpc.WithInsecure())
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
	}
	t.gate = newGate(exporter, env.queueSize)
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(t.gate), sdktrace.WithResource(res),
		sdktrace.WithSampler(Sampler(env.root, roots)))
	return t, nil
}

// rejectedError is a collector that took a batch, but not all of it.
type rejectedError struct {
	spans   int64
	message string
}

func (e *rejectedError) Error() string {
	return fmt.Sprintf("the collector rejected %d spans: %s", e.spans, e.message)
}

func (t *traces) dropped() int64 {
	if t.gate == nil {
		return 0
	}
	return t.gate.dropped()
}

// report takes the SDK's errors: a collector that is down says so with every batch, and once a minute is enough.
func (t *traces) report(err error) {
	now, last := time.Now().UnixNano(), t.reported.Load()
	if now-last < int64(reportEvery) || !t.reported.CompareAndSwap(last, now) {
		return
	}
	t.logger.Warn("telemetry", slog.Any(KeyError, err), slog.Int64(KeySpansDropped, t.dropped()))
}

func (t *traces) stop(ctx context.Context) {
	provider, ok := t.provider.(*sdktrace.TracerProvider)
	if !ok {
		return
	}
	err := provider.Shutdown(ctx)
	if n := t.dropped(); n > 0 || err != nil {
		t.logger.Warn("spans lost", slog.Int64(KeySpansDropped, n), slog.Any(KeyError, err))
	}
}
