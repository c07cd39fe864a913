package up

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"trireme.dev/kit/loop"
)

// record identifies a process for good: a number alone may belong to somebody else after a reboot or a wrap.
type record struct {
	PID int
	// Start is when the process started, in the system's own words, which have no spaces.
	Start string
}

// alive reports whether the recorded process, and no other of its number, still runs.
func (r record) alive() bool {
	if r.PID <= 1 || r.Start == "" {
		return false
	}
	start, err := startTime(r.PID)
	return err == nil && start == r.Start
}

func recordOf(pid int) (record, error) {
	start, err := startTime(pid)
	if err != nil {
		return record{}, fmt.Errorf("start time of process %d: %w", pid, err)
	}
	return record{PID: pid, Start: start}, nil
}

// write makes a pid file: the number, as everybody expects it there, and behind it the start.
func (r record) write(path string) error {
	return os.WriteFile(path, fmt.Appendf(nil, "%d %s\n", r.PID, r.Start), 0o600)
}

// readRecord reads a pid file; one that does not exist or is broken identifies no process.
func readRecord(path string) (record, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	var r record
	if _, err := fmt.Sscanf(string(data), "%d %s", &r.PID, &r.Start); err != nil {
		return record{}, nil
	}
	return r, nil
}

// leftover is a service of an earlier `up` that still runs.
type leftover struct {
	service string
	file    string
	record
}

func leftovers(l layout) ([]leftover, error) {
	files, err := filepath.Glob(l.path("run", "*.pid"))
	if err != nil {
		return nil, err
	}
	var out []leftover
	for _, f := range files {
		service := strings.TrimSuffix(filepath.Base(f), ".pid")
		if service == upService {
			continue
		}
		r, err := readRecord(f)
		if err != nil {
			return nil, err
		}
		if !r.alive() {
			if err := os.Remove(f); err != nil {
				return nil, err
			}
			continue
		}
		out = append(out, leftover{service: service, file: f, record: r})
	}
	return out, nil
}

// stopLeftovers ends what an `up` that was killed has left running, all at once, the hard way after grace.
func stopLeftovers(ctx context.Context, l layout, grace time.Duration, say func(format string, args ...any)) error {
	found, err := leftovers(l)
	if err != nil {
		return err
	}
	for _, f := range found {
		say("stopping %s (pid %d), left behind by an earlier up", f.service, f.PID)
		if err := syscall.Kill(f.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop %s (pid %d): %w", f.service, f.PID, err)
		}
	}
	for _, f := range found {
		if !waitGone(ctx, f.record, grace) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			// The whole group: a service may have children of its own.
			if err := syscall.Kill(-f.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill %s (pid %d): %w", f.service, f.PID, err)
			}
			if !waitGone(ctx, f.record, grace) {
				return fmt.Errorf("%s (pid %d) cannot be killed", f.service, f.PID)
			}
		}
		if err := os.Remove(f.file); err != nil {
			return err
		}
	}
	return nil
}

// waitGone waits until a process that is not our child has ended; there is no event for that on every system.
func waitGone(ctx context.Context, r record, atMost time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	gone := false
	_ = loop.Every(ctx, loop.Config{Name: "wait for process", Period: 20 * time.Millisecond}, func(context.Context) error {
		if !r.alive() {
			gone = true
			cancel()
		}
		return nil
	})
	return gone
}
