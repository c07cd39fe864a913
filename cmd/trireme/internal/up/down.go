package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"trireme.dev/cmd/trireme/internal/contexts"
	"trireme.dev/kit/mounts"
)

// downTimeout is how long down waits for an up that stops. It is longer than any service's grace.
const downTimeout = 2 * time.Minute

// down stops the cluster of a state directory, whether its `up` still runs or was killed, and with purge deletes what
// there is of it.
func down(ctx context.Context, stateDir string, purge bool, stdout io.Writer) error {
	l, err := newLayout(stateDir)
	if err != nil {
		return err
	}
	if err := l.check(); errors.Is(err, fs.ErrNotExist) {
		_, err := fmt.Fprintf(stdout, "no cluster in %s\n", l.dir)
		return err
	} else if err != nil {
		return err
	}
	p := &progress{w: stdout, start: time.Now()}
	release, stopped, err := stopUp(ctx, l, p)
	if err != nil {
		return err
	}
	defer release()
	if err := stopLeftovers(ctx, l, serviceGrace, p.step); err != nil {
		return err
	}
	if err := cleanNode(ctx, l); err != nil {
		return err
	}
	if !purge {
		p.print("%s\n", map[bool]string{true: "stopped; objects stay in " + l.dir, false: "nothing runs; objects are in " + l.dir}[stopped])
		return nil
	}
	return purgeState(l, p)
}

// stopUp ends the `up` that holds the lock, if any, and returns with the lock.
func stopUp(ctx context.Context, l layout, p *progress) (release func(), stopped bool, err error) {
	release, err = takeLock(l.lock())
	if !errors.Is(err, errLocked) {
		return release, false, err
	}
	owner, err := readRecord(l.pidFile(upService))
	if err != nil {
		return nil, false, err
	}
	if !owner.alive() {
		return nil, false, fmt.Errorf("%s is locked by a process that is no up: another down?", l.lock())
	}
	p.step("stopping the cluster of %s (pid %d)", l.dir, owner.PID)
	if err := syscall.Kill(owner.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return nil, false, fmt.Errorf("stop up (pid %d): %w", owner.PID, err)
	}
	if !waitGone(ctx, owner, downTimeout) {
		if ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		return nil, false, fmt.Errorf("up (pid %d) does not stop within %s, see %s", owner.PID, downTimeout, l.path("log"))
	}
	release, err = takeLock(l.lock())
	if errors.Is(err, errLocked) {
		err = fmt.Errorf("%s is locked again: another up has started", l.lock())
	}
	return release, true, err
}

// purgeState deletes the state directory. It refuses while anything is mounted in it: deleting would reach through.
func purgeState(l layout, p *progress) error {
	if err := l.check(); err != nil {
		return err
	}
	for _, dir := range []string{l.dir, runDir(l)} {
		if err := mounts.Unmount(dir); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(l.dir); err != nil {
		return fmt.Errorf("delete %s: %w", l.dir, err)
	}
	if err := os.RemoveAll(runDir(l)); err != nil {
		return fmt.Errorf("delete %s: %w", runDir(l), err)
	}
	p.step("deleted %s", l.dir)
	path, err := contexts.Path()
	if err != nil {
		return err
	}
	cfg, err := contexts.Load(path)
	if err != nil {
		return err
	}
	if cfg.RemoveCluster(l.dir) {
		return cfg.Save(path)
	}
	return nil
}
