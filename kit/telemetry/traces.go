package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
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
	if !exporting() {
		return t, nil // the contexts of others are still passed on
	}
	size, err := queueSize()
	if err != nil {
		return nil, err
	}
	var root sdktrace.Sampler
	if roots != nil {
		if root, err = rootSampler(); err != nil {
			return nil, err
		}
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
	}
	t.gate = newGate(exporter, size)
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(t.gate), sdktrace.WithResource(res),
		sdktrace.WithSampler(Sampler(root, roots)))
	return t, nil
}

// exporting reports whether the environment says where spans go.
func exporting() bool {
	if disabled, _ := strconv.ParseBool(os.Getenv("OTEL_SDK_DISABLED")); disabled {
		return false
	}
	if strings.EqualFold(os.Getenv("OTEL_TRACES_EXPORTER"), "none") {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// queueSize is OTEL_BSP_MAX_QUEUE_SIZE, by the specification's default 2,048 spans.
func queueSize() (int, error) {
	const name = "OTEL_BSP_MAX_QUEUE_SIZE"
	value := os.Getenv(name)
	if value == "" {
		return sdktrace.DefaultMaxQueueSize, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s: %q is not a positive number", name, value)
	}
	return n, nil
}

func (t *traces) dropped() int64 {
	if t.gate == nil {
		return 0
	}
	return t.gate.dropped.Load()
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
