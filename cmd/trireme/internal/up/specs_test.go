package up

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
	return l, specs(cfg, l, certs, "0.0.0.0:7443", agent, devices)
}

func TestServicesTakeTheFlagsThatUpGivesThem(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg        Config
		runtimeDir string
	}{
		"simulated":        {cfg: Config{Simulate: 3, GPUs: 8}},
		"flags of gateway": {cfg: Config{Simulate: 1, AuditLog: "/a.log", AuditPolicy: "/p.yaml", EventTTL: 2 * time.Hour}},
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

// What the user gives up for the gateway reaches it, with paths that hold in the folder that it runs in.
func TestUpPassesTheGatewaysFlagsOn(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("policy.yaml", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Simulate: 1, Timeout: time.Minute, AuditLog: "audit.log", AuditPolicy: "policy.yaml", EventTTL: 90 * time.Minute}
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	want := []string{"--audit-log=" + filepath.Join(dir, "audit.log"), "--audit-policy=" + filepath.Join(dir, "policy.yaml"), "--event-ttl=1h30m0s"}
	if got := gatewayFlags(cfg); !slices.Equal(got, want) {
		t.Errorf("the gateway gets %v, want %v", got, want)
	}
	_, all := planned(cfg, "")
	for _, sp := range all {
		if has := slices.Contains(sp.args, want[0]); has != (sp.service == "apiserver") {
			t.Errorf("%s has %v", sp.service, sp.args)
		}
	}
	if got := gatewayFlags(Config{}); len(got) != 0 {
		t.Errorf("without flags the gateway gets %v", got)
	}
	for text, cfg := range map[string]Config{
		"--audit-policy needs --audit-log": {AuditPolicy: "policy.yaml"},
		"no such file":                     {AuditLog: "a", AuditPolicy: "none.yaml"},
		"--event-ttl 1ms":                  {EventTTL: time.Millisecond},
	} {
		cfg.Timeout = time.Minute
		if err := cfg.check(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v, want %q", cfg, err, text)
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
