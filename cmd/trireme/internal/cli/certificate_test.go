package cli_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"trireme.dev/cmd/trireme/internal/cli"
	"trireme.dev/cmd/trireme/internal/contexts"
	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
)

// gatewayOf serves nothing but its certificate.
func gatewayOf(t *testing.T, files pki.Files) string {
	t.Helper()
	srv, err := rpc.NewServer(rpc.ServerConfig{
		Name: "apiserver", TCP: "127.0.0.1:0", CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA,
	}, slog.New(slog.DiscardHandler))
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
	<-srv.Ready()
	return srv.Addr().String()
}

func TestCertificatesThatAreNoGoodAreNamed(t *testing.T) {
	dir := t.TempDir()
	issue := func(dir, name string, id pki.Identity) pki.Files {
		t.Helper()
		ca, err := pki.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		files, err := ca.Issue(dir, name, id)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	here := []net.IP{net.IPv4(127, 0, 0, 1)}
	good := gatewayOf(t, issue(dir, "good", pki.Identity{CommonName: "apiserver", IPs: here}))
	late := gatewayOf(t, issue(dir, "late", pki.Identity{CommonName: "apiserver", IPs: here, Lifetime: -time.Minute}))
	admin := issue(dir, "admin", pki.Identity{CommonName: "admin"})
	old := issue(dir, "old", pki.Identity{CommonName: "admin", Lifetime: -time.Minute})
	other := issue(t.TempDir(), "other", pki.Identity{CommonName: "admin"})

	p := newProgram(t, cli.Dial)
	config := &contexts.Config{Contexts: map[string]contexts.Context{}}
	wants := map[string]string{}
	for name, c := range map[string]struct {
		server string
		files  pki.Files
		want   string
	}{
		"own":     {good, old, "certificate " + old.Cert + " of admin expired at "},
		"server":  {late, admin, "the certificate of " + late + " expired at "},
		"cluster": {good, other, "the certificate of " + good + " is signed by another CA than ours: it is another cluster"},
	} {
		config.Contexts[name] = contexts.Context{Server: c.server, CertFile: c.files.Cert, KeyFile: c.files.Key, CAFile: c.files.CA}
		wants[name] = "error: cannot talk to the gateway: " + c.want
	}
	if err := config.Save(p.config); err != nil {
		t.Fatal(err)
	}
	for name, want := range wants {
		_, errOut, code := p.run(t.Context(), "", "get", "pods", "--context", name)
		if code != 1 || !strings.HasPrefix(errOut, want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s: exit %d, %q, want a line that begins with %q", name, code, errOut, want)
		}
	}
}
