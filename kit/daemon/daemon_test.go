package daemon_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"trireme.dev/kit/daemon"
)

const childEnv = "TRIREME_DAEMON_TEST_CHILD"

// TestMain makes the test binary its own victim: with childEnv set it is the process that the signal tests
// observe.
func TestMain(m *testing.M) {
	if mode := os.Getenv(childEnv); mode != "" {
		daemon.Main(func(ctx context.Context) error { return child(ctx, mode) })
	}
	goleak.VerifyTestMain(m)
}

func child(ctx context.Context, mode string) error {
	os.Stdout.WriteString("started\n")
	switch mode {
	case "fails":
		return errors.New("disk on fire")
	case "panics":
		panic("at the disco")
	case "passes on":
		return fmt.Errorf("exec: %w", &daemon.ExitError{Code: 7})
	case "says and passes on":
		return &daemon.ExitError{Code: 8, Err: errors.New("disk on fire")}
	case "stops":
		<-ctx.Done()
		os.Stdout.WriteString("cancelled\n")
		<-time.After(50 * time.Millisecond)
		return ctx.Err()
	case "hangs":
		<-ctx.Done()
		<-time.After(300 * time.Millisecond) // a signal at once would count as the first one passed on
		os.Stdout.WriteString("cancelled\n")
		select {}
	}
	return nil
}

func TestRun(t *testing.T) {
	boom := errors.New("boom")
	wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	synctest.Test(t, func(t *testing.T) {
		var stopped time.Duration
		start := time.Now()
		err := daemon.Run(t.Context(),
			daemon.Task{Name: "finished", Run: func(context.Context) error { return nil }},
			daemon.Task{Name: "waits", Run: func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Second) // the winding down that Run has to wait for
				stopped = time.Since(start)
				return ctx.Err()
			}},
			daemon.Task{Name: "fails", Run: func(context.Context) error { time.Sleep(time.Minute); return boom }},
		)
		if !errors.Is(err, boom) || err.Error() != "fails: boom" {
			t.Errorf("Run = %v, want fails: boom", err)
		}
		if stopped != 61*time.Second {
			t.Errorf("the other task ended after %s, want 1m1s, before Run returned", stopped)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		err := daemon.Run(t.Context(),
			daemon.Task{Name: "waits", Run: wait},
			daemon.Task{Name: "panics", Run: func(context.Context) error { panic("at the disco") }})
		if err == nil || !strings.Contains(err.Error(), "panics: panic: at the disco") || !strings.Contains(err.Error(), "daemon_test.go") {
			t.Errorf("Run = %v, want the panic and its stack", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		stop, cancelStop := context.WithCancel(ctx)
		time.AfterFunc(time.Minute, cancelStop)
		if err := daemon.Run(stop, daemon.Task{Name: "a", Run: wait}, daemon.Task{Name: "b", Run: wait}); err != nil {
			t.Errorf("Run = %v after its context was cancelled, want nil", err)
		}
	})
}

func TestMainExitCode(t *testing.T) {
	tests := []struct {
		mode    string
		signals int
		code    int
		stderr  string
	}{
		{mode: "ends", code: 0},
		{mode: "fails", code: 1, stderr: "error: disk on fire\n"},
		{mode: "panics", code: 1, stderr: "error: panic: at the disco"},
		{mode: "passes on", code: 7},
		{mode: "says and passes on", code: 8, stderr: "error: disk on fire\n"},
		{mode: "stops", signals: 1, code: 0},
		{mode: "stops", signals: 2, code: 0}, // the second one at once: passed on
		{mode: "hangs", signals: 2, code: 128 + int(syscall.SIGTERM)},
	}
	for _, tt := range tests {
		t.Run(tt.mode, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), childEnv+"="+tt.mode)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stdout)
			for range tt.signals {
				if !lines.Scan() { // the second line says that the first signal has arrived
					t.Fatal("child said nothing")
				}
				if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			for lines.Scan() {
			}
			err = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != tt.code {
				t.Errorf("exit code %d (%v), want %d", got, err, tt.code)
			}
			if !strings.HasPrefix(stderr.String(), tt.stderr) || (tt.stderr == "" && stderr.Len() > 0) {
				t.Errorf("stderr %q, want prefix %q", stderr.String(), tt.stderr)
			}
		})
	}
}
