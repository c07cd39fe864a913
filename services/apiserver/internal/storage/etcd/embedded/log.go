package embedded

import (
	"context"
	"log/slog"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"trireme.dev/kit/telemetry"
)

// zapLogger makes etcd's warnings and errors lines of our log. All else of what it says is dropped: it is much.
func zapLogger(logger *slog.Logger) *zap.Logger {
	return zap.New(core{logger: logger})
}

type core struct {
	logger *slog.Logger
	fields []zapcore.Field
}

func (c core) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{logger: c.logger, fields: append(c.fields[:len(c.fields):len(c.fields)], fields...)}
}

func (c core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) && !expected(e.Message) {
		return ce.AddCore(e, c)
	}
	return ce
}

// expected are warnings about what is as we want it.
func expected(message string) bool {
	return strings.HasPrefix(message, "Running http and grpc server on single port") ||
		// A new cluster has no version yet; etcd tries again until it has.
		strings.HasPrefix(message, "failed to update storage version") ||
		strings.HasPrefix(message, "exceeded recommended request limit") || strings.HasPrefix(message, "simple token is not cryptographically signed")
}

func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range append(c.fields[:len(c.fields):len(c.fields)], fields...) {
		f.AddTo(enc)
	}
	level := slog.LevelWarn
	if e.Level >= zapcore.ErrorLevel {
		level = slog.LevelError
	}
	c.logger.LogAttrs(context.Background(), level, "etcd", slog.String(telemetry.KeyMessage, e.Message), slog.Any("fields", enc.Fields))
	return nil
}

func (c core) Sync() error { return nil }
