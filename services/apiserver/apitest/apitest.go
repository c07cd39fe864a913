// Package apitest runs the real gateway on a store in memory, for tests of everything that talks to it. Nothing in it
// is imitated but etcd, whose engine passes the same suite as the real one.
package apitest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
	"trireme.dev/services/apiserver/internal/audit"
	"trireme.dev/services/apiserver/internal/gateway"
	"trireme.dev/services/apiserver/internal/server"
	"trireme.dev/services/apiserver/internal/storage"
	"trireme.dev/services/apiserver/internal/storage/memory"
)

// TraceRoot says which spans of the gateway may begin a trace, for recorders of tests that run one.
func TraceRoot(span string) bool { return gateway.TraceRoot(span) }

// Operation is what a fault decides about: Name is get, list, commit, watch, revision or compact; Key is a key or prefix
// (/trireme/core/pods/default/web); Done is set when a commit has been applied and only its answer can still be lost.
type Operation = memory.Operation

// ErrUnavailable is what a fault returns to look like a store that does not answer.
var ErrUnavailable = storage.ErrUnavailable

// Server is a gateway that runs until the test ends.
type Server struct {
	store *memory.Store
	conn  *grpc.ClientConn
	lis   *bufconn.Listener
	own   *rpc.Loopback

	mu    sync.Mutex
	fault func(Operation) error
	dial  func(node, address string) (*grpc.ClientConn, error)
}

// Config of a gateway.
type Config struct {
	// AuditLog is a file that calls are told to; empty for none.
	AuditLog string
}

// New starts a gateway and waits until it serves. It is stopped, and has ended, before the test does. Works inside a
// synctest bubble.
func New(t testing.TB) *Server {
	t.Helper()
	return NewConfigured(t, Config{})
}

// NewConfigured is New with a configuration.
func NewConfigured(t testing.TB, cfg Config) *Server {
	t.Helper()
	s := &Server{lis: bufconn.Listen(1 << 20), own: rpc.NewLoopback(rpc.Caller{})}
	s.store = memory.New(memory.Config{Fault: s.decide})
	logger := slog.New(slog.DiscardHandler)
	ca, err := pki.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var log *audit.Log
	if cfg.AuditLog != "" {
		log = audit.New(audit.Config{File: cfg.AuditLog, Logger: logger})
	}
	srv, err := server.New(server.Deps{
		Audit: log, Store: s.store, DialNode: s.dialNode, Logger: logger, RPC: rpc.ServerConfig{Name: "apiserver"}, CA: ca,
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.conn, err = s.Dial(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx, s.lis, s.own) }()
	t.Cleanup(func() {
		_ = s.conn.Close() // a test may have closed it
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("gateway: %v", err)
		}
	})
	select {
	case <-srv.Ready():
	case err := <-ended:
		ended <- err
		t.Fatalf("gateway did not start: %v", err)
	}
	return s
}

// Conn is a connection of user admin. It is closed when the test ends.
func (s *Server) Conn() *grpc.ClientConn { return s.conn }

// Dial makes one more connection, which the caller closes: a client that can be cut off by itself.
func (s *Server) Dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///apitest",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		rpc.ClientSpans(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.MaxCallSendMsgSize(64<<20)),
	)
}

// Listen serves on a unix socket too, until the test ends, for what dials by itself, and returns its address.
func (s *Server) Listen(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "apitest") // t.TempDir may be longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	lis, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			outside, err := lis.Accept()
			if err != nil {
				return // closed
			}
			wg.Go(func() { s.carry(ctx, outside) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = lis.Close()
		wg.Wait()
		_ = os.RemoveAll(dir)
	})
	return "unix://" + path
}

// carry joins a connection from outside to the gateway until either end closes it, or ctx ends.
func (s *Server) carry(ctx context.Context, outside net.Conn) {
	inside, err := s.lis.DialContext(ctx)
	if err != nil {
		_ = outside.Close()
		return
	}
	end := sync.OnceFunc(func() {
		_ = outside.Close()
		_ = inside.Close()
	})
	defer context.AfterFunc(ctx, end)()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(inside, outside); end() })
	wg.Go(func() { _, _ = io.Copy(outside, inside); end() })
	wg.Wait()
}

// DialAs makes a connection of any caller, which whoever asks for it closes.
func (s *Server) DialAs(caller rpc.Caller) (*grpc.ClientConn, error) {
	return s.own.DialAs(caller, rpc.ClientSpans())
}

// SetFault decides from now on which operations of the store fail; nil for none.
func (s *Server) SetFault(fault func(Operation) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *Server) decide(op Operation) error {
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(op)
}

// SetNodeDialer says how the gateway reaches node agents; without one it cannot.
func (s *Server) SetNodeDialer(dial func(node, address string) (*grpc.ClientConn, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dial = dial
}

func (s *Server) dialNode(node, address string) (*grpc.ClientConn, error) {
	s.mu.Lock()
	dial := s.dial
	s.mu.Unlock()
	if dial == nil {
		return nil, fmt.Errorf("no dialer for node %s is set", node)
	}
	return dial(node, address)
}

// Revision of the store now.
func (s *Server) Revision(t testing.TB) int64 {
	t.Helper()
	revision, err := s.store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// Compact forgets history before a revision: whoever resumes from before it must list again.
func (s *Server) Compact(t testing.TB, revision int64) {
	t.Helper()
	if err := s.store.Compact(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
}

// Put writes bytes under a key behind the gateway's back.
func (s *Server) Put(t testing.TB, key string, value []byte) {
	t.Helper()
	if _, err := s.store.Commit(t.Context(), storage.Txn{Then: []storage.Op{{Key: key, Value: value}}}); err != nil {
		t.Fatal(err)
	}
}

// Stored returns the bytes under a key as they are in the store.
func (s *Server) Stored(t testing.TB, key string) []byte {
	t.Helper()
	entry, found, _, err := s.store.Get(t.Context(), key)
	if err != nil || !found {
		t.Fatalf("%s: found %v, %v", key, found, err)
	}
	return entry.Value
}
