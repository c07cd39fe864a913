// Package server wires the gateway's parts over a store: registry, admission, gateway and gRPC server, and makes
// what every cluster has from the start. It chooses neither store nor addresses.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"trireme.dev/client/kind"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
	"trireme.dev/services/apiserver/internal/admission"
	"trireme.dev/services/apiserver/internal/audit"
	"trireme.dev/services/apiserver/internal/authorization"
	"trireme.dev/services/apiserver/internal/compaction"
	"trireme.dev/services/apiserver/internal/gateway"
	"trireme.dev/services/apiserver/internal/join"
	"trireme.dev/services/apiserver/internal/registry"
	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/storage/observed"
)

// Deps of a server.
type Deps struct {
	Store    storage.Store
	DialNode gateway.NodeDialer
	// DialScheduler connects to schedulers; nil where sockets are all that is dialled.
	DialScheduler gateway.SchedulerDialer
	RPC           rpc.ServerConfig
	// CA signs nodes' certificates; nil where this gateway cannot.
	CA *pki.CA
	// Audit is told of calls, and runs with the server; nil for none.
	Audit  *audit.Log
	Logger *slog.Logger
	// EventTTL is how long events are kept after they were last written; an hour where 0.
	EventTTL time.Duration
}

// Server is a gateway, ready to run once.
type Server struct {
	store    *observed.Store
	gateway  *gateway.Gateway
	registry *registry.Registry
	rpc      *rpc.Server
	audit    *audit.Log
	logger   *slog.Logger
}

// New wires the chain gateway → authorization → admission → registry → watchcache → storage.
func New(deps Deps) (*Server, error) {
	kinds := kind.Builtin()
	store := observed.New(deps.Store, registry.Stored(kinds))
	reg, err := registry.New(registry.Deps{Store: store, Kinds: kinds, Logger: deps.Logger, EventTTL: deps.EventTTL})
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	authorizer, err := authorization.New(authorization.Config{Objects: reg, Insecure: deps.RPC.InsecureTCP})
	if err != nil {
		return nil, fmt.Errorf("authorization: %w", err)
	}
	reg.SetAdmission(admission.New(admission.Deps{Registry: reg, Authorizer: authorizer}))
	gw, err := gateway.New(gateway.Deps{
		Registry: reg, Store: store, Authorizer: authorizer, Audit: deps.Audit, Nodes: deps.DialNode, Scheduler: deps.DialScheduler, Logger: deps.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	cfg := deps.RPC
	cfg.NoReflection = true // the gateway's own knows the kinds
	cfg.Unary = gw.Unary
	nodes := join.Deps{Objects: reg, CA: deps.CA, Logger: deps.Logger}
	if cfg.TCP != "" && !cfg.InsecureTCP {
		if nodes.Own, err = pki.ReadCertificate(cfg.CertFile); err != nil {
			return nil, err
		}
		if deps.CA != nil {
			cfg.OpenMethods = join.OpenMethods()
		}
	}
	srv, err := rpc.NewServer(cfg, deps.Logger, gw.ServerOptions()...)
	if err != nil {
		return nil, err
	}
	nodes.Listen = srv.Addr
	nodev1.RegisterJoinServiceServer(srv, join.New(nodes))
	gw.RegisterReflection(srv)
	return &Server{store: store, gateway: gw, registry: reg, rpc: srv, audit: deps.Audit, logger: deps.Logger}, nil
}

// Ready is closed once calls are served.
func (s *Server) Ready() <-chan struct{} { return s.rpc.Ready() }

// Addr is the address of the TCP listener, if there is one, once Ready is closed.
func (s *Server) Addr() net.Addr { return s.rpc.Addr() }

// Run serves until ctx ends, on the listeners given, or on those of the configuration where there are none.
func (s *Server) Run(ctx context.Context, listeners ...net.Listener) error {
	// The log is written until the last call has ended.
	auditing, served := context.WithCancel(context.WithoutCancel(ctx))
	defer served()
	return daemon.Run(ctx,
		daemon.Task{Name: "audit", Run: func(context.Context) error {
			if s.audit == nil {
				return nil
			}
			return s.audit.Run(auditing)
		}},
		daemon.Task{Name: "storage metrics", Run: s.store.Run},
		daemon.Task{Name: "gateway metrics", Run: s.gateway.Run},
		daemon.Task{Name: "registry", Run: s.registry.Run},
		daemon.Task{Name: "compaction", Run: compaction.New(s.store, s.logger).Run},
		daemon.Task{Name: "grpc", Run: func(ctx context.Context) error {
			defer served()
			// Nobody may find a cluster without its first namespaces.
			if err := s.bootstrap(ctx); err != nil {
				return err
			}
			if len(listeners) > 0 {
				return s.rpc.Serve(ctx, listeners...)
			}
			return s.rpc.Run(ctx)
		}},
	)
}
