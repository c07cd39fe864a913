package cli_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/grpc"

	"trireme.dev/cmd/trireme/internal/contexts"
	"trireme.dev/services/apiserver/apitest"
	"trireme.dev/services/scheduler"
)

// startScheduler runs a real one against the gateway.
func startScheduler(t *testing.T, s *apitest.Server) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sched")
	if err != nil {
		t.Fatal(err)
	}
	cfg := scheduler.NewConfig()
	cfg.Gateway.Address, cfg.Socket, cfg.LeaderElect = s.Listen(t), filepath.Join(dir, "s"), false
	sched, err := scheduler.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sched.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("scheduler: %v", err)
		}
		_ = os.RemoveAll(dir)
	})
}

// passing are figures that differ from run to run.
var passing = regexp.MustCompile(`\b([0-9.]+(ms|µs|s)|[0-9]+m[0-9]+s|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8})\b`)

// Among equals it is the scheduler's turn that decides.
var chosen = regexp.MustCompile(`(is on node node-|ends on node node-|default/full-)\d`)

// The width of a column depends on them.
var spaces = regexp.MustCompile(` {2,}`)

// TestScheduling runs scripts against a real gateway and scheduler.
//
//	trireme ARGS...        as in TestCommands, with times replaced by T
//	until text=T ARGS...   the same, again and again until the output has the text, in which _ stands for a space
//	why text=T ARGS...     the first line of `trireme why`, likewise
//	file, status           as in TestCommands
func TestScheduling(t *testing.T) {
	datadriven.Walk(t, "scheduling", func(t *testing.T, path string) {
		s := apitest.New(t)
		startScheduler(t, s)
		p := newProgram(t, func(contexts.Context) (*grpc.ClientConn, error) { return s.Dial() })
		dir := t.TempDir()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			run := func() string {
				args := arguments(d.Input)
				for i, a := range args {
					args[i] = strings.ReplaceAll(a, "$DIR", dir)
				}
				out, errOut, code := p.run(t.Context(), "", args...)
				text := strings.ReplaceAll(transcript(out, errOut, code), dir, "$DIR")
				return spaces.ReplaceAllString(passing.ReplaceAllString(text, "T"), "  ")
			}
			switch d.Cmd {
			case "file":
				var name string
				d.ScanArgs(t, "name", &name)
				if err := os.WriteFile(filepath.Join(dir, name), []byte(d.Input), 0o600); err != nil {
					t.Fatal(err)
				}
			case "status":
				setStatus(t, s.Conn(), d.Input)
			case "trireme":
				return run()
			case "until", "why":
				if d.Cmd == "why" {
					whole := run
					d.Input = "why " + d.Input
					run = func() string { return chosen.ReplaceAllString(strings.SplitAfter(whole(), "\n")[0], "${1}N") }
				}
				var text string
				d.ScanArgs(t, "text", &text)
				text = strings.ReplaceAll(text, "_", " ")
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				for deadline := time.Now().Add(30 * time.Second); ; <-tick.C {
					if out := run(); strings.Contains(out, text) || time.Now().After(deadline) {
						return out
					}
				}
			default:
				d.Fatalf(t, "unknown directive %s", d.Cmd)
			}
			return ""
		})
	})
}
