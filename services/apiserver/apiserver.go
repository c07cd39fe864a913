// Package apiserver is the gateway: the one place where Trireme's chains meet. It serves every kind over gRPC and keeps
// their objects in etcd, its own or another. It runs no controllers and places no pods.
//
// The chain of a request is gateway → admission → registry → storage; what has been stored comes back to watchers
// through watchcache. internal/server wires it; this file chooses the store and the listeners.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc"

	"trireme.dev/kit/daemon"
	"trireme.dev/kit/rpc"
	"trireme.dev/services/apiserver/internal/server"
	"trireme.dev/services/apiserver/internal/storage/etcd"
	"trireme.dev/services/apiserver/internal/storage/etcd/embedded"
)

// Server is a gateway that can be run once.
type Server struct {
	cfg    Config
	logger *slog.Logger
	ready  chan struct{}

	mu   sync.Mutex
	addr net.Addr
}

// New checks the configuration. Nothing is opened before Run.
func New(cfg Config, logger *slog.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, logger: logger, ready: make(chan struct{})}, nil
}

// Ready is closed once calls are served.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr is where TCP is served, once Ready is closed; nil where it is not.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// Run serves until ctx ends or the store fails for good. With an embedded etcd, its data is flushed before Run returns.
func (s *Server) Run(ctx context.Context) error {
	if len(s.cfg.EtcdEndpoints) == 0 {
		return s.runEmbedded(ctx)
	}
	client, err := etcd.Dial(etcd.ClientConfig{
		Endpoints: s.cfg.EtcdEndpoints,
		CertFile:  s.cfg.EtcdCertFile, KeyFile: s.cfg.EtcdKeyFile, CAFile: s.cfg.EtcdCAFile,
	})
	if err != nil {
		return err
	}
	store := etcd.New(client, 0)
	if err := store.Probe(ctx); err != nil {
		return errors.Join(fmt.Errorf("reach etcd at %v: %w", s.cfg.EtcdEndpoints, err), client.Close())
	}
	if store.MaxOps() < embedded.MaxTxnOps {
		s.logger.Warn("etcd takes small transactions only: larger gangs will be refused",
			"maxTxnOps", store.MaxOps(), "startEtcdWith", etcd.Flags)
	}
	return errors.Join(s.serve(ctx, store), client.Close())
}

func (s *Server) runEmbedded(ctx context.Context) error {
	db, err := embedded.Start(ctx, embedded.Config{Dir: s.cfg.DataDir, Logger: s.logger})
	if err != nil {
		return err
	}
	// After everything that uses it.
	defer db.Close()
	return daemon.Run(ctx,
		daemon.Task{Name: "etcd", Run: db.Run},
		daemon.Task{Name: "gateway", Run: func(ctx context.Context) error {
			return s.serve(ctx, etcd.New(db.Client(), embedded.MaxTxnOps))
		}},
	)
}

func (s *Server) serve(ctx context.Context, store *etcd.Store) error {
	srv, err := server.New(server.Deps{
		Store:    store,
		DialNode: s.dialNode,
		Logger:   s.logger,
		RPC: rpc.ServerConfig{
			Name: "apiserver", UnixSocket: s.cfg.Socket, TCP: s.cfg.Listen,
			CertFile: s.cfg.CertFile, KeyFile: s.cfg.KeyFile, CAFile: s.cfg.CAFile, InsecureTCP: s.cfg.Insecure,
		},
	})
	if err != nil {
		return err
	}
	return daemon.Run(ctx,
		daemon.Task{Name: "server", Run: func(ctx context.Context) error { return srv.Run(ctx) }},
		daemon.Task{Name: "ready", Run: func(ctx context.Context) error {
			select {
			case <-ctx.Done():
			case <-srv.Ready():
				s.mu.Lock()
				s.addr = srv.Addr()
				s.mu.Unlock()
				close(s.ready)
			}
			return nil
		}},
	)
}

// dialNode connects to a node's agent, whose certificate must name the node.
func (s *Server) dialNode(node, address string) (*grpc.ClientConn, error) {
	return rpc.Dial(rpc.ClientConfig{
		Address: address, ServerName: node,
		CertFile: s.cfg.CertFile, KeyFile: s.cfg.KeyFile, CAFile: s.cfg.CAFile,
		InsecureTCP: s.cfg.Insecure,
	})
}
