package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Caller is who makes a call, as its connection proves.
type Caller struct {
	// User is the certificate's common name, "admin" on the unix socket, "system:anonymous" on insecure TCP and where an
	// open method is called without a certificate.
	User string
	// Groups are the certificate's organizations, "system:masters" on the unix socket, and "system:authenticated" of all
	// who prove who they are.
	Groups []string
	// DNSNames are those of the certificate, sorted.
	DNSNames []string
}

// CallerFrom returns who makes the call that ctx belongs to. False means ctx belongs to no call of a
// Server of this package.
func CallerFrom(ctx context.Context) (Caller, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Caller{}, false
	}
	info, ok := p.AuthInfo.(authInfo)
	return info.caller, ok
}

// CertificateFrom returns the certificate with which the caller of the call that ctx belongs to proved who it is; nil where
// it needed none.
func CertificateFrom(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, _ := p.AuthInfo.(authInfo)
	return info.certificate
}

type authInfo struct {
	credentials.CommonAuthInfo
	caller Caller
	// certificate of the caller; nil on sockets, on insecure TCP, and where the caller is unproven.
	certificate *x509.Certificate
	// unproven callers came over TLS without a certificate: only open methods are for them.
	unproven bool
}

// authenticated is the group of all who prove who they are.
const authenticated = "system:authenticated"

// admin is who may open the socket of a process.
var admin = Caller{User: "admin", Groups: []string{"system:masters", authenticated}}

// anonymous is who shows nothing.
var anonymous = Caller{User: "system:anonymous", Groups: []string{"system:unauthenticated"}}

func (authInfo) AuthType() string { return "trireme" }

// serverCredentials proves callers by the kind of connection: mutual TLS on TCP, the socket file's
// permissions everywhere else. A nil tls means insecure TCP.
type serverCredentials struct {
	tls credentials.TransportCredentials
}

func (c serverCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if !strings.HasPrefix(conn.LocalAddr().Network(), "tcp") {
		caller := admin
		if own, ok := conn.(ownConn); ok {
			caller = own.caller
		}
		return conn, authInfo{
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, caller: caller,
		}, nil
	}
	if c.tls == nil {
		return conn, authInfo{
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity},
			caller:         anonymous,
		}, nil
	}
	secure, info, err := c.tls.ServerHandshake(conn)
	if err != nil {
		return nil, nil, err
	}
	state, ok := info.(credentials.TLSInfo)
	if !ok {
		return nil, nil, errors.Join(fmt.Errorf("handshake gave %T", info), secure.Close())
	}
	if len(state.State.PeerCertificates) == 0 {
		// TLS lets them in only where some methods are open.
		return secure, authInfo{CommonAuthInfo: state.CommonAuthInfo, caller: anonymous, unproven: true}, nil
	}
	cert := state.State.PeerCertificates[0]
	caller := Caller{
		User: cert.Subject.CommonName, Groups: append(slices.Clone(cert.Subject.Organization), authenticated), DNSNames: slices.Clone(cert.DNSNames),
	}
	slices.Sort(caller.DNSNames)
	return secure, authInfo{CommonAuthInfo: state.CommonAuthInfo, certificate: cert, caller: caller}, nil
}

func (serverCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("server credentials cannot dial")
}

func (c serverCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "trireme"}
}

func (c serverCredentials) Clone() credentials.TransportCredentials { return c }

func (serverCredentials) OverrideServerName(string) error { return nil }

// keyPair follows a certificate on disk, so that a renewed one is used without a restart.
type keyPair struct {
	certFile, keyFile string
	pool              *x509.CertPool
	authorities       [][]byte // what is in pool, in DER

	mu       sync.Mutex
	current  *tls.Certificate
	modified time.Time
}

func loadFiles(certFile, keyFile, caFile string) (*keyPair, error) {
	if certFile == "" || keyFile == "" || caFile == "" {
		return nil, errors.New("TLS needs a certificate, a key and a CA (--cert, --key, --ca)")
	}
	data, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	k := &keyPair{certFile: certFile, keyFile: keyFile, pool: x509.NewCertPool()}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", caFile, err)
		}
		k.pool.AddCert(cert)
		k.authorities = append(k.authorities, cert.Raw)
	}
	if len(k.authorities) == 0 {
		return nil, fmt.Errorf("%s: no PEM certificate in it", caFile)
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	k.current = &cert
	if st, err := os.Stat(certFile); err == nil {
		k.modified = st.ModTime()
	}
	return k, nil
}

// certificate never fails: while the files are being replaced, the certificate before is still good.
func (k *keyPair) certificate() *tls.Certificate {
	k.mu.Lock()
	defer k.mu.Unlock()
	st, err := os.Stat(k.certFile)
	if err != nil || st.ModTime().Equal(k.modified) {
		return k.current
	}
	cert, err := tls.LoadX509KeyPair(k.certFile, k.keyFile)
	if err != nil {
		return k.current
	}
	k.current, k.modified = &cert, st.ModTime()
	return k.current
}
