package telemetry

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestLoggerFollowsItsFlags(t *testing.T) {
	var cfg Config
	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	cfg.AddFlags(fs)

	var text bytes.Buffer
	logger := NewLoggerTo(&text, cfg, "scheduler")
	logger.Debug("hidden")
	logger.Info("bound", KeyPod, "default/a")
	if got := text.String(); strings.Contains(got, "hidden") || !strings.Contains(got, "service=scheduler pod=default/a") {
		t.Errorf("text log: %s", got)
	}

	if err := fs.Parse([]string{"--log-level=debug", "--log-json"}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	NewLoggerTo(&out, cfg, "scheduler").Debug("seen")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	if line["msg"] != "seen" || line["service"] != "scheduler" || line["level"] != "DEBUG" {
		t.Errorf("json log: %v", line)
	}
	if err := fs.Parse([]string{"--log-level=loud"}); err == nil {
		t.Error("--log-level=loud was accepted")
	}
}
