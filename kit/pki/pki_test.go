package pki_test

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"trireme.dev/kit/pki"
)

var node = pki.Identity{
	CommonName:    "system:node:a",
	Organizations: []string{"system:nodes"},
	DNSNames:      []string{"a", "localhost"},
	IPs:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
}

func read(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func issue(t *testing.T, dir string, id pki.Identity) pki.Files {
	t.Helper()
	ca, err := pki.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.Issue(dir, "node", id)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestIssuedCertificateProvesItsIdentity(t *testing.T) {
	dir := t.TempDir()
	files := issue(t, dir, node)
	cert, roots := read(t, files.Cert), x509.NewCertPool()
	roots.AddCert(read(t, files.CA))
	for _, name := range []string{"a", "localhost", "127.0.0.1", "::1"} {
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
			if _, err := cert.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
				t.Errorf("as %s, usage %d: %v", name, usage, err)
			}
		}
	}
	if cert.Subject.CommonName != node.CommonName || len(cert.Subject.Organization) != 1 || cert.Subject.Organization[0] != "system:nodes" {
		t.Errorf("subject %s", cert.Subject)
	}
	for _, path := range []string{files.Key, files.Cert, files.CA, filepath.Join(dir, "ca.key")} {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o, want 600", path, st.Mode().Perm())
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".tmp-*")); len(left) > 0 {
		t.Errorf("temporary files left: %v", left)
	}
}

func TestIssueKeepsWhatIsGoodAndRenewsWhatIsNot(t *testing.T) {
	other := node
	other.IPs = []net.IP{net.IPv4(10, 0, 0, 1)}
	tests := []struct {
		name   string
		change func(t *testing.T, dir string) pki.Identity
		kept   bool
	}{
		{"same again", func(*testing.T, string) pki.Identity { return node }, true},
		{"other address", func(*testing.T, string) pki.Identity { return other }, false},
		{"half its life over", func(*testing.T, string) pki.Identity { time.Sleep(pki.DefaultLifetime / 2); return node }, true},
		{"nearly expired", func(*testing.T, string) pki.Identity { time.Sleep(pki.DefaultLifetime * 3 / 4); return node }, false},
		{"other CA", func(t *testing.T, dir string) pki.Identity {
			for _, f := range []string{"ca.crt", "ca.key"} {
				if err := os.Remove(filepath.Join(dir, f)); err != nil {
					t.Fatal(err)
				}
			}
			return node
		}, false},
		{"key lost", func(t *testing.T, dir string) pki.Identity {
			if err := os.WriteFile(filepath.Join(dir, "node.key"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return node
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				before := read(t, issue(t, dir, node).Cert)
				files := issue(t, dir, tt.change(t, dir))
				after := read(t, files.Cert)
				if kept := before.Equal(after); kept != tt.kept {
					t.Errorf("kept = %v, want %v", kept, tt.kept)
				}
				if err := after.CheckSignatureFrom(read(t, files.CA)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestOpenRefusesHalfAnAuthority(t *testing.T) {
	dir := t.TempDir()
	issue(t, dir, node)
	if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.Open(dir); err == nil {
		t.Error("Open replaced a CA whose key is missing")
	}
}
