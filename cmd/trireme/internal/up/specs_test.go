package up

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"trireme.dev/cmd/trireme/internal/service"
	"trireme.dev/kit/pki"
	"trireme.dev/services/deviced"
)

// planned are the services of a cluster, without anything being started.
func planned(cfg Config, runtimeDir string) (layout, []spec) {
	l := layout{dir: "/s"}
	certs := map[string]pki.Files{}
	for _, n := range []string{"apiserver", "scheduler", "controller", "nodeagent", "admin"} {
		certs[n] = pki.Files{Cert: filepath.Join("/s/pki", n+".crt"), Key: filepath.Join("/s/pki", n+".key"), CA: "/s/pki/ca.crt"}
	}
	agent := agentConfig(cfg, l, certs["nodeagent"], "0.0.0.0:7443", "192.0.2.1:7444", "n", runtimeDir)
	devices := deviced.Config{Socket: l.socket("deviced"), PluginDirs: []string{"/p"}, SimulatedGPUs: cfg.GPUs}
	return l, specs(l, certs, "0.0.0.0:7443", agent, devices)
}

func TestServicesTakeTheFlagsThatUpGivesThem(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg        Config
		runtimeDir string
	}{
		"simulated":        {cfg: Config{Simulate: 3, GPUs: 8}},
		"own containerd":   {cfg: Config{GPUs: 8}, runtimeDir: "/r"},
		"other containerd": {cfg: Config{GPUs: 8, Containerd: "/run/c.sock"}},
	} {
		t.Run(name, func(t *testing.T) {
			commands := map[string]*cobra.Command{}
			for _, c := range service.Commands() {
				commands[c.Name()] = c
			}
			_, all := planned(tt.cfg, tt.runtimeDir)
			for _, sp := range all {
				c := commands[sp.service]
				if c == nil {
					t.Errorf("no command %s", sp.service)
					continue
				}
				if err := c.ParseFlags(sp.args); err != nil {
					t.Errorf("%s %v: %v", sp.service, sp.args, err)
				}
				delete(commands, sp.service)
			}
			for left := range commands {
				t.Errorf("%s is not started", left)
			}
		})
	}
}

func TestEachServiceHasItsOwnIdentityAndReachesTheGateway(t *testing.T) {
	l, all := planned(Config{Simulate: 3, GPUs: 8}, "")
	for _, sp := range all {
		want := []string{"--socket=" + l.socket(sp.service)}
		if sp.service != "deviced" {
			want = append(want, "--cert=/s/pki/"+sp.service+".crt", "--key=/s/pki/"+sp.service+".key", "--ca=/s/pki/ca.crt")
		}
		switch sp.service {
		case "scheduler", "controller", "nodeagent":
			want = append(want, "--apiserver=127.0.0.1:7443")
		case "apiserver":
			want = append(want, "--listen=0.0.0.0:7443")
		}
		for _, flag := range want {
			if !slices.Contains(sp.args, flag) {
				t.Errorf("%s has %s, want %s", sp.service, strings.Join(sp.args, " "), flag)
			}
		}
	}
}

func TestIssueGivesEachComponentWhatItIs(t *testing.T) {
	l := newTestLayout(t)
	files, err := issue(l, "sim", nodeNames("sim", 2))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"apiserver": "system:trireme-apiserver", "scheduler": "system:trireme-scheduler",
		"controller": "system:trireme-controller", "nodeagent": "system:node:sim", "admin": "admin",
	} {
		cert := certificate(t, files[name].Cert)
		if cert.Subject.CommonName != want {
			t.Errorf("%s is %q, want %q", name, cert.Subject.CommonName, want)
		}
	}
	agent := certificate(t, files["nodeagent"].Cert)
	for _, host := range []string{"sim-0", "sim-1", "127.0.0.1", "localhost"} {
		if err := agent.VerifyHostname(host); err != nil {
			t.Errorf("the agent's certificate: %v", err)
		}
	}
}

func certificate(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("%s is no PEM", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
