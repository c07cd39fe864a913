package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// behaviour is what the test service does with a call.
type behaviour struct {
	unary  func(ctx context.Context, in string) (string, error)
	stream func(ctx context.Context) error
}

func (b *behaviour) register(s grpc.ServiceRegistrar) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Echo",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Say",
			Handler: func(_ any, ctx context.Context, dec func(any) error, ic grpc.UnaryServerInterceptor) (any, error) {
				in := &wrapperspb.StringValue{}
				if err := dec(in); err != nil {
					return nil, err
				}
				info := &grpc.UnaryServerInfo{FullMethod: "/test.Echo/Say"}
				return ic(ctx, in, info, func(ctx context.Context, _ any) (any, error) {
					out, err := b.unary(ctx, in.Value)
					return wrapperspb.String(out), err
				})
			},
		}},
		Streams: []grpc.StreamDesc{{
			StreamName:    "Wait",
			ServerStreams: true,
			Handler:       func(_ any, ss grpc.ServerStream) error { return b.stream(ss.Context()) },
		}},
	}, b)
}

func say(ctx context.Context, conn *grpc.ClientConn, in string) (string, error) {
	out := &wrapperspb.StringValue{}
	err := conn.Invoke(ctx, "/test.Echo/Say", wrapperspb.String(in), out)
	return out.Value, err
}

type running struct {
	*rpc.Server
	stop func() error // cancels Run and returns what it returned
	log  *syncBuffer
}

func start(t *testing.T, cfg rpc.ServerConfig, b *behaviour, opts ...grpc.ServerOption) running {
	t.Helper()
	log := &syncBuffer{}
	srv, err := rpc.NewServer(cfg, slog.New(slog.NewTextHandler(log, nil)), opts...)
	if err != nil {
		t.Fatal(err)
	}
	if b != nil {
		b.register(srv)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	stop := sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	select {
	case <-srv.Ready():
	case err := <-done:
		done <- err
		t.Fatalf("Run ended at once: %v", err)
	}
	return running{srv, stop, log}
}

func dial(t *testing.T, cfg rpc.ClientConfig) *grpc.ClientConn {
	t.Helper()
	conn, err := rpc.Dial(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func whoAmI(ctx context.Context, _ string) (string, error) {
	c, ok := rpc.CallerFrom(ctx)
	if !ok {
		return "", errors.New("nobody calls")
	}
	return c.User + " in " + strings.Join(c.Groups, ","), nil
}

func TestOneServerKnowsCallersOfEveryListener(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ca.Issue(dir, "server", pki.Identity{CommonName: "server", DNSNames: []string{"gateway", "system:server"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := ca.Issue(dir, "client", pki.Identity{CommonName: "system:node:a", Organizations: []string{"system:nodes"}})
	if err != nil {
		t.Fatal(err)
	}
	otherCA, err := pki.Open(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := otherCA.Issue(dir, "stranger", pki.Identity{CommonName: "admin", Organizations: []string{"system:masters"}})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s.sock")
	srv := start(t, rpc.ServerConfig{
		Name: "test", UnixSocket: socket, TCP: "127.0.0.1:0",
		CertFile: server.Cert, KeyFile: server.Key, CAFile: server.CA,
	}, &behaviour{unary: whoAmI})
	addr := srv.Addr().String()

	tests := []struct {
		name string
		cfg  rpc.ClientConfig
		want string // empty: must be refused
	}{
		{"socket", rpc.ClientConfig{Address: "unix://" + socket}, "admin in system:masters,system:authenticated"},
		{"certificate", rpc.ClientConfig{Address: addr, CertFile: client.Cert, KeyFile: client.Key, CAFile: client.CA}, "system:node:a in system:nodes,system:authenticated"},
		{"server by another name", rpc.ClientConfig{Address: addr, CertFile: client.Cert, KeyFile: client.Key, CAFile: client.CA, ServerName: "gateway"}, "system:node:a in system:nodes,system:authenticated"},
		{"server by a user's name", rpc.ClientConfig{Address: addr, CertFile: client.Cert, KeyFile: client.Key, CAFile: client.CA, ServerName: "system:server"}, "system:node:a in system:nodes,system:authenticated"},
		{"wrong server name", rpc.ClientConfig{Address: addr, CertFile: client.Cert, KeyFile: client.Key, CAFile: client.CA, ServerName: "elsewhere"}, ""},
		{"another CA's certificate", rpc.ClientConfig{Address: addr, CertFile: stranger.Cert, KeyFile: stranger.Key, CAFile: client.CA}, ""},
		{"plain TCP", rpc.ClientConfig{Address: addr, InsecureTCP: true}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := say(t.Context(), dial(t, tt.cfg), "")
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("call = %q, %v; want %q", got, err, tt.want)
			}
			if tt.want == "" && status.Code(err) != codes.Unavailable {
				t.Errorf("code %s, want Unavailable", status.Code(err))
			}
		})
	}
}

func TestInsecureTCPIsAnonymous(t *testing.T) {
	srv := start(t, rpc.ServerConfig{Name: "test", TCP: "127.0.0.1:0", InsecureTCP: true}, &behaviour{unary: whoAmI})
	got, err := say(t.Context(), dial(t, rpc.ClientConfig{Address: srv.Addr().String(), InsecureTCP: true}), "")
	if err != nil || got != "system:anonymous in system:unauthenticated" {
		t.Errorf("call = %q, %v", got, err)
	}
}

func TestTCPNeedsCertificates(t *testing.T) {
	if _, err := rpc.NewServer(rpc.ServerConfig{Name: "test", TCP: "127.0.0.1:0"}, slog.Default()); err == nil {
		t.Error("NewServer accepted TCP without certificates")
	}
	if _, err := rpc.Dial(rpc.ClientConfig{Address: "127.0.0.1:1"}); err == nil {
		t.Error("Dial accepted TCP without certificates")
	}
}

func TestErrorsPanicsAndLog(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	srv := start(t, rpc.ServerConfig{Name: "test", UnixSocket: socket}, &behaviour{unary: func(_ context.Context, in string) (string, error) {
		switch in {
		case "missing":
			return "", apierr.NotFound("Pod", "default/a")
		case "broken":
			return "", errors.New("disk on fire")
		case "panic":
			panic("at the disco")
		}
		return in, nil
	}})
	conn := dial(t, rpc.ClientConfig{Address: "unix://" + socket})

	for in, want := range map[string]codes.Code{"fine": codes.OK, "missing": codes.NotFound, "broken": codes.Internal, "panic": codes.Internal} {
		if _, err := say(t.Context(), conn, in); status.Code(err) != want {
			t.Errorf("%s: code %s, want %s", in, status.Code(err), want)
		}
	}
	_, err := say(t.Context(), conn, "missing")
	if err := apierr.FromStatus(err); !apierr.IsNotFound(err) || err.Error() != `Pod "default/a" not found` {
		t.Errorf("error after the wire: %v", err)
	}
	if err := srv.stop(); err != nil {
		t.Fatal(err)
	}
	log := srv.log.String()
	for _, want := range []string{"disk on fire", "at the disco", "code=Internal", "user=admin", "method=/test.Echo/Say"} {
		if !strings.Contains(log, want) {
			t.Errorf("log lacks %q:\n%s", want, log)
		}
	}
	if strings.Contains(log, "code=NotFound") || strings.Contains(log, "code=OK") {
		t.Errorf("log has ordinary answers at Info:\n%s", log)
	}
}

func TestStopEndsStreamsAndFinishesCalls(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	entered, release := make(chan struct{}, 2), make(chan struct{})
	srv := start(t, rpc.ServerConfig{Name: "test", UnixSocket: socket}, &behaviour{
		unary: func(_ context.Context, in string) (string, error) {
			entered <- struct{}{}
			<-release
			return in, nil
		},
		stream: func(ctx context.Context) error {
			entered <- struct{}{}
			<-ctx.Done()
			close(release) // the unary call ends only after the stop has begun
			return ctx.Err()
		},
	})
	conn := dial(t, rpc.ClientConfig{Address: "unix://" + socket})
	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("health = %v, %v, want SERVING", r, err)
	}
	said := make(chan error, 1)
	go func() {
		out, err := say(context.Background(), conn, "hello")
		if err == nil && out != "hello" {
			err = errors.New("answer is " + out)
		}
		said <- err
	}()
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/test.Echo/Wait")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stream.SendMsg(&wrapperspb.StringValue{}), stream.CloseSend()); err != nil {
		t.Fatal(err)
	}
	<-entered
	<-entered
	if err := srv.stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-said; err != nil {
		t.Errorf("call in flight: %v, want its answer", err)
	}
	err = stream.RecvMsg(&wrapperspb.StringValue{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "test is stopping") {
		t.Errorf("stream ended with %v, want Unavailable: test is stopping", err)
	}
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket after the stop: %v, want none", err)
	}
}

func TestStopIsBounded(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	entered := make(chan struct{})
	srv := start(t, rpc.ServerConfig{Name: "test", UnixSocket: socket, DrainTimeout: 50 * time.Millisecond}, &behaviour{
		unary: func(ctx context.Context, _ string) (string, error) {
			close(entered)
			<-ctx.Done() // ends only when the connection is cut
			return "", ctx.Err()
		},
	})
	conn := dial(t, rpc.ClientConfig{Address: "unix://" + socket})
	said := make(chan error, 1)
	go func() { _, err := say(context.Background(), conn, ""); said <- err }()
	<-entered
	if err := srv.stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-said; status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
		t.Errorf("call that would not end: %v", err)
	}
}

func TestUnixSocket(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "run", "s.sock")
	cfg := rpc.ServerConfig{Name: "test", UnixSocket: socket}
	srv := start(t, cfg, nil)
	st, err := os.Stat(socket)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v, want mode 0600", st, err)
	}
	second, err := rpc.NewServer(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "in use by a running process") {
		t.Errorf("second server on the socket: %v", err)
	}
	if err := srv.stop(); err != nil {
		t.Fatal(err)
	}

	// What a killed process leaves behind.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	start(t, cfg, &behaviour{unary: whoAmI})
	if _, err := say(t.Context(), dial(t, rpc.ClientConfig{Address: "unix://" + socket}), ""); err != nil {
		t.Errorf("call over a socket that was left behind: %v", err)
	}

	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{file: "is no socket", filepath.Join(dir, strings.Repeat("x", 120)): "shorter directory"} {
		s, err := rpc.NewServer(rpc.ServerConfig{Name: "test", UnixSocket: path}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("socket %s: %v, want %q", path, err, want)
		}
	}
}

func TestReflectionAndUnknownServices(t *testing.T) {
	dir := t.TempDir()
	names := func(t *testing.T, socket string) ([]string, error) {
		stream, err := reflectionpb.NewServerReflectionClient(dial(t, rpc.ClientConfig{Address: "unix://" + socket})).ServerReflectionInfo(t.Context())
		if err != nil {
			return nil, err
		}
		if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
			return nil, err
		}
		r, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		var out []string
		for _, s := range r.GetListServicesResponse().GetService() {
			out = append(out, s.Name)
		}
		return out, stream.CloseSend()
	}

	ordinary := filepath.Join(dir, "a.sock")
	start(t, rpc.ServerConfig{Name: "test", UnixSocket: ordinary}, &behaviour{unary: whoAmI})
	got, err := names(t, ordinary)
	if want := "grpc.health.v1.Health grpc.reflection.v1.ServerReflection grpc.reflection.v1alpha.ServerReflection test.Echo"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("services %v, %v, want %s", got, err, want)
	}

	gateway := filepath.Join(dir, "b.sock")
	start(t, rpc.ServerConfig{Name: "test", UnixSocket: gateway, NoReflection: true}, nil,
		grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error {
			in := &wrapperspb.StringValue{}
			if err := ss.RecvMsg(in); err != nil {
				return err
			}
			method, _ := grpc.MethodFromServerStream(ss)
			if in.Value == "missing" {
				return apierr.NotFound("Pod", "default/a")
			}
			who, err := whoAmI(ss.Context(), "")
			return errors.Join(err, ss.SendMsg(wrapperspb.String(method+" by "+who)))
		}))
	conn := dial(t, rpc.ClientConfig{Address: "unix://" + gateway})
	if out, err := say(t.Context(), conn, ""); err != nil || out != "/test.Echo/Say by admin in system:masters,system:authenticated" {
		t.Errorf("call of an unregistered service = %q, %v", out, err)
	}
	if _, err := say(t.Context(), conn, "missing"); status.Code(err) != codes.NotFound {
		t.Errorf("its error: %v, want NotFound", err)
	}
	if got, err := names(t, gateway); err == nil && len(got) > 0 {
		t.Errorf("NoReflection still answers %v", got)
	}
}

func TestClientFindsARestartedServer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	cfg := rpc.ServerConfig{Name: "test", UnixSocket: socket}
	conn := dial(t, rpc.ClientConfig{Address: "unix://" + socket})
	for range 3 {
		waited := make(chan error, 1)
		go func() { waited <- rpc.WaitServing(context.Background(), conn) }()
		srv := start(t, cfg, &behaviour{unary: whoAmI})
		if err := <-waited; err != nil {
			t.Errorf("WaitServing = %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		out := &wrapperspb.StringValue{}
		if err := conn.Invoke(ctx, "/test.Echo/Say", wrapperspb.String(""), out, grpc.WaitForReady(true)); err != nil {
			t.Errorf("call: %v", err)
		}
		cancel()
		if err := srv.stop(); err != nil {
			t.Fatal(err)
		}
		if _, err := say(t.Context(), conn, ""); status.Code(err) != codes.Unavailable {
			t.Errorf("call without a server: %v, want Unavailable at once", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rpc.WaitServing(ctx, conn); !errors.Is(err, context.Canceled) {
		t.Errorf("WaitServing, cancelled: %v", err)
	}
}

func TestRenewedCertificateIsServed(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	id := pki.Identity{CommonName: "server", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}
	files, err := ca.Issue(dir, "server", id)
	if err != nil {
		t.Fatal(err)
	}
	srv := start(t, rpc.ServerConfig{Name: "test", TCP: "127.0.0.1:0", CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA}, &behaviour{unary: whoAmI})
	cfg := rpc.ClientConfig{Address: srv.Addr().String(), CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA, ServerName: "new-name"}
	if _, err := say(t.Context(), dial(t, cfg), ""); err == nil {
		t.Fatal("the first certificate already has the new name")
	}
	id.DNSNames = []string{"new-name"}
	if _, err := ca.Issue(dir, "server", id); err != nil {
		t.Fatal(err)
	}
	if _, err := say(t.Context(), dial(t, cfg), ""); err != nil {
		t.Errorf("after the renewal: %v", err)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
