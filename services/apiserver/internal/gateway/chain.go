package gateway

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"trireme.dev/client/apierr"
	"trireme.dev/client/tracing"
	"trireme.dev/kit/loop"
	"trireme.dev/kit/rpc"
	"trireme.dev/services/apiserver/internal/request"
)

// recheckPeriod is how often it is asked whether a node may still watch an object that a pod of its had named.
const recheckPeriod = 30 * time.Second

// stage is one of those that every call passes.
type stage struct {
	name string
	// span says that the stage's own time is a span of calls that are traced. The others record more than that themselves.
	span bool
	// enter does the stage's part; an error ends the call, and no later stage hears of it.
	enter func(ctx context.Context, x *exchange) (context.Context, error)
	// leave is told how the call ended, where the stage was entered; nil for none.
	leave func(x *exchange, err error)
}

// stages is the order in which every call passes through the gateway. Each stage relies on those before it.
func (g *Gateway) stages() []stage {
	return []stage{
		// Who calls. All that follows is about somebody.
		{name: "Authentication", span: true, enter: g.authenticate},
		// From here on whatever becomes of the call is told, refusals too.
		{name: "Audit", span: g.audit != nil, enter: g.beginAudit, leave: g.endAudit},
		// May they, by what the request asks for. Nothing has been read from the store for them yet.
		{name: "Authorization", span: true, enter: g.authorize, leave: func(x *exchange, _ error) { x.endRecheck() }},
		// Admission needs the object, and the one that it replaces: the registry asks it, before it validates and stores. Here
		// the call gets what it will be asked with; a write without that is refused.
		{name: "Admission", enter: g.prepareAdmission},
		// The call itself.
		{name: "Registry", enter: g.handle},
	}
}

// exchange is one call on its way through the stages. It is the stream that handlers see.
type exchange struct {
	grpc.ServerStream

	call  *call
	at    request.Attributes
	serve handler

	first frame // request that was read for its attributes and waits for the handler
	held  bool  // first is there
	read  bool  // the attributes have been read

	bytes int // of what was sent, where that is told
	audit auditing
	stop  func() // ends the rechecks
}

// errPanicked is how a call ended that did not return.
var errPanicked = errors.New("panic")

// pass takes a call through the stages.
func (g *Gateway) pass(ctx context.Context, x *exchange) (err error) {
	entered := 0
	err = errPanicked
	defer func() {
		for ; entered > 0; entered-- {
			if leave := g.chain[entered-1].leave; leave != nil {
				leave(x, err)
			}
		}
	}()
	sampled := trace.SpanContextFromContext(ctx).IsSampled()
	for i := range g.chain {
		s := &g.chain[i]
		entered = i + 1
		next, failed := enter(ctx, x, s, sampled)
		if failed != nil {
			err = failed
			return err
		}
		ctx = next //nolint:fatcontext // each stage gives the next what it needs, and there are five
	}
	err = nil
	return err
}

func enter(ctx context.Context, x *exchange, s *stage, sampled bool) (context.Context, error) {
	if !sampled || !s.span {
		return s.enter(ctx, x)
	}
	recorded, span := tracing.Start(ctx, s.name)
	_ = recorded // what comes after the stage is no part of it
	defer span.End()
	next, err := s.enter(ctx, x)
	tracing.Fail(span, err)
	return next, err
}

// RecvMsg implements grpc.ServerStream.
func (x *exchange) RecvMsg(m any) error {
	if f, ok := m.(*frame); ok && x.held {
		*f, x.first, x.held = x.first, nil, false
		return nil
	}
	return x.ServerStream.RecvMsg(m)
}

// SendMsg implements grpc.ServerStream.
func (x *exchange) SendMsg(m any) error {
	switch f := m.(type) {
	case frame:
		x.bytes += len(f)
		x.audit.sent(f)
	case frames:
		for _, part := range f {
			x.bytes += len(part)
		}
		x.audit.started()
	}
	return x.ServerStream.SendMsg(m)
}

// attributes reads what the first request says, once; the handler gets it all the same.
func (x *exchange) attributes() error {
	if x.read || !x.call.reads {
		return nil
	}
	raw, err := receiveBytes(x.ServerStream)
	if err != nil {
		return err
	}
	x.read, x.held, x.first = true, true, raw
	return x.at.Read(raw)
}

// userAgent reads what the caller's program says of itself.
func (x *exchange) userAgent(ctx context.Context) {
	if agent := metadata.ValueFromIncomingContext(ctx, "user-agent"); len(agent) > 0 {
		x.at.UserAgent = agent[0]
	}
}

func (g *Gateway) authenticate(ctx context.Context, x *exchange) (context.Context, error) {
	caller, ok := rpc.CallerFrom(ctx)
	if !ok {
		return ctx, apierr.Unauthenticated("the connection does not say who is calling")
	}
	x.at.Method, x.at.Subresource, x.at.Caller = x.call.method, x.call.method.Subresource, caller
	return ctx, nil
}

func (g *Gateway) authorize(ctx context.Context, x *exchange) (context.Context, error) {
	if g.authorizer.Anything(x.at.Caller.User, x.at.Caller.Groups) {
		return ctx, nil
	}
	if err := x.attributes(); err != nil {
		return ctx, err
	}
	if err := g.authorizer.Authorize(ctx, &x.at); err != nil {
		return ctx, err
	}
	if _, node := request.Node(x.at.Caller, ""); node && x.at.Verb == request.Watch && x.at.Kind != "Pod" && x.at.Kind != "Node" {
		return g.recheck(ctx, x), nil
	}
	return ctx, nil
}

// recheck ends the call when it would no longer be allowed: a pod that named the object is gone.
func (g *Gateway) recheck(ctx context.Context, x *exchange) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	x.stop = func() {
		cancel(nil)
		<-ended
	}
	go func() {
		defer close(ended)
		// Its only error is a period of nothing.
		_ = loop.Every(ctx, loop.Config{Name: "recheck", Period: recheckPeriod, Delay: recheckPeriod, Jitter: 0.1, Logger: g.logger},
			func(ctx context.Context) error {
				if err := g.authorizer.Authorize(ctx, &x.at); apierr.IsForbidden(err) {
					cancel(err)
				}
				return nil // a store that does not answer is no reason to end what was allowed
			})
	}()
	return ctx
}

func (x *exchange) endRecheck() {
	if x.stop != nil {
		x.stop()
	}
}

func (g *Gateway) prepareAdmission(ctx context.Context, x *exchange) (context.Context, error) {
	if x.at.ReadOnly() {
		return ctx, nil
	}
	if x.at.UserAgent == "" {
		x.userAgent(ctx)
	}
	return request.With(ctx, &x.at), nil
}

func (g *Gateway) handle(ctx context.Context, x *exchange) (context.Context, error) {
	err := x.serve(ctx, x)
	if cause := context.Cause(ctx); apierr.IsForbidden(cause) {
		err = cause
	}
	return ctx, err
}
