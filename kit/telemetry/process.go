package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// flushTimeout bounds how long a process that ends waits for its last spans to be taken.
const flushTimeout = 2 * time.Second

// Process is what a running process reports on itself: spans, metrics and its health over HTTP.
type Process struct {
	cfg     Config
	logger  *slog.Logger
	traces  *traces
	metrics *metrics
	lis     net.Listener // nil without --metrics-listen
}

// Start sets the process's global providers of spans and metrics, and listens on cfg.MetricsListen. roots says which
// spans may begin a trace, by name, and is nil for a process that only follows traces. Spans go where the standard OTEL_* variables say
// (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/), and nowhere without
// OTEL_EXPORTER_OTLP_ENDPOINT; a variable that cannot be followed is an error. Call Stop at the end.
func Start(ctx context.Context, cfg Config, service string, roots func(span string) bool, logger *slog.Logger) (*Process, error) {
	p := &Process{cfg: cfg, logger: logger}
	if cfg.MetricsListen != "" {
		lis, err := net.Listen("tcp", cfg.MetricsListen)
		if err != nil {
			return nil, fmt.Errorf("--metrics-listen: %w", err)
		}
		p.lis = lis
	}
	host, _ := os.Hostname() // without one the resource has none
	res, err := resource.New(ctx,
		resource.WithAttributes(
			semconv.ServiceName(service), semconv.ServiceNamespace("trireme"), semconv.ServiceVersion(Version()),
			semconv.ServiceInstanceID(fmt.Sprintf("%s/%d", host, os.Getpid())), semconv.HostName(host)),
		resource.WithFromEnv())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err), p.close())
	}
	if p.traces, err = startTraces(ctx, res, roots, logger); err != nil {
		return nil, errors.Join(err, p.close())
	}
	if p.metrics, err = startMetrics(res, p.traces); err != nil {
		return nil, errors.Join(err, p.close())
	}
	current.Store(p)
	otel.SetTracerProvider(p.traces.provider)
	otel.SetMeterProvider(p.metrics.provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	otel.SetErrorHandler(otel.ErrorHandlerFunc(p.traces.report))
	return p, nil
}

// MetricsAddr is where metrics are served, nil if nowhere.
func (p *Process) MetricsAddr() net.Addr {
	if p.lis == nil {
		return nil
	}
	return p.lis.Addr()
}

// Run serves /metrics (Prometheus), /livez and /readyz until ctx ends. ready says whether the process does its work; an
// error is what /readyz answers.
func (p *Process) Run(ctx context.Context, ready func() error) error {
	if p.lis == nil {
		<-ctx.Done()
		return nil
	}
	p.logger.Info("serving metrics", slog.String(KeyAddress, p.lis.Addr().String()))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.metrics.handler)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // it ends at once: nothing in flight matters
	defer stop()
	if err := server.Serve(p.lis); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// current is the process whose providers are the global ones.
var current atomic.Pointer[Process]

// SpansDropped is what the running process's SpansDropped says; 0 where none was started.
func SpansDropped() int64 {
	if p := current.Load(); p != nil {
		return p.SpansDropped()
	}
	return 0
}

// SpansDropped counts the spans that this process recorded and could not hand over: the queue was full, or the
// collector did not take them.
func (p *Process) SpansDropped() int64 { return p.traces.dropped() }

// Stop hands over what is left, within two seconds, and reports what was lost.
func (p *Process) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	p.traces.stop(ctx)
	if err := errors.Join(p.metrics.provider.Shutdown(ctx), p.close()); err != nil {
		p.logger.Warn("telemetry stopped with errors", slog.Any(KeyError, err))
	}
}

func (p *Process) close() error {
	if p.lis == nil {
		return nil
	}
	if err := p.lis.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
