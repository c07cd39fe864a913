package certs

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"trireme.dev/cmd/trireme/internal/contexts"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestAgainKeepsWhatIsThere: a cluster that is started again must not cut off those who have their certificates.
func TestAgainKeepsWhatIsThere(t *testing.T) {
	cfg := Config{
		Dir: t.TempDir(), Hosts: []string{"apiserver", "127.0.0.1"}, Nodes: []string{"node-1=10.0.0.1"},
		Server: "127.0.0.1:7443", Context: "trireme",
	}
	write := func() {
		t.Helper()
		if err := cfg.Write(io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	write()
	files := []string{"ca/ca.key", "apiserver/tls.crt", "node-1/tls.key", "admin/tls.crt"}
	first := map[string]string{}
	for _, f := range files {
		first[f] = read(t, filepath.Join(cfg.Dir, f))
	}
	// What a user set stays.
	path := filepath.Join(cfg.Dir, "config.yaml")
	config, err := contexts.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	mine := config.Contexts["trireme"]
	mine.Namespace = "train"
	config.Contexts["trireme"] = mine
	if err := config.Save(path); err != nil {
		t.Fatal(err)
	}

	cfg.Nodes = append(cfg.Nodes, "node-2")
	cfg.Server = "127.0.0.1:7444"
	write()
	for _, f := range files {
		if read(t, filepath.Join(cfg.Dir, f)) != first[f] {
			t.Errorf("%s was made anew", f)
		}
	}
	config, err = contexts.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.Get("")
	if err != nil {
		t.Fatal(err)
	}
	if got.Server != "127.0.0.1:7444" || got.Namespace != "train" {
		t.Errorf("context is %+v", got)
	}
	if got.KeyFile != filepath.Join(cfg.Dir, "admin", "tls.key") {
		t.Errorf("the key is looked for in %s", got.KeyFile)
	}

	pair, err := tls.LoadX509KeyPair(filepath.Join(cfg.Dir, "node-2", "tls.crt"), filepath.Join(cfg.Dir, "node-2", "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(read(t, filepath.Join(cfg.Dir, "admin", "ca.crt"))))
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "node-2"}); err != nil {
		t.Errorf("the admin's CA and node-2's certificate: %v", err)
	}
}

func TestBadNodes(t *testing.T) {
	for _, nodes := range [][]string{{"admin"}, {"../x"}, {""}, {"a", "a=10.0.0.1"}, {"ca"}} {
		err := Config{Dir: t.TempDir(), Nodes: nodes}.Write(io.Discard)
		if err == nil || !strings.Contains(err.Error(), "--node") {
			t.Errorf("%q: %v", nodes, err)
		}
	}
}
