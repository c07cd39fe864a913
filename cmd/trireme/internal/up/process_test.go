package up

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const childEnv = "TRIREME_UP_TEST_CHILD"

// TestMain makes the test binary the services that the tests supervise.
func TestMain(m *testing.M) {
	if mode := os.Getenv(childEnv); mode != "" {
		child(mode)
		return
	}
	goleak.VerifyTestMain(m)
}

func child(mode string) {
	signals := make(chan os.Signal, 1)
	if mode == "stubborn" {
		signal.Ignore(syscall.SIGTERM)
	} else {
		signal.Notify(signals, syscall.SIGTERM)
	}
	if mode == "fails" {
		fmt.Fprintln(os.Stderr, "error: disk on fire")
		os.Exit(3)
	}
	fmt.Printf("running %s\n", strings.Join(os.Args[1:], " "))
	<-signals
	fmt.Println("told to stop")
}

// lines collects what a supervisor says, and wakes who waits for it.
type lines struct {
	mu   sync.Mutex
	said []string
	more chan struct{}
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1000)} }

func (l *lines) say(format string, args ...any) {
	l.mu.Lock()
	l.said = append(l.said, fmt.Sprintf(format, args...))
	l.mu.Unlock()
	l.more <- struct{}{}
}

func (l *lines) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.said, "\n")
}

func newTestLayout(t *testing.T) layout {
	t.Helper()
	l := layout{dir: filepath.Join(t.TempDir(), "s")}
	if err := l.create(); err != nil {
		t.Fatal(err)
	}
	return l
}

// pidOf waits until the service has been started so many times and knows its signals, and returns its number.
func pidOf(t *testing.T, l layout, service, log string, starts int) int {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		data, _ := os.ReadFile(l.log(service))
		r, err := readRecord(l.pidFile(service))
		if err == nil && r.alive() && strings.Count(string(data), log) == starts {
			return r.PID
		}
		<-time.After(5 * time.Millisecond)
	}
	t.Fatalf("%s does not run", service)
	return 0
}

func supervised1(t *testing.T, l layout, said *lines, sp spec) (stop func()) {
	t.Helper()
	s := &supervisor{exe: os.Args[0], layout: l, starter: newStarter(), say: said.say}
	t.Cleanup(func() { close(s.starter) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.supervise(ctx, sp) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func TestSupervisorRestartsWhatWasKilledAndStopsWhatItIsTold(t *testing.T) {
	t.Setenv(childEnv, "runs")
	l, said := newTestLayout(t), newLines()
	stop := supervised1(t, l, said, spec{service: "scheduler", args: []string{"--a=b"}, grace: 10 * time.Second})
	first := pidOf(t, l, "scheduler", "running scheduler --a=b", 1)
	if pgid, err := syscall.Getpgid(first); err != nil || pgid != first {
		t.Errorf("process group %d, %v, want one of its own, %d", pgid, err, first)
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-said.more
	if got, want := said.all(), "scheduler ended: signal: killed (log: "+l.log("scheduler")+"); starting it again in 100ms"; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
	second := pidOf(t, l, "scheduler", "running scheduler --a=b", 2)
	stop()
	if r := (record{PID: second, Start: "x"}); r.alive() {
		t.Error("the service survived the stop")
	}
	data, err := os.ReadFile(l.log("scheduler"))
	if err != nil || strings.Count(string(data), "told to stop") != 1 {
		t.Errorf("log %q, %v: want one process told to stop", data, err)
	}
	if _, err := os.Stat(l.pidFile("scheduler")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pid file after the stop: %v", err)
	}
}

func TestSupervisorBacksOffAndSaysWhy(t *testing.T) {
	t.Setenv(childEnv, "fails")
	said := newLines()
	stop := supervised1(t, newTestLayout(t), said, spec{service: "apiserver", grace: time.Second})
	for range 3 {
		<-said.more
	}
	stop()
	want := "apiserver ended: exit status 3 (disk on fire); starting it again in 100ms\n" +
		"apiserver ended: exit status 3 (disk on fire); starting it again in 200ms\n" +
		"apiserver ended: exit status 3 (disk on fire); starting it again in 400ms"
	if got := said.all(); got != want {
		t.Errorf("said\n%s\nwant\n%s", got, want)
	}
}

func TestSupervisorKillsWhatDoesNotStop(t *testing.T) {
	t.Setenv(childEnv, "stubborn")
	l, said := newTestLayout(t), newLines()
	stop := supervised1(t, l, said, spec{service: "nodeagent", grace: 50 * time.Millisecond})
	pidOf(t, l, "nodeagent", "running nodeagent", 1)
	stop()
	if got := said.all(); got != "nodeagent does not stop within 50ms and is killed" {
		t.Errorf("said %q", got)
	}
}

// start runs a child that no supervisor knows of.
func start(t *testing.T, mode string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !bufio.NewScanner(out).Scan() {
		t.Fatal("child said nothing")
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-exited })
	return cmd
}

func TestLeftoversAreStoppedAndStrangersAreNot(t *testing.T) {
	l, said := newTestLayout(t), newLines()
	write := func(service string, r record) {
		t.Helper()
		if err := r.write(l.pidFile(service)); err != nil {
			t.Fatal(err)
		}
	}
	ours, stubborn, stranger := start(t, "runs"), start(t, "stubborn"), start(t, "runs")
	recs := map[string]record{}
	for name, cmd := range map[string]*exec.Cmd{"apiserver": ours, "nodeagent": stubborn} {
		r, err := recordOf(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		recs[name] = r
		write(name, r)
	}
	// A number that was reused after a reboot.
	write("deviced", record{PID: stranger.Process.Pid, Start: recs["apiserver"].Start + "0"})
	write("scheduler", record{PID: 1, Start: recs["apiserver"].Start})
	if err := os.WriteFile(l.pidFile("controller"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := stopLeftovers(t.Context(), l, 100*time.Millisecond, said.say); err != nil {
		t.Fatal(err)
	}
	for name, r := range recs {
		if r.alive() {
			t.Errorf("%s still runs", name)
		}
	}
	if r, err := recordOf(stranger.Process.Pid); err != nil || !r.alive() {
		t.Errorf("a process of somebody else was stopped: %v", err)
	}
	if left, _ := filepath.Glob(l.path("run", "*.pid")); len(left) > 0 {
		t.Errorf("pid files left: %v", left)
	}
	if got := said.all(); strings.Count(got, "left behind by an earlier up") != 2 {
		t.Errorf("said %q, want two leftovers", got)
	}
}

func TestOnlyOneHoldsTheLock(t *testing.T) {
	l := newTestLayout(t)
	release, err := takeLock(l.lock())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := takeLock(l.lock()); !errors.Is(err, errLocked) {
		t.Errorf("second lock: %v, want errLocked", err)
	}
	release()
	release, err = takeLock(l.lock())
	if err != nil {
		t.Fatalf("lock after release: %v", err)
	}
	release()
}
