package join_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/jointoken"
	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
	"trireme.dev/services/apiserver/internal/server"
	"trireme.dev/services/apiserver/internal/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gateway is one that serves over TLS, on a store in memory.
type gateway struct {
	t       *testing.T
	dir     string
	ca      *pki.CA
	address string
	admin   *grpc.ClientConn
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{t: t, dir: t.TempDir()}
	var err error
	if g.ca, err = pki.Open(g.dir); err != nil {
		t.Fatal(err)
	}
	own := g.issue("apiserver", pki.Identity{CommonName: "system:trireme-apiserver", DNSNames: []string{"box"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(192, 0, 2, 10)}})
	srv, err := server.New(server.Deps{
		Store: memory.New(memory.Config{}), Logger: slog.New(slog.DiscardHandler), CA: g.ca,
		RPC: rpc.ServerConfig{Name: "apiserver", TCP: "127.0.0.1:0", CertFile: own.Cert, KeyFile: own.Key, CAFile: own.CA},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-srv.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	g.address = srv.Addr().String()
	g.admin = g.dial(g.issue("admin", pki.Identity{CommonName: "admin", Organizations: []string{"system:masters"}}))
	return g
}

func (g *gateway) issue(name string, id pki.Identity) pki.Files {
	g.t.Helper()
	files, err := g.ca.Issue(g.dir, name, id)
	if err != nil {
		g.t.Fatal(err)
	}
	return files
}

func (g *gateway) dial(f pki.Files) *grpc.ClientConn {
	g.t.Helper()
	conn, err := rpc.Dial(rpc.ClientConfig{Address: g.address, CertFile: f.Cert, KeyFile: f.Key, CAFile: f.CA})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// bare is a connection without a certificate.
func (g *gateway) bare(opts ...grpc.DialOption) nodev1.JoinServiceClient {
	g.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(g.ca.Certificate())
	creds := credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots})
	conn, err := grpc.NewClient(g.address, append(opts, grpc.WithTransportCredentials(creds))...)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = conn.Close() })
	return nodev1.NewJoinServiceClient(conn)
}

func (g *gateway) token(change func(*jointoken.Stored)) string {
	g.t.Helper()
	stored := jointoken.Stored{Token: jointoken.New(""), Expires: time.Now().Add(time.Hour), Joins: true}
	if change != nil {
		change(&stored)
	}
	if _, err := client.For[*corev1.Secret](g.admin).Create(g.t.Context(), stored.Object()); err != nil {
		g.t.Fatal(err)
	}
	return stored.Credentials()
}

func (g *gateway) node(name string, renewed time.Time) {
	g.t.Helper()
	if _, err := client.For[*corev1.Node](g.admin).Create(g.t.Context(), &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name}}); err != nil {
		g.t.Fatal(err)
	}
	if renewed.IsZero() {
		return
	}
	if _, err := client.For[*coordinationv1.Lease](g.admin).Create(g.t.Context(), &coordinationv1.Lease{
		Metadata: &metav1.ObjectMeta{Namespace: "kube-node-lease", Name: name},
		Spec: &coordinationv1.LeaseSpec{
			HolderIdentity: proto.String(name), LeaseDurationSeconds: proto.Int32(40), RenewTime: timestamppb.New(renewed),
		},
	}); err != nil {
		g.t.Fatal(err)
	}
}

func request(t *testing.T, id pki.Identity) (csr, key []byte) {
	t.Helper()
	csr, key, err := pki.NewRequest(id)
	if err != nil {
		t.Fatal(err)
	}
	return csr, key
}

func TestJoinThenRenew(t *testing.T) {
	g := newGateway(t)
	// What the machine says of itself beyond names and addresses is not believed.
	csr, key := request(t, pki.Identity{
		CommonName: "admin", Organizations: []string{"system:masters"}, DNSNames: []string{"lab", "lab-0", "lab-1"},
		IPs: []net.IP{net.IPv4(10, 0, 0, 7), net.IPv4(127, 0, 0, 1), net.IPv4(192, 0, 2, 10)},
	})
	joined, err := g.bare().Join(t.Context(), &nodev1.JoinRequest{Token: g.token(nil), NodeName: "lab", CertificateRequest: csr})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.ParseCertificate(joined.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if cert.Subject.CommonName != "system:node:lab" || !slices.Equal(cert.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("subject %s", cert.Subject)
	}
	if !slices.Equal(cert.DNSNames, []string{"lab", "lab-0", "lab-1"}) || len(cert.IPAddresses) != 1 || !cert.IPAddresses[0].Equal(net.IPv4(10, 0, 0, 7)) {
		t.Errorf("names %v and addresses %v, want the node's and neither the loopback nor the gateway's", cert.DNSNames, cert.IPAddresses)
	}
	if ca, err := pki.ParseCertificate(joined.CaCertificate); err != nil || !ca.Equal(g.ca.Certificate()) {
		t.Errorf("CA: %v", err)
	}

	// The certificate is who calls from now on.
	bundle, caFile := filepath.Join(t.TempDir(), "node.pem"), filepath.Join(t.TempDir(), "ca.crt")
	if err := pki.SaveBundle(bundle, joined.Certificate, key); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(caFile, joined.CaCertificate, 0o600); err != nil {
		t.Fatal(err)
	}
	node := nodev1.NewJoinServiceClient(g.dial(pki.Files{Cert: bundle, Key: bundle, CA: caFile}))
	next, _ := request(t, pki.Identity{DNSNames: []string{"lab"}})
	renew := func(csr []byte) (*nodev1.RenewResponse, error) {
		return node.Renew(t.Context(), &nodev1.RenewRequest{CertificateRequest: csr})
	}
	if _, err := renew(next); !apierr.IsForbidden(apierr.FromStatus(err)) || !strings.Contains(err.Error(), "node lab was deleted from the cluster") {
		t.Errorf("renewal without a node: %v", err)
	}
	g.node("lab-1", time.Time{})
	renewed, err := renew(next)
	if err != nil {
		t.Fatal(err)
	}
	after, err := pki.ParseCertificate(renewed.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if after.Equal(cert) || after.Subject.String() != cert.Subject.String() || !slices.Equal(after.DNSNames, cert.DNSNames) || len(after.IPAddresses) != 1 {
		t.Errorf("renewed for %s %v %v", after.Subject, after.DNSNames, after.IPAddresses)
	}
	for _, more := range []pki.Identity{{DNSNames: []string{"other"}}, {IPs: []net.IP{net.IPv4(10, 0, 0, 8)}}} {
		csr, _ := request(t, more)
		if _, err := renew(csr); !apierr.IsInvalid(apierr.FromStatus(err)) {
			t.Errorf("renewal for %v %v: %v, want Invalid", more.DNSNames, more.IPs, err)
		}
	}
	if _, err := nodev1.NewJoinServiceClient(g.admin).Renew(t.Context(), &nodev1.RenewRequest{CertificateRequest: next}); !apierr.IsForbidden(apierr.FromStatus(err)) {
		t.Errorf("renewal by admin: %v, want Forbidden", err)
	}
}

func TestJoinRefuses(t *testing.T) {
	g := newGateway(t)
	good := g.token(nil)
	id, secret, _ := strings.Cut(good, ".")
	g.node("alive", time.Now().Add(-5*time.Second))
	g.node("dead", time.Now().Add(-time.Minute))
	g.node("bare", time.Time{})
	plain := func(names ...string) pki.Identity { return pki.Identity{DNSNames: names} }
	tests := []struct {
		name, token, node string
		asks              pki.Identity
		want              apierr.Reason // empty: joins
		text              string
	}{
		{"no token", "", "n", plain(), apierr.ReasonUnauthenticated, "not known here"},
		{"unknown token", "zzzzzz." + secret, "n", plain(), apierr.ReasonUnauthenticated, "not known here"},
		{"wrong secret", id + ".aaaaaaaaaaaaaaaa", "n", plain(), apierr.ReasonUnauthenticated, "not known here"},
		{"expired", g.token(func(s *jointoken.Stored) { s.Expires = time.Now().Add(-time.Minute) }), "n", plain(), apierr.ReasonUnauthenticated, "expired at"},
		{"for something else", g.token(func(s *jointoken.Stored) { s.Joins = false }), "n", plain(), apierr.ReasonUnauthenticated, "not known here"},
		{"never expires", g.token(func(s *jointoken.Stored) { s.Expires = time.Time{} }), "n", plain(), "", ""},
		{"no name", good, "", plain(), apierr.ReasonInvalid, "nodeName"},
		{"bad name", good, "A_b", plain("A_b"), apierr.ReasonInvalid, "nodeName"},
		{"another node's name", good, "n", plain("m"), apierr.ReasonInvalid, "want the node's"},
		{"nearly a simulated node's", good, "n", plain("n-1x"), apierr.ReasonInvalid, "want the node's"},
		{"the gateway's name", good, "box", plain("box"), apierr.ReasonInvalid, "is a name of the gateway"},
		{"everybody's address", good, "n", pki.Identity{DNSNames: []string{"n"}, IPs: []net.IP{net.IPv4zero}}, apierr.ReasonInvalid, "no machine has it"},
		{"a live node's name", good, "alive", plain("alive"), apierr.ReasonFailedPrecondition, "trireme node delete alive"},
		{"a dead node's name", good, "dead", plain("dead"), "", ""},
		{"a node that never reported", good, "bare", plain(), "", ""},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			csr, _ := request(t, tt.asks)
			_, err := g.joinFrom(i, tt.token, tt.node, csr)
			if reason := apierr.ReasonOf(err); (tt.want == "") != (err == nil) || reason != tt.want && err != nil {
				t.Fatalf("%v, want %q", err, tt.want)
			}
			if err != nil && (!strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), secret)) {
				t.Errorf("%v, want one line with %q and without the secret", err, tt.text)
			}
		})
	}
	if _, err := g.joinFrom(len(tests), good, "n", []byte("nonsense")); !apierr.IsInvalid(err) {
		t.Errorf("no request: %v, want Invalid", err)
	}
}

// joinFrom joins from an address of its own, so that no one's wrong token makes another wait.
func (g *gateway) joinFrom(n int, token, node string, csr []byte) (*nodev1.JoinResponse, error) {
	from := net.Dialer{}
	if runtime.GOOS == "linux" { // others have one loopback address
		from.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(n+1))}
	}
	api := g.bare(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return from.DialContext(ctx, "tcp", address)
	}))
	for {
		r, err := api.Join(g.t.Context(), &nodev1.JoinRequest{Token: token, NodeName: node, CertificateRequest: csr})
		var api *apierr.Error
		if err = apierr.FromStatus(err); !errors.As(err, &api) || api.Reason != apierr.ReasonTooMany {
			return r, err
		}
		<-time.After(api.RetryAfter)
	}
}

func TestWrongTokensMakeWait(t *testing.T) {
	g := newGateway(t)
	csr, _ := request(t, pki.Identity{DNSNames: []string{"n"}})
	ask := func(token string) error {
		_, err := g.bare().Join(t.Context(), &nodev1.JoinRequest{Token: token, NodeName: "n", CertificateRequest: csr})
		return apierr.FromStatus(err)
	}
	if err := ask("aaaaaa.aaaaaaaaaaaaaaaa"); !apierr.IsUnauthenticated(err) {
		t.Fatalf("a wrong token: %v", err)
	}
	if err := ask(g.token(nil)); !apierr.IsTooMany(err) || !strings.Contains(err.Error(), "from 127.0.0.1") {
		t.Errorf("right after it: %v, want TooMany", err)
	}
}

func TestClusterInfo(t *testing.T) {
	g := newGateway(t)
	info, err := nodev1.NewJoinServiceClient(g.admin).GetClusterInfo(t.Context(), &nodev1.GetClusterInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ParseCertificate(info.CaCertificate)
	if err != nil || !ca.Equal(g.ca.Certificate()) || fmt.Sprint(info.Addresses) != "["+g.address+"]" {
		t.Errorf("CA %v, addresses %v, want %s", err, info.GetAddresses(), g.address)
	}
	if _, err := g.bare().GetClusterInfo(t.Context(), &nodev1.GetClusterInfoRequest{}); !apierr.IsUnauthenticated(apierr.FromStatus(err)) {
		t.Errorf("without a certificate: %v, want Unauthenticated", err)
	}
}
