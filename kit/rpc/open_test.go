package rpc_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
)

var local = []net.IP{net.IPv4(127, 0, 0, 1)}

// issue makes a certificate of a CA in a folder.
func issue(t *testing.T, dir, name string, id pki.Identity) pki.Files {
	t.Helper()
	ca, err := pki.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.Issue(dir, name, id)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func serverOf(f pki.Files) rpc.ServerConfig {
	return rpc.ServerConfig{Name: "test", TCP: "127.0.0.1:0", CertFile: f.Cert, KeyFile: f.Key, CAFile: f.CA}
}

func clientOf(f pki.Files, address net.Addr) rpc.ClientConfig {
	return rpc.ClientConfig{Address: address.String(), CertFile: f.Cert, KeyFile: f.Key, CAFile: f.CA}
}

func TestOnlyOpenMethodsAreCalledWithoutACertificate(t *testing.T) {
	dir := t.TempDir()
	server := issue(t, dir, "server", pki.Identity{CommonName: "server", IPs: local})
	cfg := serverOf(server)
	cfg.OpenMethods = []string{"/test.Echo/Say"}
	srv := start(t, cfg, &behaviour{unary: whoAmI, stream: func(context.Context) error { return nil }})

	var shown []*x509.Certificate
	bare, err := grpc.NewClient(srv.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error { shown = s.PeerCertificates; return nil },
	})))
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	if who, err := say(t.Context(), bare, ""); err != nil || who != "system:anonymous in system:unauthenticated" {
		t.Errorf("open method = %q, %v", who, err)
	}
	ca, err := pki.ReadCertificate(server.CA)
	if err != nil {
		t.Fatal(err)
	}
	if len(shown) != 2 || !shown[1].Equal(ca) || shown[0].CheckSignatureFrom(shown[1]) != nil {
		t.Errorf("the server shows %d certificates, want its own and the CA", len(shown))
	}
	if _, err := healthpb.NewHealthClient(bare).Check(t.Context(), &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("another method: %v, want UNAUTHENTICATED", err)
	}
	stream, err := bare.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/test.Echo/Wait")
	if err == nil {
		err = stream.SendMsg(wrapperspb.String(""))
	}
	if err == nil {
		err = stream.RecvMsg(&wrapperspb.StringValue{})
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("a stream: %v, want UNAUTHENTICATED", err)
	}
	// One that is signed by somebody else is refused as before, whatever it calls.
	stranger := issue(t, t.TempDir(), "stranger", pki.Identity{CommonName: "admin", Organizations: []string{"system:masters"}})
	stranger.CA = server.CA
	if _, err := say(t.Context(), dial(t, clientOf(stranger, srv.Addr())), ""); status.Code(err) != codes.Unavailable {
		t.Errorf("a stranger's certificate: %v, want no connection", err)
	}
	admin := issue(t, dir, "admin", pki.Identity{CommonName: "admin", Organizations: []string{"system:masters"}})
	conn := dial(t, clientOf(admin, srv.Addr()))
	if who, err := say(t.Context(), conn, ""); err != nil || who != "admin in system:masters,system:authenticated" {
		t.Errorf("with a certificate: %q, %v", who, err)
	}
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("another method with a certificate: %v", err)
	}
}

func TestDiagnose(t *testing.T) {
	dir := t.TempDir()
	server := issue(t, dir, "server", pki.Identity{CommonName: "server", IPs: local})
	me := issue(t, dir, "me", pki.Identity{CommonName: "admin"})
	srv := start(t, serverOf(server), nil)
	late := issue(t, dir, "late", pki.Identity{CommonName: "server", IPs: local, Lifetime: -time.Minute})
	expired := start(t, serverOf(late), nil)
	other := issue(t, t.TempDir(), "other", pki.Identity{CommonName: "admin"})
	stranger := other
	stranger.CA = server.CA
	unnamed := start(t, serverOf(issue(t, dir, "unnamed", pki.Identity{CommonName: "server", DNSNames: []string{"gateway"}})), nil)

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := silent.Addr()
	if err := silent.Close(); err != nil {
		t.Fatal(err)
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	go func() {
		for {
			conn, err := plain.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("220 hello\r\n"))
			_ = conn.Close()
		}
	}()

	tests := []struct {
		name  string
		files pki.Files
		to    net.Addr
		want  string // empty: nothing is wrong
	}{
		{"all is well", me, srv.Addr(), ""},
		{"own certificate expired", late, srv.Addr(), "of server expired at "},
		{"server's certificate expired", me, expired.Addr(), "restart the server so that it is renewed"},
		{"another cluster's CA", other, srv.Addr(), "signed by another CA than ours"},
		{"a stranger's certificate", stranger, srv.Addr(), "refuses the certificate " + stranger.Cert},
		{"another name", me, unnamed.Addr(), "does not name 127.0.0.1 but gateway"},
		{"nobody there", me, closed, "nothing listens at " + closed.String()},
		{"no TLS there", me, plain.Addr(), "does not speak TLS as Trireme does"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := rpc.Diagnose(t.Context(), clientOf(tt.files, tt.to))
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("diagnosis %v, want none", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n")):
				t.Errorf("diagnosis %v, want one line with %q", err, tt.want)
			}
		})
	}
}

// Certificates of a machine whose clock is far ahead have not begun here.
func TestDiagnoseTellsOfClocks(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(100 * 365 * 24 * time.Hour)
		issue(t, dir, "server", pki.Identity{CommonName: "server", IPs: local})
	})
	file := filepath.Join(dir, "server.crt")
	cert, err := pki.ReadCertificate(file)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatal(err)
	}
	err = rpc.CheckServer([]*x509.Certificate{cert}, roots, "127.0.0.1", "127.0.0.1:7443")
	if err == nil || !strings.Contains(err.Error(), "the clocks differ, set them") {
		t.Errorf("server's: %v", err)
	}
	err = rpc.Diagnose(t.Context(), rpc.ClientConfig{
		Address: "127.0.0.1:1", CertFile: file, KeyFile: filepath.Join(dir, "server.key"), CAFile: filepath.Join(dir, "ca.crt"),
	})
	if err == nil || !strings.Contains(err.Error(), "this machine's clock says") || !strings.Contains(err.Error(), "set the clock") {
		t.Errorf("own: %v", err)
	}
}
