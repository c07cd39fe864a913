// Package gateway is the API on the wire: one table of methods behind gRPC's unknown-service handler, filled from the
// registry's kinds, with messages passed on as bytes. It turns requests into calls of the registry, and streams to
// pods' containers into calls of node agents. chain.go lists the stages that every call passes. It decides nothing about
// objects. It is the outermost part of the chain gateway → authorization → admission → registry → watchcache → storage.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	"trireme.dev/services/apiserver/internal/audit"
	"trireme.dev/services/apiserver/internal/authorization"
	"trireme.dev/services/apiserver/internal/registry"
	"trireme.dev/services/apiserver/internal/storage"
)

// warningTrailer carries one warning a value.
const warningTrailer = "trireme-warning-bin"

// Deps of a gateway.
type Deps struct {
	Registry *registry.Registry
	// Store is the registry's, for what concerns it as a whole.
	Store      storage.Store
	Authorizer *authorization.Authorizer
	// Audit is told of calls; nil for nobody.
	Audit *audit.Log
	Nodes NodeDialer
	// Scheduler connects to schedulers; nil where sockets are all that is dialled.
	Scheduler SchedulerDialer
	Logger    *slog.Logger
}

// Gateway answers calls. Create it with New, give its ServerOptions to the server, and
// RegisterReflection.
type Gateway struct {
	registry   *registry.Registry
	store      storage.Store
	authorizer *authorization.Authorizer
	audit      *audit.Log
	nodes      *nodes
	logger     *slog.Logger
	chain      []stage
	unary      map[string]bool  // methods with an end, by the same
	methods    map[string]*call // by /package.Service/Method
	metrics    *metrics
	services   []protoreflect.ServiceDescriptor
}

// handler serves one method.
type handler func(ctx context.Context, s grpc.ServerStream) error

// New builds the table.
func New(deps Deps) (*Gateway, error) {
	g := &Gateway{
		registry: deps.Registry, store: deps.Store, logger: deps.Logger, authorizer: deps.Authorizer, audit: deps.Audit,
		nodes:   &nodes{registry: deps.Registry, dialer: deps.Nodes},
		methods: map[string]*call{}, unary: map[string]bool{}, metrics: newMetrics(),
	}
	g.chain = g.stages()
	for _, res := range deps.Registry.Resources() {
		if err := g.add(res.Kind.Service, res.Kind, func(m string) handler { return g.verb(res, m) },
			func(m string) handler { return scaleVerb(res, m) }, g.podVerb); err != nil {
			return nil, err
		}
	}
	for _, v := range deps.Registry.Versions() {
		if err := g.add(v.Kind.Service, v.Kind, func(m string) handler { return g.verb(v, m) }); err != nil {
			return nil, err
		}
	}
	if err := g.addNodeService(); err != nil {
		return nil, err
	}
	if err := g.addMaintenance(); err != nil {
		return nil, err
	}
	if err := g.addSchedulerService(deps.Scheduler); err != nil {
		return nil, err
	}
	if err := g.addAccessReview(); err != nil {
		return nil, err
	}
	return g, nil
}

// add fills the table with the methods of a service. Each is looked for in sources, in order; one that none knows is a
// mistake in the proto. k is the kind that the service is of, nil for none.
func (g *Gateway) add(service protoreflect.ServiceDescriptor, k *kind.Kind, sources ...func(string) handler) error {
	g.services = append(g.services, service)
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		var h handler
		for _, source := range sources {
			if h = source(string(m.Name())); h != nil {
				break
			}
		}
		if h == nil {
			return fmt.Errorf("nothing serves %s", m.FullName())
		}
		full := "/" + string(service.FullName()) + "/" + string(m.Name())
		g.methods[full] = newCall(k, m, h)
		g.unary[full] = !m.IsStreamingClient() && !m.IsStreamingServer() || m.Name() == "List"
	}
	return nil
}

// Unary tells which methods have an end of their own, though gRPC has streams for all of them: they finish when the server
// stops. A list is one of them, a watch is not.
func (g *Gateway) Unary(method string) bool { return g.unary[method] }

// ServerOptions make a server hand all that it has no service for to the gateway, and take the calls of its services through
// the same stages.
func (g *Gateway) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.UnknownServiceHandler(g.serve),
		grpc.ForceServerCodecV2(Codec()),
		grpc.ChainUnaryInterceptor(g.registeredUnary),
		grpc.ChainStreamInterceptor(g.registeredStream),
	}
}

func (g *Gateway) serve(_ any, s grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(s)
	if !ok {
		return apierr.Internal(errors.New("stream without a method"))
	}
	c := g.methods[method]
	if c == nil {
		return g.unknown(method)
	}
	return g.measured(s.Context(), &exchange{ServerStream: s, call: c, serve: c.serve})
}

// registeredUnary takes a call of a service that the server has by itself through the stages: health, joining.
func (g *Gateway) registeredUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	x := &exchange{call: plainCall(info.FullMethod), serve: func(ctx context.Context, _ grpc.ServerStream) error {
		resp, err = next(ctx, req)
		return err
	}}
	if err := g.pass(ctx, x); err != nil {
		return nil, err
	}
	return resp, nil
}

// registeredStream does so with streams. What the table serves goes through them further in.
func (g *Gateway) registeredStream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if srv == nil {
		return next(srv, s)
	}
	x := &exchange{ServerStream: s, call: plainCall(info.FullMethod), serve: func(_ context.Context, _ grpc.ServerStream) error { return next(srv, s) }}
	return g.pass(s.Context(), x)
}

func (g *Gateway) unknown(method string) error {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	for _, d := range g.services {
		if string(d.FullName()) == service {
			return apierr.Unimplemented(fmt.Sprintf("unknown method %s of service %s", name, service))
		}
	}
	return apierr.Unimplemented(fmt.Sprintf("unknown service %s (method %s)", service, name))
}

// receive reads one request.
func receive(s grpc.ServerStream, into proto.Message) error {
	raw, err := receiveBytes(s)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(raw, into); err != nil {
		return apierr.BadRequest(fmt.Sprintf("request is not a %s: %v", into.ProtoReflect().Descriptor().FullName(), err))
	}
	return nil
}

func receiveBytes(s grpc.ServerStream) ([]byte, error) {
	var f frame
	switch err := s.RecvMsg(&f); {
	case errors.Is(err, io.EOF):
		return nil, apierr.BadRequest("the call has no request message")
	case err != nil:
		return nil, err
	}
	return f, nil
}

// sendMessage answers with a message of our own making.
func sendMessage(s grpc.ServerStream, m proto.Message) error {
	raw, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return s.SendMsg(frame(raw))
}

// sendResult answers with an object as it is stored, and with the warnings about it.
func sendResult(s grpc.ServerStream, r registry.Result) error {
	warn(s, r.Warnings)
	return s.SendMsg(frame(r.Bytes()))
}

// warn tells the caller, once the call ends.
func warn(s grpc.ServerStream, warnings []string) {
	if len(warnings) == 0 {
		return
	}
	md := metadata.MD{}
	for _, w := range warnings {
		md.Append(warningTrailer, w)
	}
	s.SetTrailer(md)
}
