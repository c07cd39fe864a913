package certificate

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority signs what is asked of it, as the gateway does; who may have what is tested there.
type authority struct {
	nodev1.UnimplementedJoinServiceServer
	ca     *pki.CA
	signed atomic.Int32
}

func (a *authority) Renew(ctx context.Context, req *nodev1.RenewRequest) (*nodev1.RenewResponse, error) {
	request, err := pki.ParseRequest(req.GetCertificateRequest())
	if err != nil {
		return nil, err
	}
	have := rpc.CertificateFrom(ctx)
	cert, err := a.ca.Sign(request.PublicKey, pki.Identity{
		CommonName: have.Subject.CommonName, Organizations: have.Subject.Organization, DNSNames: request.DNSNames, IPs: request.IPAddresses,
	})
	a.signed.Add(1)
	return &nodev1.RenewResponse{Certificate: cert}, err
}

// bundle writes a certificate of a node that is valid for so long, from five minutes ago.
func bundle(t *testing.T, ca *pki.CA, path string, lifetime time.Duration) {
	t.Helper()
	csr, key, err := pki.NewRequest(pki.Identity{})
	if err != nil {
		t.Fatal(err)
	}
	request, err := pki.ParseRequest(csr)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Sign(request.PublicKey, pki.Identity{
		CommonName: "system:node:n", Organizations: []string{"system:nodes"}, DNSNames: []string{"n"},
		IPs: []net.IP{net.IPv4(10, 0, 0, 7)}, Lifetime: lifetime,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.SaveBundle(path, cert, key); err != nil {
		t.Fatal(err)
	}
}

func TestRenewal(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	own, err := ca.Issue(dir, "gateway", pki.Identity{CommonName: "gateway", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := rpc.NewServer(rpc.ServerConfig{Name: "gateway", TCP: "127.0.0.1:0", CertFile: own.Cert, KeyFile: own.Key, CAFile: own.CA}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	signer := &authority{ca: ca}
	nodev1.RegisterJoinServiceServer(srv, signer)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	<-srv.Ready()

	file := filepath.Join(dir, "node.pem")
	dial := func() *grpc.ClientConn {
		conn, err := rpc.Dial(rpc.ClientConfig{Address: srv.Addr().String(), CertFile: file, KeyFile: file, CAFile: own.CA})
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	// Fresh: nothing is asked.
	bundle(t, ca, file, time.Hour)
	conn := dial()
	k := New(conn, file, slog.New(slog.DiscardHandler))
	if err := k.renew(t.Context()); err != nil || signed(signer) != 0 {
		t.Errorf("a fresh certificate: %v, %d signed", err, signed(signer))
	}
	_ = conn.Close()

	// Five of six minutes are over: the next one is for the same node, and the connection uses it.
	bundle(t, ca, file, time.Minute)
	conn = dial()
	defer conn.Close()
	k = New(conn, file, slog.New(slog.DiscardHandler))
	if err := k.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		t.Fatal(err)
	}
	left := time.Until(pair.Leaf.NotAfter)
	if left < pki.DefaultLifetime-time.Hour || pair.Leaf.Subject.CommonName != "system:node:n" || len(pair.Leaf.DNSNames) != 1 || len(pair.Leaf.IPAddresses) != 1 {
		t.Errorf("renewed: %s, %v %v, %s left", pair.Leaf.Subject, pair.Leaf.DNSNames, pair.Leaf.IPAddresses, left)
	}
	if err := k.renew(t.Context()); err != nil || signed(signer) != 1 {
		t.Errorf("right after it: %v, %d signed", err, signed(signer))
	}
}

func signed(a *authority) int { return int(a.signed.Load()) }
