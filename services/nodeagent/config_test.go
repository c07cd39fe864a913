package nodeagent

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"trireme.dev/kit/rpc"
)

func TestConfigNamesAllThatIsWrong(t *testing.T) {
	cfg := Config{StateDir: "relative", Simulate: -1, NodeIP: "nowhere", SimulatedCPU: "many"}
	err := cfg.Validate()
	for _, want := range []string{"--apiserver", "--state-dir", "--simulate -1", "--node-ip", "--simulated-cpu"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
	cfg = Config{Gateway: rpc.ClientConfig{Address: "unix:///a"}, StateDir: "/s", ContainerdSocket: "/c", RuntimeBin: "/b"}
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "--containerd, --runtime-bin: want one of them, or --simulate") {
		t.Errorf("both runtimes: %v", err)
	}
}

func TestFlagsAndDefaults(t *testing.T) {
	var cfg Config
	flags := pflag.NewFlagSet("nodeagent", pflag.ContinueOnError)
	cfg.AddFlags(flags)
	if err := flags.Parse([]string{"--apiserver=unix:///a", "--state-dir=/s", "--simulate=2", "--node-labels=zone=a,tier=b"}); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(cfg.nodeNames(), " "); got != "sim-0 sim-1" || cfg.NodeIP != "127.0.0.1" || cfg.Labels["tier"] != "b" {
		t.Errorf("got %s %+v", got, cfg)
	}
	if m := cfg.simulatedMachine(); m.CPUMillis != 64000 || m.MemoryBytes != 256<<30 {
		t.Errorf("machine %+v", m)
	}
}

func TestCleanupOfSimulatedNodes(t *testing.T) {
	c := start(t)
	c.create(pod("web", "serve"))
	c.waitPod("web", running)
	c.stop()
	kept := func() []string {
		files, err := filepath.Glob(c.dir + "/nodes/sim-0/runtime/*.json")
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	if len(kept()) != 1 {
		t.Fatalf("the runtime keeps %v", kept())
	}
	for range 2 {
		if err := Cleanup(t.Context(), c.config(), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		if files := kept(); len(files) > 0 {
			t.Errorf("left over: %v", files)
		}
	}
	// One that has never run has nothing.
	empty := c.config()
	empty.StateDir = shortDir(t)
	if err := Cleanup(t.Context(), empty, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(empty.StateDir + "/nodes/sim-0/pods"); err == nil && len(entries) > 0 {
		t.Errorf("left over: %v", entries)
	}
}
