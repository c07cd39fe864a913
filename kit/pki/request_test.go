package pki_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"trireme.dev/kit/pki"
)

func TestRequestIsSignedAndSaved(t *testing.T) {
	dir := t.TempDir()
	issue(t, dir, node)
	ca, err := pki.Load(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	data, key, err := pki.NewRequest(node)
	if err != nil {
		t.Fatal(err)
	}
	request, err := pki.ParseRequest(data)
	if err != nil {
		t.Fatal(err)
	}
	if request.Subject.CommonName != "system:node:a" || len(request.DNSNames) != 2 || len(request.IPAddresses) != 2 {
		t.Errorf("request of %s for %v %v", request.Subject, request.DNSNames, request.IPAddresses)
	}
	// What is signed is what the authority says.
	cert, err := ca.Sign(request.PublicKey, pki.Identity{CommonName: "system:node:b", DNSNames: []string{"b"}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "pki", "node.pem")
	if err := pki.SaveBundle(path, cert, key); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(path, path)
	if err != nil {
		t.Fatal(err)
	}
	if pair.Leaf.Subject.CommonName != "system:node:b" || pair.Leaf.CheckSignatureFrom(ca.Certificate()) != nil {
		t.Errorf("the bundle is of %s", pair.Leaf.Subject)
	}
	_, another, err := pki.NewRequest(node)
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.SaveBundle(path, cert, another); err == nil {
		t.Error("a key that belongs to another certificate is saved")
	}
	if again, err := tls.LoadX509KeyPair(path, path); err != nil || !again.Leaf.Equal(pair.Leaf) {
		t.Errorf("the bundle before is gone: %v", err)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	good, _, err := pki.NewRequest(node)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(good)
	forged := append([]byte{}, block.Bytes...)
	forged[len(forged)-1] ^= 1
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	small, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "a"}}, weak)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	for name, tt := range map[string]struct {
		data []byte
		want string
	}{
		"nothing":      {nil, "not one certificate request"},
		"another kind": {encode("CERTIFICATE", block.Bytes), "not one certificate request"},
		"two":          {append(good, good...), "not one certificate request"},
		"forged":       {encode("CERTIFICATE REQUEST", forged), "certificate request"},
		"weak":         {encode("CERTIFICATE REQUEST", small), "RSA key of 1024 bits"},
		"huge":         {make([]byte, 2<<20), "want at most"},
	} {
		if _, err := pki.ParseRequest(tt.data); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestDue(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cert := read(t, issue(t, dir, node).Cert)
		for _, step := range []struct {
			after time.Duration
			due   bool
		}{{0, false}, {pki.DefaultLifetime / 2, false}, {pki.DefaultLifetime / 4, true}, {pki.DefaultLifetime, true}} {
			time.Sleep(step.after)
			if due := pki.Due(cert); due != step.due {
				t.Errorf("at %s due = %v, want %v", time.Now(), due, step.due)
			}
		}
	})
}

func TestPin(t *testing.T) {
	one, other := t.TempDir(), t.TempDir()
	a, b := read(t, issue(t, one, node).CA), read(t, issue(t, other, node).CA)
	again := read(t, filepath.Join(one, "ca.crt"))
	if pki.Pin(a) != pki.Pin(again) || pki.Pin(a) == pki.Pin(b) || len(pki.Pin(a)) != 32 || strings.ToLower(pki.Pin(a)) != pki.Pin(a) {
		t.Errorf("pins %s and %s", pki.Pin(a), pki.Pin(b))
	}
}
