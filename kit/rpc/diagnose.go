package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// diagnoseTimeout bounds each step of a diagnosis.
const diagnoseTimeout = 3 * time.Second

// Diagnose tries to connect as Dial does and says in one line what stands in the way and the way out; nil where nothing
// does. A failed call of gRPC has only text to tell, and not the decisive one. Of several servers it looks at the first.
func Diagnose(ctx context.Context, cfg ClientConfig) error {
	if path, ok := strings.CutPrefix(cfg.Address, "unix:"); ok {
		conn, err := dialFor(ctx, "unix", "/"+strings.TrimLeft(path, "/"))
		if err != nil {
			return err
		}
		return conn.Close()
	}
	address := cfg.Address
	if servers, err := cfg.servers(); err != nil {
		return err
	} else if servers != nil {
		address = servers[0]
	}
	if cfg.InsecureTCP {
		conn, err := dialFor(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	files, err := loadFiles(cfg.CertFile, cfg.KeyFile, cfg.CAFile)
	if err != nil {
		return err
	}
	if err := ownCertificate(files.certificate(), cfg.CertFile); err != nil {
		return err
	}
	secure, err := handshake(ctx, address, files.certificate())
	if err != nil {
		return err
	}
	defer func() { _ = secure.Close() }()
	name := cfg.ServerName
	if name == "" {
		name, _, _ = net.SplitHostPort(address) // dialled already
	}
	if err := CheckServer(secure.ConnectionState().PeerCertificates, files.pool, name, address); err != nil {
		return fmt.Errorf("%w (the CA is %s)", err, cfg.CAFile)
	}
	// With TLS 1.3 the server's word on our certificate comes after the handshake.
	if _, err := secure.Read(make([]byte, 1)); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%s refuses the certificate %s: %w: it must be signed by the cluster's CA, and the clocks of both machines must agree",
			address, cfg.CertFile, err)
	}
	return nil
}

// ShownBy returns the certificates that a server shows to somebody who has none. Nothing is said about whether they can be
// trusted.
func ShownBy(ctx context.Context, address string) ([]*x509.Certificate, error) {
	secure, err := handshake(ctx, address, nil)
	if err != nil {
		return nil, err
	}
	return secure.ConnectionState().PeerCertificates, secure.Close()
}

// handshake connects without looking at what the server shows.
func handshake(ctx context.Context, address string, own *tls.Certificate) (*tls.Conn, error) {
	conn, err := dialFor(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conf := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		InsecureSkipVerify: true, // the caller looks, to tell one fault from another
	}
	if own != nil {
		conf.Certificates = []tls.Certificate{*own}
	}
	secure := tls.Client(conn, conf)
	if err := secure.SetDeadline(time.Now().Add(diagnoseTimeout)); err != nil {
		return nil, errors.Join(err, secure.Close())
	}
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = secure.Close() // the handshake's error tells
		return nil, fmt.Errorf("%s does not speak TLS as Trireme does (%w): is it the port of a gateway?", address, err)
	}
	return secure, nil
}

func dialFor(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: diagnoseTimeout}
	conn, err := d.DialContext(ctx, network, address)
	var timeout net.Error
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("nothing listens at %s: is the gateway up, and is that its port? (%w)", address, err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, fmt.Errorf("%s does not answer within %s: is the address right, and does a firewall let it through? (%w)", address, diagnoseTimeout, err)
	}
	return nil, fmt.Errorf("cannot reach %s: %w", address, err)
}

// ownCertificate checks the time for which the caller's certificate is valid.
func ownCertificate(pair *tls.Certificate, file string) error {
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	now := time.Now()
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("certificate %s of %s expired at %s: whoever issued it must issue it anew (`trireme up` does when it starts, "+
			"`trireme node join` with a token, `trireme pki init`)", file, leaf.Subject.CommonName, stamp(leaf.NotAfter))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("certificate %s of %s begins at %s, and this machine's clock says %s: set the clock",
			file, leaf.Subject.CommonName, stamp(leaf.NotBefore), stamp(now))
	}
	return nil
}

// CheckServer says what is wrong with the chain that a server at an address shows, for people; nil where it proves to be name
// by one of the roots.
func CheckServer(chain []*x509.Certificate, roots *x509.CertPool, name, address string) error {
	if len(chain) == 0 {
		return fmt.Errorf("%s shows no certificate", address)
	}
	leaf, now := chain[0], time.Now()
	_, err := leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now})
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &host):
		names := slices.Clone(leaf.DNSNames)
		for _, ip := range leaf.IPAddresses {
			names = append(names, ip.String())
		}
		return fmt.Errorf("the certificate of %s does not name %s but %s: use one of these, or have the server's certificate issued for it",
			address, name, strings.Join(names, ", "))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && now.Before(invalid.Cert.NotBefore):
		return fmt.Errorf("the certificate of %s begins at %s, and this machine's clock says %s: the clocks differ, set them (NTP)",
			address, stamp(invalid.Cert.NotBefore), stamp(now))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("the certificate of %s expired at %s, and this machine's clock says %s: restart the server so that it is renewed "+
			"(`trireme up` does when it starts), or set the clock", address, stamp(invalid.Cert.NotAfter), stamp(now))
	case errors.As(err, &authority):
		return fmt.Errorf("the certificate of %s is signed by another CA than ours: it is another cluster, or this one was made anew", address)
	}
	return fmt.Errorf("the certificate of %s: %w", address, err)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }
