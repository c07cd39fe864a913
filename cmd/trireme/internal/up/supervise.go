package up

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	firstRestart = 100 * time.Millisecond
	lastRestart  = 5 * time.Second
	// healthyAfter is how long a service must have run for its next restart to be immediate again.
	healthyAfter = 10 * time.Second
	// maxLog is the size from which a log is set aside before its service is started again.
	maxLog = 16 << 20
)

// spec is a service to run as a child process of this binary.
type spec struct {
	service string
	args    []string
	// address is where others find it, for people.
	address string
	// grace is how long the service may take to stop before it is killed.
	grace time.Duration
}

// starter starts processes from one thread that lives as long as this process: Linux delivers a child's
// parent-death signal when the thread that started it ends, not the process.
type starter chan func()

func newStarter() starter {
	s := make(starter)
	go func() {
		runtime.LockOSThread()
		for f := range s {
			f()
		}
	}()
	return s
}

func (s starter) start(cmd *exec.Cmd) error {
	done := make(chan error)
	s <- func() { done <- cmd.Start() }
	return <-done
}

// supervisor keeps services running.
type supervisor struct {
	exe     string
	layout  layout
	starter starter
	env     []string // beside that of this process
	say     func(format string, args ...any)
}

// supervise runs one service until ctx is done and restarts it whenever it ends. It returns once the process
// is gone.
func (s *supervisor) supervise(ctx context.Context, sp spec) error {
	pause := firstRestart
	for {
		started := time.Now()
		err := s.once(ctx, sp)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(started) >= healthyAfter {
			pause = firstRestart
		}
		s.say("%s ended: %v%s; starting it again in %s", sp.service, err, lastWords(s.layout.log(sp.service)), pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, lastRestart)
	}
}

func (s *supervisor) once(ctx context.Context, sp spec) error {
	log, err := openLog(s.layout.log(sp.service))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.exe, append([]string{sp.service}, sp.args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = s.layout.dir
	cmd.Env = append(os.Environ(), s.env...)
	cmd.SysProcAttr = childAttr()
	if err := s.starter.start(cmd); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()

	pidFile := s.layout.pidFile(sp.service)
	if rec, err := recordOf(cmd.Process.Pid); err == nil { // otherwise it has ended already
		if err := rec.write(pidFile); err != nil {
			s.say("%s: %v", sp.service, err)
		}
	}
	defer os.Remove(pidFile)

	select {
	case err := <-exited:
		return orEnded(err)
	case <-ctx.Done():
	}
	// An error means that it has ended meanwhile.
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-exited:
		return orEnded(err)
	case <-time.After(sp.grace):
	}
	s.say("%s does not stop within %s and is killed", sp.service, sp.grace)
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	return orEnded(<-exited)
}

func orEnded(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

func openLog(path string) (*os.File, error) {
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// lastWords is the error with which a service ended, as daemon.Main prints it, in parentheses.
func lastWords(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const tail = 8 << 10
	if st, err := f.Stat(); err == nil && st.Size() > tail {
		if _, err := f.Seek(-tail, io.SeekEnd); err != nil {
			return ""
		}
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return ""
	}
	lines := strings.Split(string(bytes.TrimSpace(data)), "\n")
	if last, ok := strings.CutPrefix(lines[len(lines)-1], "error: "); ok {
		return fmt.Sprintf(" (%s)", last)
	}
	return fmt.Sprintf(" (log: %s)", path)
}
