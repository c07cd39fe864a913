package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/telemetry"
)

// slow is the duration from which an answered unary call is worth a line at Info.
const slow = time.Second

// errDraining is the cause with which the contexts of streams end when the server stops.
var errDraining = errors.New("server is stopping")

// known refuses a call without a certificate of a method that is not open.
func (s *Server) known(ctx context.Context, method string) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	if info, ok := p.AuthInfo.(authInfo); !ok || !info.unproven || slices.Contains(s.cfg.OpenMethods, method) {
		return nil
	}
	return apierr.Unauthenticated(fmt.Sprintf("%s needs a client certificate, and this connection has none (--cert, --key, --ca)", method))
}

func (s *Server) knownUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := s.known(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (s *Server) knownStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := s.known(ss.Context(), info.FullMethod); err != nil {
		return err
	}
	return next(srv, ss)
}

func (s *Server) recoverUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(ctx, info.FullMethod, p)
		}
	}()
	return next(ctx, req)
}

func (s *Server) recoverStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(ss.Context(), info.FullMethod, p)
		}
	}()
	return next(srv, ss)
}

func (s *Server) panicked(ctx context.Context, method string, p any) error {
	s.logger.LogAttrs(ctx, slog.LevelError, "call panicked",
		slog.String(telemetry.KeyMethod, method),
		slog.Any(telemetry.KeyError, p),
		slog.String(telemetry.KeyStack, string(debug.Stack())))
	return status.Errorf(codes.Internal, "%s: internal error in %s, see its log", s.cfg.Name, method)
}

func (s *Server) logUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	start := time.Now()
	resp, err := next(ctx, req)
	s.logCall(ctx, info.FullMethod, time.Since(start), err, false)
	return resp, err
}

func (s *Server) logStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	start := time.Now()
	err := next(srv, ss)
	s.logCall(ss.Context(), info.FullMethod, time.Since(start), err, true)
	return err
}

func (s *Server) logCall(ctx context.Context, method string, took time.Duration, err error, stream bool) {
	code := status.Code(err)
	level := slog.LevelDebug
	if failure(code) || (took >= slow && !stream) {
		level = slog.LevelInfo
	}
	if !s.logger.Enabled(ctx, level) || strings.HasPrefix(method, "/grpc.health.") {
		return
	}
	caller, _ := CallerFrom(ctx)
	attrs := []slog.Attr{
		slog.String(telemetry.KeyMethod, method),
		slog.String(telemetry.KeyCode, code.String()),
		slog.Duration(telemetry.KeyDuration, took),
		slog.String(telemetry.KeyUser, caller.User),
	}
	if err != nil {
		attrs = append(attrs, slog.String(telemetry.KeyError, status.Convert(err).Message()))
	}
	s.logger.LogAttrs(ctx, level, "call", attrs...)
}

// failure tells an error that somebody should look at from an answer that clients expect in normal work:
// an absent object, a lost race, an expired watch, a caller that went away.
func failure(code codes.Code) bool {
	switch code {
	case codes.OK, codes.Canceled, codes.NotFound, codes.AlreadyExists, codes.Aborted, codes.OutOfRange:
		return false
	}
	return true
}

func (s *Server) mapErrorsUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	resp, err := next(ctx, req)
	if err != nil {
		return nil, apierr.ToStatus(err)
	}
	return resp, nil
}

func (s *Server) mapErrorsStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	err := next(srv, ss)
	if err == nil {
		return nil
	}
	if errors.Is(context.Cause(ss.Context()), errDraining) {
		return status.Error(codes.Unavailable, fmt.Sprintf("%s is stopping", s.cfg.Name))
	}
	return apierr.ToStatus(err)
}

// drainStream ends a stream's context when the server stops: a watch would otherwise hold up the stop for as
// long as its client likes. What the handler still sends then is delivered: only its context ends, not the stream.
func (s *Server) drainStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if s.cfg.Unary != nil && s.cfg.Unary(info.FullMethod) {
		return next(srv, ss)
	}
	ctx, cancel := context.WithCancelCause(ss.Context())
	defer cancel(nil)
	stop := context.AfterFunc(s.drain, func() { cancel(errDraining) })
	defer stop()
	return next(srv, &contextStream{ServerStream: ss, ctx: ctx})
}

// contextStream is a stream whose handler sees another context.
type contextStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *contextStream) Context() context.Context { return s.ctx }
