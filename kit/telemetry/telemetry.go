// Package telemetry owns how a process reports on itself: its logger and the names of log attributes, its spans, its
// metrics and its health over HTTP. It alone knows OpenTelemetry's SDK; everybody else speaks the API. It never decides
// what is worth reporting.
package telemetry

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace"
)

// Config is what an operator sets about logs and metrics. Spans are set by the standard OTEL_* variables.
type Config struct {
	// Level is the lowest level written; the zero value is Info.
	Level slog.Level
	// JSON writes one JSON object a line instead of key=value text.
	JSON bool
	// MetricsListen is the host:port of /metrics, /livez and /readyz; empty serves none. Plain HTTP without
	// authentication: an address of the machine itself, or a network that is trusted.
	MetricsListen string
}

// AddFlags registers --log-level, --log-json and --metrics-listen.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.TextVar(&c.Level, "log-level", c.Level, "lowest `level` that is logged: debug, info, warn or error")
	fs.BoolVar(&c.JSON, "log-json", c.JSON, "log JSON objects instead of text")
	fs.StringVar(&c.MetricsListen, "metrics-listen", c.MetricsListen,
		"`host:port` on which to serve /metrics, /livez and /readyz over plain HTTP; none when empty")
}

// NewLogger returns a logger that writes to stderr and names the service on every line.
func NewLogger(cfg Config, service string) *slog.Logger {
	return NewLoggerTo(os.Stderr, cfg, service)
}

// NewLoggerTo is NewLogger with another place to write to.
func NewLoggerTo(w io.Writer, cfg Config, service string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: cfg.Level}
	var h slog.Handler = slog.NewTextHandler(w, opts)
	if cfg.JSON {
		h = slog.NewJSONHandler(w, opts)
	}
	return slog.New(traced{h}).With(slog.String(KeyService, service))
}

// traced adds the trace of a line's context to the line, so that one finds the other.
type traced struct{ slog.Handler }

// Handle implements slog.Handler.
func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsSampled() {
		r.AddAttrs(slog.String(KeyTraceID, sc.TraceID().String()), slog.String(KeySpanID, sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }
