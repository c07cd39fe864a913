// Package pki owns the cluster's small certificate authority: it creates and loads the CA and issues
// one certificate per identity into files. It never serves or checks connections; kit/rpc does.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	caLifetime = 10 * 365 * 24 * time.Hour
	// DefaultLifetime is how long an issued certificate is valid.
	DefaultLifetime = 365 * 24 * time.Hour
	// ClockSkew is how far before its signing a certificate begins: so much may the clocks of two machines differ then.
	ClockSkew = 5 * time.Minute
)

// CA signs certificates. It is safe for concurrent use.
type CA struct {
	certFile string
	cert     *x509.Certificate
	key      *ecdsa.PrivateKey
}

// Identity is what a certificate says about its holder.
type Identity struct {
	// CommonName is the user name, e.g. "system:trireme-scheduler".
	CommonName string
	// Organizations are the user's groups, e.g. "system:nodes".
	Organizations []string
	// DNSNames and IPs are where the holder can be reached, for identities that also serve.
	DNSNames []string
	IPs      []net.IP
	// Lifetime is DefaultLifetime when zero.
	Lifetime time.Duration
}

// Files are the paths that a process needs to prove its identity and to check its peers'.
type Files struct {
	Cert, Key, CA string
}

// Open loads the CA of dir (ca.crt, ca.key), or creates it where neither file exists. One file without
// the other, or two that do not belong together, is an error: guessing would cut off every issued identity.
func Open(dir string) (*CA, error) {
	certFile, keyFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	_, certErr := os.Stat(certFile)
	_, keyErr := os.Stat(keyFile)
	if errors.Is(certErr, fs.ErrNotExist) && errors.Is(keyErr, fs.ErrNotExist) {
		return create(certFile, keyFile)
	}
	return Load(certFile, keyFile)
}

// CertFile is the path of the CA's certificate.
func (ca *CA) CertFile() string { return ca.certFile }

// Issue makes sure that dir holds name.crt and name.key for id. An existing pair is kept as long as it is
// signed by this CA, says the same as id and has more than a third of its lifetime left; otherwise a new
// pair replaces it.
func (ca *CA) Issue(dir, name string, id Identity) (Files, error) {
	files := Files{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key"), CA: ca.CertFile()}
	if ca.current(files, id) {
		return files, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Files{}, fmt.Errorf("issue %s: %w", name, err)
	}
	cert, err := ca.Sign(key.Public(), id)
	if err != nil {
		return Files{}, fmt.Errorf("issue %s: %w", name, err)
	}
	if err := writePair(files.Cert, files.Key, cert, key); err != nil {
		return Files{}, fmt.Errorf("issue %s: %w", name, err)
	}
	return files, nil
}

func (ca *CA) current(files Files, id Identity) bool {
	certPEM, err := os.ReadFile(files.Cert)
	if err != nil {
		return false
	}
	keyPEM, err := os.ReadFile(files.Key)
	if err != nil {
		return false
	}
	cert, _, err := parsePair(certPEM, keyPEM)
	if err != nil || cert.CheckSignatureFrom(ca.cert) != nil {
		return false
	}
	return !Due(cert) &&
		cert.Subject.CommonName == id.CommonName &&
		sameSet(cert.Subject.Organization, id.Organizations) &&
		sameSet(cert.DNSNames, id.DNSNames) &&
		sameSet(ipStrings(cert.IPAddresses), ipStrings(id.IPs))
}

func create(certFile, keyFile string) (*CA, error) {
	if err := os.MkdirAll(filepath.Dir(certFile), 0o700); err != nil {
		return nil, fmt.Errorf("create certificate authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create certificate authority: %w", err)
	}
	tmpl, err := template(pkix.Name{CommonName: "trireme-ca"}, caLifetime)
	if err != nil {
		return nil, fmt.Errorf("create certificate authority: %w", err)
	}
	tmpl.IsCA = true
	tmpl.BasicConstraintsValid = true
	tmpl.MaxPathLenZero = true
	tmpl.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create certificate authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("create certificate authority: %w", err)
	}
	if err := writePair(certFile, keyFile, EncodeCertificate(der), key); err != nil {
		return nil, fmt.Errorf("create certificate authority: %w", err)
	}
	return &CA{certFile: certFile, cert: cert, key: key}, nil
}

func template(subject pkix.Name, lifetime time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-ClockSkew),
		NotAfter:     now.Add(lifetime),
	}, nil
}

func parsePair(certPEM, keyPEM []byte) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	cert, err := ParseCertificate(certPEM)
	if err != nil {
		return nil, nil, err
	}
	keyBlock, _ := pem.Decode(keyPEM)
	if keyBlock == nil {
		return nil, nil, errors.New("no PEM key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, fmt.Errorf("key is %T, want ECDSA", parsed)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, nil, errors.New("certificate and key do not belong together")
	}
	return cert, key, nil
}

func writePair(certPath, keyPath string, certPEM []byte, key *ecdsa.PrivateKey) error {
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	// The key goes first: a reader that sees the new certificate must find its key.
	if err := writeFile(keyPath, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})); err != nil {
		return err
	}
	return writeFile(certPath, certPEM)
}

// writeFile replaces path as a whole, so that a crash leaves the old file or the new one.
func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// CreateTemp creates with mode 0600.
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(data); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

func ipStrings(ips []net.IP) []string {
	out := make([]string, 0, len(ips))
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return out
}
