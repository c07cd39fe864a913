// Package apiserver is the gateway: the one place where Trireme's chains meet. It serves every kind over gRPC and keeps
// their objects in etcd, its own or another. It runs no controllers and places no pods.
//
// The chain of a request is gateway → authorization → admission → registry → storage; what has been stored comes back to watchers
// through watchcache. internal/server wires it; this file chooses the store and the listeners.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/kit/component"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
	"trireme.dev/services/apiserver/internal/audit"
	"trireme.dev/services/apiserver/internal/request"
	"trireme.dev/services/apiserver/internal/server"
	"trireme.dev/services/apiserver/internal/storage/etcd"
	"trireme.dev/services/apiserver/internal/storage/etcd/embedded"
)

// Server is a gateway that can be run once.
type Server struct {
	cfg    Config
	logger *slog.Logger
	errors *component.Errors
	ready  chan struct{}

	mu    sync.Mutex
	addr  net.Addr
	store *etcd.Store // once it is open
}

// New checks the configuration. Nothing is opened before Run.
func New(cfg Config, logger *slog.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	logger, errs := component.Remember(logger)
	return &Server{cfg: cfg, logger: logger, errors: errs, ready: make(chan struct{})}, nil
}

// Serving is closed once calls are served.
func (s *Server) Serving() <-chan struct{} { return s.ready }

// Ready says whether calls are served and the store answers; it asks the store, for two seconds at most.
func (s *Server) Ready() error {
	select {
	case <-s.ready:
	default:
		return errors.New("not serving yet")
	}
	s.mu.Lock()
	store := s.store
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	if _, err := store.Revision(ctx); err != nil {
		return fmt.Errorf("the store does not answer: %w", err)
	}
	return nil
}

// readyTimeout bounds how long the store may take to answer.
const readyTimeout = 2 * time.Second

// Addr is where TCP is served, once Serving is closed; nil where it is not.
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
	db, err := embedded.Start(ctx, embedded.Config{Dir: s.cfg.DataDir, Quota: s.cfg.EtcdQuota, Logger: s.logger})
	if err != nil {
		return err
	}
	// After everything that uses it.
	defer db.Close()
	return daemon.Run(ctx,
		daemon.Task{Name: "etcd", Run: db.Run},
		daemon.Task{Name: "gateway", Run: func(ctx context.Context) error {
			store := etcd.New(db.Client(), embedded.MaxTxnOps)
			store.DefragmentLocal = db.Defragment
			return s.serve(ctx, store)
		}},
	)
}

func (s *Server) serve(ctx context.Context, store *etcd.Store) error {
	var ca *pki.CA
	if s.cfg.CAKeyFile != "" {
		var err error
		if ca, err = pki.Load(s.cfg.CAFile, s.cfg.CAKeyFile); err != nil {
			return fmt.Errorf("--ca-key: %w", err)
		}
	}
	own := rpc.NewLoopback(rpc.Caller{User: request.UserGateway, Groups: []string{request.GroupMasters}})
	log, err := s.auditLog()
	if err != nil {
		return err
	}
	srv, err := server.New(server.Deps{
		CA:       ca,
		Audit:    log,
		Store:    store,
		DialNode: s.dial, DialScheduler: s.dial,
		Logger:   s.logger,
		EventTTL: s.cfg.EventTTL,
		RPC: rpc.ServerConfig{
			Name: "apiserver", UnixSocket: s.cfg.Socket, TCP: s.cfg.Listen,
			CertFile: s.cfg.CertFile, KeyFile: s.cfg.KeyFile, CAFile: s.cfg.CAFile, InsecureTCP: s.cfg.Insecure,
			Loopback: own,
		},
	})
	if err != nil {
		return err
	}
	// The server outlives ctx by as long as it takes to take back what the gateway tells of itself.
	serving, drain := context.WithCancel(context.WithoutCancel(ctx))
	defer drain()
	return daemon.Run(ctx,
		daemon.Task{Name: "server", Run: func(context.Context) error { return srv.Run(serving) }},
		daemon.Task{Name: "components", Run: func(ctx context.Context) error {
			defer drain()
			return s.components(ctx, srv, own)
		}},
		daemon.Task{Name: "ready", Run: func(ctx context.Context) error {
			select {
			case <-ctx.Done():
			case <-srv.Ready():
				s.mu.Lock()
				s.addr, s.store = srv.Addr(), store
				s.mu.Unlock()
				close(s.ready)
			}
			return nil
		}},
	)
}

// auditLog makes what calls are told to; nil where nobody wants to know.
func (s *Server) auditLog() (*audit.Log, error) {
	if s.cfg.AuditLog == "" {
		return nil, nil
	}
	cfg := audit.Config{File: s.cfg.AuditLog, MaxSize: s.cfg.AuditMaxSize, MaxFiles: s.cfg.AuditMaxFiles, Logger: s.logger}
	if s.cfg.AuditPolicy != "" {
		var err error
		if cfg.Policy, err = audit.Load(s.cfg.AuditPolicy); err != nil {
			return nil, fmt.Errorf("--audit-policy: %w", err)
		}
	}
	return audit.New(cfg), nil
}

// dial connects to a node's agent or to a scheduler, whose certificate must have the name.
func (s *Server) dial(name, address string) (*grpc.ClientConn, error) {
	return rpc.Dial(rpc.ClientConfig{
		Address: address, ServerName: name,
		CertFile: s.cfg.CertFile, KeyFile: s.cfg.KeyFile, CAFile: s.cfg.CAFile,
		InsecureTCP: s.cfg.Insecure,
	})
}
