// Package rpc owns how the processes talk: one gRPC server shape (mutual TLS over TCP, a local unix
// socket, health, reflection, interceptors) and one way to dial it. It never knows which services are
// registered, nor who may call what: it says who is calling.
package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"trireme.dev/kit/telemetry"
)

const (
	// maxMessage bounds one message in either direction: a Bind of the largest gang and a chunk of a list
	// stay far below it.
	maxMessage = 64 << 20
	// defaultDrain is how long Run waits for calls in flight when it is told to stop.
	defaultDrain = 5 * time.Second
)

// ServerConfig is what an operator sets about a server.
type ServerConfig struct {
	// Name is the process's name in logs and in the message that callers get while it stops.
	Name string
	// UnixSocket is the path of the local socket. Its mode is 0600 and whoever can open it is admin.
	// Empty means none.
	UnixSocket string
	// TCP is the host:port to listen on. Empty means none.
	TCP string
	// CertFile, KeyFile and CAFile are the server's certificate and the CA that signs its callers. Required
	// with TCP unless InsecureTCP. They are read again when they change.
	CertFile, KeyFile, CAFile string
	// InsecureTCP serves TCP without TLS. Its callers are system:anonymous.
	InsecureTCP bool
	// Loopback is served beside the others, for the process's own calls; nil for none.
	Loopback *Loopback
	// DrainTimeout bounds how long Run waits for calls in flight when ctx ends; 5 s when zero.
	DrainTimeout time.Duration
	// Unary tells which methods of an unknown-service handler, to which gRPC gives streams only, are calls with an end:
	// those finish when the server stops, like other unary calls. Nil means none. Streams are told to end.
	Unary func(method string) bool
	// OpenMethods are the full names (/package.Service/Method) of the methods that may be called over TLS without a
	// certificate. Where there are any, the server shows its CA to callers, who may know no more of it than a hash. All
	// other calls without a certificate fail with UNAUTHENTICATED.
	OpenMethods []string
	// NoReflection leaves the reflection service out, for a server that registers its own.
	NoReflection bool
}

// Server is one gRPC server over all its listeners. Register services on it as on a *grpc.Server, then Run
// it, once.
type Server struct {
	cfg    ServerConfig
	logger *slog.Logger
	grpc   *grpc.Server
	health *health.Server
	crew   *crew
	drain  context.Context // ends when Run stops: streams end with it
	stop   context.CancelCauseFunc
	ready  chan struct{}
	addr   net.Addr // of the TCP listener; set before ready is closed
}

// NewServer builds the server; it listens only in Run. opts come after this package's own options, so they
// may add interceptors (which run inside ours), a codec or an unknown-service handler.
func NewServer(cfg ServerConfig, logger *slog.Logger, opts ...grpc.ServerOption) (*Server, error) {
	creds := serverCredentials{}
	if cfg.TCP != "" && !cfg.InsecureTCP {
		conf, err := serverTLS(cfg)
		if err != nil {
			return nil, fmt.Errorf("server %s: %w", cfg.Name, err)
		}
		creds.tls = credentials.NewTLS(conf)
	}
	s := &Server{cfg: cfg, logger: logger, health: health.NewServer(), ready: make(chan struct{}), crew: newCrew()}
	s.drain, s.stop = context.WithCancelCause(context.Background())

	own := []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		// Outermost first.
		grpc.ChainUnaryInterceptor(
			s.recoverUnary,   // outermost: a panic in an interceptor must not end the process either
			s.logUnary,       // outside the mapping: it logs the code that the caller sees
			s.mapErrorsUnary, // everything outside it sees statuses only
			s.knownUnary,     // innermost of ours: what it refuses is logged and mapped like other errors
		),
		grpc.ChainStreamInterceptor(s.crewStream, s.recoverStream, s.logStream, s.drainStream, s.mapErrorsStream, s.knownStream),
	}
	own = append(own, serverSpans()...)
	s.grpc = grpc.NewServer(append(own, opts...)...)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	s.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	return s, nil
}

// RegisterService implements grpc.ServiceRegistrar: generated RegisterXServer functions take the server.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	s.grpc.RegisterService(desc, impl)
}

// GetServiceInfo implements reflection.ServiceInfoProvider.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo { return s.grpc.GetServiceInfo() }

// Ready is closed once the server listens and reports SERVING.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr is the address of the TCP listener, nil when there is none. Valid once Ready is closed.
func (s *Server) Addr() net.Addr { return s.addr }

// Run listens on what the configuration names, serves until ctx is done, then drains: health turns NOT_SERVING, clients
// are told to connect elsewhere, streams end with UNAVAILABLE after what was sent on them, unary calls finish, for
// DrainTimeout at most. Under systemd it reports when it serves and when it stops.
func (s *Server) Run(ctx context.Context) error {
	var lis []net.Listener
	closeAll := func() {
		for _, l := range lis {
			_ = l.Close() // nothing was served on it yet
		}
	}
	if s.cfg.UnixSocket != "" {
		l, err := ListenUnix(s.cfg.UnixSocket)
		if err != nil {
			return err
		}
		lis = append(lis, l)
	}
	if s.cfg.TCP != "" {
		l, err := net.Listen("tcp", s.cfg.TCP)
		if err != nil {
			closeAll()
			return err
		}
		s.addr = l.Addr()
		lis = append(lis, l)
	}
	if s.cfg.Loopback != nil {
		lis = append(lis, s.cfg.Loopback)
	}
	if len(lis) == 0 {
		return fmt.Errorf("server %s: neither a socket nor an address to listen on", s.cfg.Name)
	}
	return s.Serve(ctx, lis...)
}

// Serve is Run on listeners that the caller made. It closes them. Connections of listeners that are not
// TCP count as local, so their callers are admin.
func (s *Server) Serve(ctx context.Context, lis ...net.Listener) error {
	if !s.cfg.NoReflection {
		reflection.Register(s.grpc)
	}
	failed := make(chan error, len(lis))
	var wg sync.WaitGroup
	for _, l := range lis {
		wg.Go(func() { failed <- s.grpc.Serve(l) })
		if l != net.Listener(s.cfg.Loopback) {
			s.logger.LogAttrs(ctx, slog.LevelInfo, "listening", slog.String(telemetry.KeyAddress, l.Addr().String()))
		}
	}
	s.health.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	close(s.ready)
	notify("READY=1")

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	notify("STOPPING=1")
	s.shutdown()
	wg.Wait()
	close(s.crew.over)
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("server %s: %w", s.cfg.Name, err)
	}
	return nil
}

func (s *Server) shutdown() {
	s.health.Shutdown()
	s.stop(errDraining)
	timeout := s.cfg.DrainTimeout
	if timeout == 0 {
		timeout = defaultDrain
	}
	hard := time.AfterFunc(timeout, s.grpc.Stop)
	defer hard.Stop()
	s.grpc.GracefulStop()
}

func serverTLS(cfg ServerConfig) (*tls.Config, error) {
	files, err := loadFiles(cfg.CertFile, cfg.KeyFile, cfg.CAFile)
	if err != nil {
		return nil, err
	}
	conf := &tls.Config{
		MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs:  files.pool,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return files.certificate(), nil
		},
	}
	if len(cfg.OpenMethods) > 0 {
		conf.ClientAuth = tls.VerifyClientCertIfGiven
		conf.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			shown := *files.certificate()
			shown.Certificate = append(slices.Clone(shown.Certificate), files.authorities...)
			return &shown, nil
		}
	}
	return conf, nil
}
