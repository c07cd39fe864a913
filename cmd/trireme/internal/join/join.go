// Package join is a machine's side of becoming a node: it makes sure by the token's pin that it talks to the right cluster,
// shows the token there and nowhere else, and keeps the certificate that it gets. It also makes tokens, and the line that a
// person carries to the machine. What runs on the node afterwards is package up's.
package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"trireme.dev/client/apierr"
	"trireme.dev/client/jointoken"
	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
)

const (
	timeout = 10 * time.Second
	// notableSkew between two clocks is worth a warning: leases and ages are judged by them.
	notableSkew = 30 * time.Second
)

// Files are where a node keeps what it got, in a folder of certificates: its own with the key in one file, and the CA.
func Files(dir string) pki.Files {
	node := filepath.Join(dir, "node.pem")
	return pki.Files{Cert: node, Key: node, CA: filepath.Join(dir, "ca.crt")}
}

// Names that the certificate of an agent must have: the node's, and those of simulated nodes.
func Names(node string, simulate int) []string {
	names := []string{node}
	for i := range simulate {
		names = append(names, node+"-"+strconv.Itoa(i))
	}
	return names
}

// Member is the node that the certificate in a folder is for, and the names in it; empty where there is none. A certificate
// that has run out is an error that says so.
func Member(dir string) (node string, names []string, err error) {
	cert, err := pki.ReadCertificate(Files(dir).Cert)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil, nil
	case err != nil:
		return "", nil, err
	}
	const prefix = "system:node:"
	if user := cert.Subject.CommonName; len(user) > len(prefix) && user[:len(prefix)] == prefix {
		node = user[len(prefix):]
	}
	if now := time.Now(); now.After(cert.NotAfter) {
		return node, cert.DNSNames, fmt.Errorf("the certificate of node %s expired at %s: join again with --token (`trireme token create` makes one)",
			node, cert.NotAfter.UTC().Format("2006-01-02 15:04:05 MST"))
	} else if now.Before(cert.NotBefore) {
		return node, cert.DNSNames, fmt.Errorf("the certificate of node %s begins at %s, and this machine's clock says %s: set the clock",
			node, cert.NotBefore.UTC().Format("2006-01-02 15:04:05 MST"), now.UTC().Format("2006-01-02 15:04:05 MST"))
	}
	return node, cert.DNSNames, nil
}

// Request is what a machine asks for.
type Request struct {
	// Address of the gateway, host:port.
	Address string
	Token   jointoken.Token
	// Node is its name, Simulate the number of simulated nodes that it is.
	Node     string
	Simulate int
	// IPs are its addresses.
	IPs []net.IP
	// Dir receives the certificate.
	Dir string
}

// Do joins. The warnings are for people; nothing is written unless all went well.
func Do(ctx context.Context, r Request) (warnings []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ca, err := identify(ctx, r.Address, r.Token.Pin)
	if err != nil {
		return nil, err
	}
	request, key, err := pki.NewRequest(pki.Identity{
		CommonName: "system:node:" + r.Node, Organizations: []string{"system:nodes"}, DNSNames: Names(r.Node, r.Simulate), IPs: r.IPs,
	})
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	conn, err := grpc.NewClient(r.Address, grpc.WithNoProxy(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots,
	})))
	if err != nil {
		return nil, fmt.Errorf("join %s: %w", r.Address, err)
	}
	defer conn.Close()
	answer, err := nodev1.NewJoinServiceClient(conn).Join(ctx, &nodev1.JoinRequest{
		Token: r.Token.Credentials(), NodeName: r.Node, CertificateRequest: request,
	})
	if err != nil {
		return nil, fmt.Errorf("%s does not let this machine in: %w", r.Address, apierr.FromStatus(err))
	}
	cert, err := pki.ParseCertificate(answer.GetCertificate())
	if err != nil {
		return nil, fmt.Errorf("join %s: %w", r.Address, err)
	}
	if err := cert.CheckSignatureFrom(ca); err != nil {
		return nil, fmt.Errorf("join %s: the certificate that it gave: %w", r.Address, err)
	}
	// It begins that much before the gateway's own time.
	skew := time.Since(cert.NotBefore.Add(pki.ClockSkew))
	switch {
	case skew < -pki.ClockSkew:
		return nil, fmt.Errorf("this machine's clock is %s behind the gateway's, for which the new certificate has not begun: set the clock (NTP)", -skew.Round(time.Second))
	case skew.Abs() > notableSkew:
		warnings = append(warnings, fmt.Sprintf("this machine's clock and the gateway's differ by %s: set them (NTP), or the node may be taken for dead", skew.Abs().Round(time.Second)))
	}
	files := Files(r.Dir)
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := pki.SaveCertificate(files.CA, pki.EncodeCertificate(ca.Raw)); err != nil {
		return nil, err
	}
	return warnings, pki.SaveBundle(files.Cert, answer.GetCertificate(), key)
}

// identify finds, in what the gateway shows, the CA that the pin is of, and makes sure that the gateway's certificate is
// signed by it.
func identify(ctx context.Context, address, pin string) (*x509.Certificate, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q is no address of a gateway: want host:port, such as 10.0.0.5:7443", address)
	}
	chain, err := rpc.ShownBy(ctx, address)
	if err != nil {
		return nil, err
	}
	for _, cert := range chain {
		if cert.IsCA && pki.Pin(cert) == pin {
			roots := x509.NewCertPool()
			roots.AddCert(cert)
			return cert, rpc.CheckServer(chain, roots, host, address)
		}
	}
	for _, cert := range chain {
		if cert.IsCA {
			return nil, fmt.Errorf("%s belongs to another cluster than the token: its CA is %s, the token is for %s (or somebody stands in between); the token was not shown to it",
				address, pki.Pin(cert), pin)
		}
	}
	return nil, fmt.Errorf("%s shows no CA: it is no gateway, or one that nodes cannot join (start it with --ca-key, as `trireme up` does)", address)
}

// Local is this machine's address on the way to another; nil where there is no way. Nothing is sent.
func Local(address string) net.IP {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return nil
	}
	defer conn.Close()
	if a, ok := conn.LocalAddr().(*net.UDPAddr); ok {
		return a.IP
	}
	return nil
}

// Belongs reports whether the CA in a folder is the one that a pin is of.
func Belongs(dir, pin string) bool {
	ca, err := pki.ReadCertificate(Files(dir).CA)
	return err == nil && pki.Pin(ca) == pin
}
