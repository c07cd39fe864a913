// Package telemetry owns how a process reports on itself: its logger and the names of log attributes. It
// never decides what is worth reporting.
package telemetry

import (
	"io"
	"log/slog"
	"os"

	"github.com/spf13/pflag"
)

// Config is what an operator sets about logs.
type Config struct {
	// Level is the lowest level written; the zero value is Info.
	Level slog.Level
	// JSON writes one JSON object a line instead of key=value text.
	JSON bool
}

// AddFlags registers --log-level and --log-json.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.TextVar(&c.Level, "log-level", c.Level, "lowest `level` that is logged: debug, info, warn or error")
	fs.BoolVar(&c.JSON, "log-json", c.JSON, "log JSON objects instead of text")
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
	return slog.New(h).With(slog.String(KeyService, service))
}
