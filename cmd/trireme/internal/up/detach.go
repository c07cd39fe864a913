package up

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// What a background `up` prints to the one that started it ends with a mark: the cluster is up, or the error follows.
const (
	readyMark = 0
	failMark  = 1
)

// runDetached starts this command again in a session of its own, passes on what it prints and returns once it is
// ready.
func runDetached(ctx context.Context, stateDir string, stdout io.Writer) error {
	l, err := newLayout(stateDir)
	if err != nil {
		return err
	}
	if err := l.create(); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := openLog(l.log(upService))
	if err != nil {
		return err
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()

	cmd := exec.Command(exe, append(attached(os.Args[1:]), "--ready-fd=3")...)
	cmd.Args[0] = os.Args[0] // its messages name the command as the user called it
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = w.Close() // the child has its own
	if err != nil {
		return err
	}
	// Until the cluster is up, interrupting this command means interrupting that one.
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()

	said, err := io.ReadAll(io.TeeReader(r, &untilMark{w: stdout}))
	if err != nil {
		return err
	}
	text, failure, failed := bytes.Cut(said, []byte{failMark})
	if bytes.IndexByte(text, readyMark) >= 0 {
		return cmd.Process.Release()
	}
	err = cmd.Wait()
	if !failed {
		return fmt.Errorf("up ended before the cluster was up: %w%s", orEnded(err), lastWords(l.log(upService)))
	}
	return errors.New(string(failure))
}

// untilMark passes on what comes before the first mark.
type untilMark struct {
	w    io.Writer
	over bool
}

func (u *untilMark) Write(p []byte) (int, error) {
	if u.over {
		return len(p), nil
	}
	text := p
	if i := bytes.IndexAny(p, string([]byte{readyMark, failMark})); i >= 0 {
		text, u.over = p[:i], true
	}
	// Whoever reads is not needed for the cluster to come up.
	_, _ = u.w.Write(text)
	return len(p), nil
}

// attached takes --detach out of the arguments.
func attached(args []string) []string {
	var out []string
	for _, a := range args {
		if a != "--detach" && !strings.HasPrefix(a, "--detach=") {
			out = append(out, a)
		}
	}
	return out
}

// runInBackground is the other end: it prints to the log, and to fd until the cluster is up.
func runInBackground(ctx context.Context, cfg Config, fd int) error {
	pipe := os.NewFile(uintptr(fd), "ready")
	if pipe == nil {
		return fmt.Errorf("--ready-fd %d: no such file", fd)
	}
	syscall.CloseOnExec(fd)
	both := &untilReady{log: os.Stdout, pipe: pipe}
	err := run(ctx, cfg, both, func() { both.end([]byte{readyMark}) })
	if err != nil {
		both.end(append([]byte{failMark}, err.Error()...))
	}
	return err
}

// untilReady writes to both, and after end to the log alone. The pipe's reader may go away at any time.
type untilReady struct {
	mu   sync.Mutex
	log  io.Writer
	pipe *os.File
}

func (u *untilReady) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pipe != nil {
		if _, err := u.pipe.Write(p); err != nil {
			u.pipe = nil
		}
	}
	return u.log.Write(p)
}

func (u *untilReady) end(last []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pipe != nil {
		_, _ = u.pipe.Write(last)
		_ = u.pipe.Close()
		u.pipe = nil
	}
}
