//go:build linux

package containerd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"trireme.dev/services/nodeagent/internal/logs"
)

// drainWait is how long an ended process' output is waited for while nothing comes. It matters only where a child
// that outlived the process holds the pipe open; otherwise the end of the pipe is seen at once.
const drainWait = 2 * time.Second

// fifo is one named pipe between a shim and this process. The shim holds both of its ends, so that a process which
// writes while no runtime is there waits instead of dying.
type fifo struct {
	file     *os.File
	draining atomic.Bool
}

// openFIFO opens a pipe for reading, making it if need be. hold is a write end of our own: without it the pipe
// looks ended until the shim opens its end. It is closed once the shim has.
func openFIFO(path string, fresh bool) (f *fifo, hold *os.File, err error) {
	if fresh {
		if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, nil, fmt.Errorf("make FIFO %s: %w", path, err)
		}
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open FIFO: %w", err)
	}
	if fresh {
		if hold, err = os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0); err != nil {
			_ = file.Close()
			return nil, nil, fmt.Errorf("open FIFO: %w", err)
		}
	}
	return &fifo{file: file}, hold, nil
}

// Read ends when the shim has closed its end, or when the process has ended and nothing came for a while.
func (f *fifo) Read(b []byte) (int, error) {
	for {
		draining := f.draining.Load()
		if draining {
			_ = f.file.SetReadDeadline(time.Now().Add(drainWait))
		}
		n, err := f.file.Read(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if draining {
			return 0, io.EOF
		}
	}
}

func (f *fifo) drain() {
	f.draining.Store(true)
	_ = f.file.SetReadDeadline(time.Now().Add(drainWait))
}

// output copies a running container's output to its log.
type output struct {
	stdin, stdout, stderr string // paths; empty where the task has no such stream
	fifos                 []*fifo
	holds                 []*os.File
	done                  chan struct{}
}

// openOutput makes the FIFOs of a container that is about to start.
func (r *Runtime) openOutput(c *container) (*output, error) {
	if err := os.MkdirAll(c.runDir, 0o700); err != nil {
		return nil, err
	}
	out, err := r.copyOutput(c, true)
	if err != nil {
		return nil, err
	}
	if c.stdin {
		// Nobody writes to it yet. The shim keeps it open, so the container sees silence and not the end.
		out.stdin = filepath.Join(c.runDir, "stdin")
		if err := unix.Mkfifo(out.stdin, 0o600); err != nil && !errors.Is(err, os.ErrExist) {
			out.letGo()
			out.close()
			return nil, fmt.Errorf("make FIFO %s: %w", out.stdin, err)
		}
	}
	return out, nil
}

// reopenOutput goes on with the output of a container that an earlier runtime started.
func (r *Runtime) reopenOutput(c *container) (err error) {
	c.output, err = r.copyOutput(c, false)
	return err
}

func (r *Runtime) copyOutput(c *container, fresh bool) (*output, error) {
	out := &output{stdout: filepath.Join(c.runDir, "stdout"), done: make(chan struct{})}
	streams := []logs.Stream{logs.Stdout}
	paths := []string{out.stdout}
	if !c.tty {
		out.stderr = filepath.Join(c.runDir, "stderr")
		streams, paths = append(streams, logs.Stderr), append(paths, out.stderr)
	}
	for _, path := range paths {
		f, hold, err := openFIFO(path, fresh)
		if err != nil {
			out.letGo()
			out.close()
			return nil, err
		}
		out.fifos = append(out.fifos, f)
		if hold != nil {
			out.holds = append(out.holds, hold)
		}
	}
	var log *logs.Writer
	if c.logPath != "" {
		var err error
		if log, err = logs.Create(c.logPath, r.cfg.LogRotation); err != nil {
			out.letGo()
			out.close()
			return nil, err
		}
	}
	var copies sync.WaitGroup
	for i, f := range out.fifos {
		copies.Go(func() {
			var err error
			if log == nil {
				_, err = io.Copy(io.Discard, f)
			} else {
				err = log.Copy(streams[i], f)
			}
			if err != nil && !errors.Is(err, os.ErrClosed) {
				r.logger.Warn("container's output is incomplete", "container", c.id, "stream", streams[i], "error", err)
			}
		})
	}
	r.copies.Go(func() {
		copies.Wait()
		if log != nil {
			if err := log.Close(); err != nil {
				r.logger.Warn("container's log is incomplete", "container", c.id, "error", err)
			}
		}
		out.close()
		close(out.done)
	})
	return out, nil
}

// letGo leaves the write ends to the shim.
func (o *output) letGo() {
	for _, hold := range o.holds {
		_ = hold.Close()
	}
	o.holds = nil
}

// drain waits until all output is in the log.
func (o *output) drain() {
	for _, f := range o.fifos {
		f.drain()
	}
	<-o.done
}

func (o *output) close() {
	for _, f := range o.fifos {
		_ = f.file.Close()
	}
}

// closeOutput ends the copying of a container's output without its end.
func (c *container) closeOutput() {
	if c.output != nil {
		c.output.close()
	}
}
