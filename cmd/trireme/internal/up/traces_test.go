package up

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"trireme.dev/cmd/trireme/internal/contexts"
	"trireme.dev/kit/pki"
)

// TestPlanTraces holds where spans go: here, unless the environment says otherwise, and then `up` says so.
func TestPlanTraces(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER", "OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_MAX_QUEUE_SIZE"} {
		t.Setenv(name, "")
	}
	for _, tt := range []struct {
		name, listen string
		env          map[string]string
		kept         bool
		says, fails  string
		sets         []string
	}{
		{name: "kept", kept: true, sets: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=unix://SOCKET", "OTEL_BSP_SCHEDULE_DELAY=500", "OTEL_BSP_MAX_QUEUE_SIZE=65536"}},
		{
			name: "the user's delay stays", kept: true, env: map[string]string{"OTEL_BSP_SCHEDULE_DELAY": "50"},
			sets: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=unix://SOCKET", "OTEL_BSP_MAX_QUEUE_SIZE=65536"},
		},
		{name: "elsewhere", env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}, says: "spans go to http://127.0.0.1:4317, as the environment says; none are kept here", sets: []string{"OTEL_BSP_MAX_QUEUE_SIZE=65536"}},
		{name: "off", env: map[string]string{"OTEL_SDK_DISABLED": "true"}, says: "tracing is off, as OTEL_SDK_DISABLED=true says"},
		{name: "bad", env: map[string]string{"OTEL_TRACES_SAMPLER": "often"}, fails: `OTEL_TRACES_SAMPLER: "often" is none of`},
		{name: "listening", listen: "127.0.0.1:0", kept: true, says: "spans of other machines are taken at https://127.0.0.1:", sets: []string{
			"OTEL_EXPORTER_OTLP_ENDPOINT=unix://SOCKET", "OTEL_BSP_SCHEDULE_DELAY=500", "OTEL_BSP_MAX_QUEUE_SIZE=65536",
		}},
		{name: "listening for nothing", listen: "127.0.0.1:0", env: map[string]string{"OTEL_TRACES_EXPORTER": "none"}, fails: "--traces-listen 127.0.0.1:0: no traces are kept here"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			var said strings.Builder
			c := &cluster{layout: layout{dir: "/s"}, cfg: Config{TracesListen: tt.listen}, progress: &progress{w: &said, start: time.Now()}}
			err := c.planTraces(pki.Files{Cert: "c", Key: "k", CA: "a"})
			if tt.fails != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.fails) || strings.Contains(err.Error(), "\n") {
					t.Fatalf("error %v, want one line that begins with %q", err, tt.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range tt.sets {
				tt.sets[i] = strings.ReplaceAll(s, "SOCKET", c.layout.otlpSocket())
			}
			if !slices.Equal(c.env, tt.sets) {
				t.Errorf("services get %q, want %q", c.env, tt.sets)
			}
			address := ""
			if tt.kept {
				address = "unix:///s/run/traces.sock"
			}
			if c.tracesAddress() != address {
				t.Errorf("the context says %q, want %q", c.tracesAddress(), address)
			}
			if !strings.Contains(said.String(), tt.says) || tt.says == "" && said.Len() > 0 {
				t.Errorf("said %q, want %q", said.String(), tt.says)
			}
			if listens := c.spans.TCP != ""; listens != (tt.listen != "") || listens && c.spans.CAFile != "a" {
				t.Errorf("takes spans at %+v", c.spans)
			}
		})
	}
	c := &cluster{running: map[string]*supervised{}, progress: &progress{w: io.Discard}}
	c.startTraces(t.Context()) // keeps none: nothing to stop
	c.stopServices(tracesService)
}

// TestContextSaysWhereTracesAre also when they go elsewhere: what the user wrote stays, an old store of `up` does not.
func TestContextSaysWhereTracesAre(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	t.Setenv(contexts.EnvVar, path)
	l := layout{dir: "/s"}
	for _, tt := range []struct{ before, now, want string }{
		{"", "unix:///s/run/traces.sock", "unix:///s/run/traces.sock"},
		{"unix:///s/run/traces.sock", "", ""},
		{"http://127.0.0.1:16686", "", "http://127.0.0.1:16686"},
		{"http://127.0.0.1:16686", "unix:///s/run/traces.sock", "unix:///s/run/traces.sock"},
	} {
		config := &contexts.Config{Contexts: map[string]contexts.Context{"s": {Server: "unix:///s/run/apiserver.sock", StateDir: l.dir, Traces: tt.before}}}
		if err := config.Save(path); err != nil {
			t.Fatal(err)
		}
		if err := writeContext(l, pki.Files{}, tt.now); err != nil {
			t.Fatal(err)
		}
		config, err := contexts.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := config.Contexts["s"].Traces; got != tt.want {
			t.Errorf("%q, now %q: the context says %q, want %q", tt.before, tt.now, got, tt.want)
		}
	}
}
