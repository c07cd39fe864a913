package component

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/kit/telemetry"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
)

// maxError bounds the text of an error that is kept.
const maxError = 500

// Errors remembers the last error that a logger was given. A nil *Errors remembers none.
type Errors struct {
	mu   sync.Mutex
	last *componentv1.ComponentError
}

// Remember returns a logger that writes as the given one does and remembers errors, those at level Error and above.
func Remember(logger *slog.Logger) (*slog.Logger, *Errors) {
	e := &Errors{}
	return slog.New(remembering{Handler: logger.Handler(), errors: e}), e
}

// Last is the last error; nil where there was none.
func (e *Errors) Last() *componentv1.ComponentError {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return proto.CloneOf(e.last)
}

type remembering struct {
	slog.Handler

	errors *Errors
}

// Enabled implements slog.Handler.
func (h remembering) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError || h.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h remembering) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == telemetry.KeyError || a.Key == telemetry.KeyMessage {
				text += ": " + a.Value.String()
			}
			return true
		})
		text, _, _ = strings.Cut(text, "\n") // the stack of a panic is in the log
		if len(text) > maxError {
			text = strings.ToValidUTF8(text[:maxError], "") + "…"
		}
		h.errors.mu.Lock()
		h.errors.last = &componentv1.ComponentError{Time: timestamppb.New(r.Time), Message: proto.String(text)}
		h.errors.mu.Unlock()
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h remembering) WithAttrs(attrs []slog.Attr) slog.Handler {
	return remembering{Handler: h.Handler.WithAttrs(attrs), errors: h.errors}
}

// WithGroup implements slog.Handler.
func (h remembering) WithGroup(name string) slog.Handler {
	return remembering{Handler: h.Handler.WithGroup(name), errors: h.errors}
}
