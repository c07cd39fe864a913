package rpc_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
)

// named is a server that answers with its name.
func named(t *testing.T, name string, cfg rpc.ServerConfig) running {
	t.Helper()
	cfg.Name = name
	return start(t, cfg, &behaviour{
		unary:  func(context.Context, string) (string, error) { return name, nil },
		stream: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	})
}

func ask(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	out := &wrapperspb.StringValue{}
	if err := conn.Invoke(ctx, "/test.Echo/Say", wrapperspb.String(""), out, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	return out.Value
}

// Each server of a list proves to be the host by which it was dialled, and another takes over at once from one that stops.
func TestAListOfServers(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(name string, id pki.Identity) pki.Files {
		files, err := ca.Issue(dir, name, id)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	a := issue("a", pki.Identity{CommonName: "a", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	b := issue("b", pki.Identity{CommonName: "b", DNSNames: []string{"localhost"}})
	client := issue("client", pki.Identity{CommonName: "client"})
	servers := map[string]running{
		"a": named(t, "a", rpc.ServerConfig{TCP: "127.0.0.1:0", CertFile: a.Cert, KeyFile: a.Key, CAFile: a.CA}),
		"b": named(t, "b", rpc.ServerConfig{TCP: "localhost:0", CertFile: b.Cert, KeyFile: b.Key, CAFile: b.CA}),
	}
	_, port, err := net.SplitHostPort(servers["b"].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	cfg := rpc.ClientConfig{
		Address:  servers["a"].Addr().String() + ", localhost:" + port,
		CertFile: client.Cert, KeyFile: client.Key, CAFile: client.CA,
	}
	conn := dial(t, cfg)
	first := ask(t, conn)
	if again := ask(t, conn); again != first {
		t.Errorf("a second call went to %s, the first to %s: want one connection for both", again, first)
	}
	if err := servers[first].stop(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if second := ask(t, conn); second == first {
		t.Errorf("%s answered after it had stopped", first)
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("the other server answered after %s, want less than 1 s", took)
	}
}

func TestClientsSpreadOverAList(t *testing.T) {
	one := named(t, "a", rpc.ServerConfig{TCP: "127.0.0.1:0", InsecureTCP: true})
	two := named(t, "b", rpc.ServerConfig{TCP: "127.0.0.1:0", InsecureTCP: true})
	list := one.Addr().String() + "," + two.Addr().String()
	found := map[string]int{}
	// The odds of all on one side are 2 in 2^40.
	for range 40 {
		found[ask(t, dial(t, rpc.ClientConfig{Address: list, InsecureTCP: true}))]++
	}
	if found["a"] == 0 || found["b"] == 0 {
		t.Errorf("clients per server: %v, want both in use", found)
	}
}

func TestABadListIsNamed(t *testing.T) {
	for _, address := range []string{"", "a:1,b", "a:1,", "a:1,unix:///x"} {
		cfg := rpc.ClientConfig{Address: address, InsecureTCP: true}
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "--apiserver") {
			t.Errorf("%q: %v, want an error that names --apiserver", address, err)
		}
		if _, err := rpc.Dial(cfg); err == nil {
			t.Errorf("%q was dialled", address)
		}
	}
}

// A method that gRPC takes for a stream and that has an end finishes like a unary call.
func TestUnaryMethodsOfAnUnknownServiceFinish(t *testing.T) {
	entered, watching, stopping := make(chan struct{}), make(chan struct{}), make(chan struct{})
	handler := func(_ any, ss grpc.ServerStream) error {
		in := &wrapperspb.StringValue{}
		if err := ss.RecvMsg(in); err != nil {
			return err
		}
		method, _ := grpc.MethodFromServerStream(ss)
		if method == "/test.Other/Watch" {
			close(watching)
			<-ss.Context().Done()
			close(stopping)
			return ss.Context().Err()
		}
		close(entered)
		<-stopping
		if err := ss.Context().Err(); err != nil {
			return err
		}
		return ss.SendMsg(in)
	}
	srv := start(t, rpc.ServerConfig{
		Name: "test", TCP: "127.0.0.1:0", InsecureTCP: true,
		Unary: func(method string) bool { return method == "/test.Other/Create" },
	}, nil, grpc.UnknownServiceHandler(handler))
	conn := dial(t, rpc.ClientConfig{Address: srv.Addr().String(), InsecureTCP: true})
	created := make(chan error, 1)
	go func() {
		out := &wrapperspb.StringValue{}
		err := conn.Invoke(context.Background(), "/test.Other/Create", wrapperspb.String("x"), out)
		if err == nil && out.Value != "x" {
			err = errors.New("answer is " + out.Value)
		}
		created <- err
	}()
	<-entered
	watch, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/test.Other/Watch")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(watch.SendMsg(wrapperspb.String("")), watch.CloseSend()); err != nil {
		t.Fatal(err)
	}
	<-watching
	if err := srv.stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-created; err != nil {
		t.Errorf("call in flight: %v, want its answer", err)
	}
}

func TestLoopbackCallersAreWhoTheyWereSaidToBe(t *testing.T) {
	srv, err := rpc.NewServer(rpc.ServerConfig{Name: "test"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	(&behaviour{unary: whoAmI}).register(srv)
	lis := rpc.NewLoopback(rpc.Caller{User: "own", Groups: []string{"system:masters"}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ctx, lis) }()
	conn, err := lis.Dial()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := say(t.Context(), conn, ""); err != nil || got != "own in system:masters" {
		t.Errorf("call = %q, %v", got, err)
	}
	cancel()
	if err := errors.Join(<-ended, conn.Close()); err != nil {
		t.Error(err)
	}
}

func TestSystemdIsTold(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	srv := start(t, rpc.ServerConfig{Name: "test", UnixSocket: filepath.Join(t.TempDir(), "s")}, nil)
	next := func() string {
		buf := make([]byte, 64)
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	if got := next(); got != "READY=1" {
		t.Errorf("first %q, want READY=1", got)
	}
	if err := srv.stop(); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "STOPPING=1" {
		t.Errorf("then %q, want STOPPING=1", got)
	}
}
