package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base32"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	minRSABits = 2048
	// pinBytes of a hash are enough that nobody finds another key for them, and few enough to be carried by hand.
	pinBytes = 20
	// maxRequest is more than a request for the largest set of simulated nodes takes.
	maxRequest = 1 << 20
)

// Load reads a CA from its certificate and key, wherever they are. It never creates one.
func Load(certFile, keyFile string) (*CA, error) {
	certPEM, certErr := os.ReadFile(certFile)
	keyPEM, keyErr := os.ReadFile(keyFile)
	if err := errors.Join(certErr, keyErr); err != nil {
		return nil, fmt.Errorf("load certificate authority: %w", err)
	}
	cert, key, err := parsePair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("load certificate authority %s: %w", certFile, err)
	}
	if !cert.IsCA {
		return nil, fmt.Errorf("load certificate authority: %s is no CA certificate", certFile)
	}
	return &CA{certFile: certFile, cert: cert, key: key}, nil
}

// Certificate of the CA.
func (ca *CA) Certificate() *x509.Certificate { return ca.cert }

// Sign issues a certificate in PEM for the holder of a public key.
func (ca *CA) Sign(public any, id Identity) ([]byte, error) {
	lifetime := id.Lifetime
	if lifetime == 0 {
		lifetime = DefaultLifetime
	}
	tmpl, err := template(pkix.Name{CommonName: id.CommonName, Organization: id.Organizations}, lifetime)
	if err != nil {
		return nil, err
	}
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	tmpl.DNSNames = id.DNSNames
	tmpl.IPAddresses = id.IPs
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.cert, public, ca.key)
	if err != nil {
		return nil, err
	}
	return EncodeCertificate(der), nil
}

// NewRequest makes a key and a request (PKCS #10) to have a certificate for it signed, both in PEM. Who signs decides which
// of what the request says becomes true.
func NewRequest(id Identity) (request, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("request certificate: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: id.CommonName, Organization: id.Organizations},
		DNSNames: id.DNSNames, IPAddresses: id.IPs,
	}, private)
	if err != nil {
		return nil, nil, fmt.Errorf("request certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("request certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

// ParseRequest reads a request in PEM and makes sure that whoever sent it holds the key, and that the key is a strong one.
func ParseRequest(data []byte) (*x509.CertificateRequest, error) {
	if len(data) > maxRequest {
		return nil, fmt.Errorf("certificate request of %d bytes: want at most %d", len(data), maxRequest)
	}
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("not one certificate request in PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	switch key := request.PublicKey.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
	case *rsa.PublicKey:
		if key.N.BitLen() < minRSABits {
			return nil, fmt.Errorf("certificate request: RSA key of %d bits, want %d or more", key.N.BitLen(), minRSABits)
		}
	default:
		return nil, fmt.Errorf("certificate request: key of type %T", key)
	}
	return request, nil
}

// SaveBundle replaces a file that holds both a certificate and its key. There is no moment, and no crash, after which one
// belongs to another; TLS reads both from the one file.
func SaveBundle(path string, certificate, key []byte) error {
	if _, _, err := parsePair(certificate, key); err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	return writeFile(path, append(append([]byte{}, certificate...), key...))
}

// SaveCertificate replaces a file with a certificate in PEM.
func SaveCertificate(path string, certificate []byte) error { return writeFile(path, certificate) }

// ReadCertificate reads the first certificate of a file.
func ReadCertificate(path string) (*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	cert, err := ParseCertificate(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cert, nil
}

// ParseCertificate reads the first certificate in PEM.
func ParseCertificate(data []byte) (*x509.Certificate, error) {
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return nil, errors.New("no PEM certificate")
		}
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
		data = rest
	}
}

// EncodeCertificate gives a certificate in PEM.
func EncodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Due says that a certificate should be replaced: a third of its lifetime or less is left.
func Due(cert *x509.Certificate) bool {
	return time.Until(cert.NotAfter) <= cert.NotAfter.Sub(cert.NotBefore)/3
}

// Pin is a short name that no other CA can have: the beginning of the SHA-256 of its public key, in lower-case base32.
func Pin(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:pinBytes]))
}
