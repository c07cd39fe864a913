//go:build linux

package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"

	"trireme.dev/services/nodeagent/internal/runtime"
)

// exitUnknown is the exit code of a container whose end nobody saw: its shim is gone, as after a reboot.
const exitUnknown = 255

// exitNotStarted is the exit code of a container that could not be started, as in Kubernetes.
const exitNotStarted = 128

// StartContainer makes and starts the task.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	c, err := r.find(id)
	if err != nil {
		return fmt.Errorf("start container: %w", err)
	}
	r.mu.Lock()
	state := c.state
	r.mu.Unlock()
	switch state {
	case runtime.StateRunning:
		return nil
	case runtime.StateExited:
		return fmt.Errorf("start container %s: it has exited already", id)
	}
	out, err := r.openOutput(c)
	if err != nil {
		return fmt.Errorf("start container %s: %w", id, err)
	}
	err = r.startTask(ctx, c, out)
	// The shim has opened its ends by now, or never will: the output ends when the shim says so.
	out.letGo()
	if err == nil {
		r.mu.Lock()
		// An exit that was quicker has been noticed, and waits for settling in this lock's other user.
		c.state, c.output = runtime.StateRunning, out
		c.life.StartedAt = time.Now().UTC()
		record := c.life
		r.mu.Unlock()
		if err := writeJSON(c.stateFile(), record); err != nil {
			r.logger.Error("container's start is not recorded", "container", id, "error", err)
		}
		c.settling.Unlock()
		r.hints.Notify(c.podUID)
		return nil
	}
	defer c.settling.Unlock()
	out.close()
	// A new context: what was begun has to be undone even where the caller has given up.
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if derr := r.deleteTask(cleanup, c); derr != nil {
		r.logger.Warn("task of a container that did not start stays", "container", id, "error", derr)
	}
	if transient(err) || ctx.Err() != nil {
		return fmt.Errorf("start container %s: %w", id, err)
	}
	r.mu.Lock()
	c.state = runtime.StateExited
	c.life = life{FinishedAt: time.Now().UTC(), ExitCode: exitNotStarted, StartError: cleanError(err)}
	record := c.life
	close(c.exited)
	r.mu.Unlock()
	if werr := writeJSON(c.stateFile(), record); werr != nil {
		err = errors.Join(err, werr)
	}
	r.hints.Notify(c.podUID)
	return fmt.Errorf("start container %s: %w", id, err)
}

// transient errors are containerd's or the caller's, not the workload's.
func transient(err error) bool {
	return errdefs.IsUnavailable(err) || errdefs.IsDeadlineExceeded(err) || errdefs.IsCanceled(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || shimGone(err)
}

// shimGone says that the shim of a pod's last task was on its way out when it was asked for one more.
func shimGone(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "ttrpc: closed") ||
		strings.Contains(err.Error(), "ttrpc: server closed") || strings.Contains(err.Error(), "connection refused") ||
		strings.Contains(err.Error(), "connection reset"))
}

// cleanError leaves out the layers that say nothing of the cause.
func cleanError(err error) string {
	text := err.Error()
	if _, cause, ok := strings.Cut(text, "unable to start container process: "); ok {
		return strings.TrimSuffix(cause, ": unknown")
	}
	return text
}

// startTask creates and starts a task. It returns with c.settling held, so that the caller records the start before
// anyone records the exit.
func (r *Runtime) startTask(ctx context.Context, c *container, out *output) error {
	if c.rootfs == nil {
		var err error
		if c.rootfs, err = r.snapshotter.Mounts(ctx, c.id); err != nil {
			c.settling.Lock()
			return fmt.Errorf("mounts: %w", err)
		}
	}
	if err := r.createTask(ctx, c, createRequest(c, out)); err != nil {
		c.settling.Lock()
		return err
	}
	c.settling.Lock()
	if _, err := r.tasks.Start(ctx, &tasks.StartRequest{ContainerID: c.id}); err != nil {
		return errgrpc.ToNative(err)
	}
	return nil
}

func createRequest(c *container, out *output) *tasks.CreateTaskRequest {
	request := &tasks.CreateTaskRequest{
		ContainerID: c.id, Terminal: c.tty, Stdin: out.stdin, Stdout: out.stdout, Stderr: out.stderr,
	}
	for _, m := range c.rootfs {
		request.Rootfs = append(request.Rootfs, &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	return request
}

// createTask holds the pod's lock: with the pod's last task its shim ends, and one that is ending takes no new task.
func (r *Runtime) createTask(ctx context.Context, c *container, request *tasks.CreateTaskRequest) error {
	r.mu.Lock()
	p := r.pod(c.podUID)
	r.mu.Unlock()
	p.task.Lock()
	defer p.task.Unlock()
	for try := 1; ; try++ {
		_, err := r.tasks.Create(ctx, request)
		err = errgrpc.ToNative(err)
		switch {
		case err == nil:
			p.tasks[c.id] = true
			return nil
		case errdefs.IsAlreadyExists(err) && try < shimTries:
			// A runtime that was killed made it and did not start it.
			if derr := r.deleteTaskLocked(ctx, p, c); derr != nil {
				return errors.Join(err, derr)
			}
		case shimGone(err) && try < shimTries:
			r.logger.Debug("the pod's last shim was still ending", "container", c.id, "try", try)
			if pause(ctx) != nil {
				return err
			}
		default:
			return err
		}
	}
}

// shimTries with a pause in between is how often a shim that is just ending is asked again.
const shimTries = 40

func pause(ctx context.Context) error {
	timer := time.NewTimer(25 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Runtime) deleteTask(ctx context.Context, c *container) error {
	r.mu.Lock()
	p := r.pod(c.podUID)
	r.mu.Unlock()
	p.task.Lock()
	defer p.task.Unlock()
	return r.deleteTaskLocked(ctx, p, c)
}

// deleteTaskLocked kills a task if need be and deletes it. None is success.
func (r *Runtime) deleteTaskLocked(ctx context.Context, p *pod, c *container) error {
	for try := 1; ; try++ {
		_, err := r.tasks.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: c.id})
		err = errgrpc.ToNative(err)
		switch {
		case shimGone(err) && try < shimTries:
			// containerd is about to notice that the shim died.
			if err := pause(ctx); err != nil {
				return fmt.Errorf("delete task: %w", err)
			}
			continue
		case err == nil || isNotFound(err):
			delete(p.tasks, c.id)
			if len(p.tasks) == 0 {
				r.leaveShim(p.uid)
			}
			return nil
		case !errdefs.IsFailedPrecondition(err):
			return fmt.Errorf("delete task: %w", err)
		}
		// It runs, or was made and not started.
		if _, err := r.tasks.Kill(ctx, &tasks.KillRequest{ContainerID: c.id, Signal: uint32(unix.SIGKILL), All: true}); err != nil && !isNotFound(errgrpc.ToNative(err)) {
			return fmt.Errorf("kill task: %w", errgrpc.ToNative(err))
		}
		if _, err := r.tasks.Wait(ctx, &tasks.WaitRequest{ContainerID: c.id}); err != nil && !isNotFound(errgrpc.ToNative(err)) {
			return fmt.Errorf("wait for task: %w", errgrpc.ToNative(err))
		}
	}
}

// StopContainer waits for containerd's own word on the exit, so that it needs no event.
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	c, err := r.find(id)
	if err != nil {
		return nil
	}
	r.mu.Lock()
	running := c.state == runtime.StateRunning
	r.mu.Unlock()
	if !running {
		return nil
	}
	waitCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	waited := make(chan error, 1)
	go func() { waited <- r.waitExit(waitCtx, c) }()

	if grace > 0 {
		if err := r.kill(ctx, c, c.stopSignal, false); err != nil {
			return fmt.Errorf("stop container %s: %w", id, err)
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case err := <-waited:
			return err
		case <-c.exited:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("stop container %s: %w", id, ctx.Err())
		case <-timer.C:
		}
	}
	if err := r.kill(ctx, c, unix.SIGKILL, true); err != nil {
		return fmt.Errorf("kill container %s: %w", id, err)
	}
	select {
	case err := <-waited:
		return err
	case <-c.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kill container %s: %w", id, ctx.Err())
	}
}

func (r *Runtime) kill(ctx context.Context, c *container, sig unix.Signal, all bool) error {
	_, err := r.tasks.Kill(ctx, &tasks.KillRequest{ContainerID: c.id, Signal: uint32(sig), All: all})
	if err = errgrpc.ToNative(err); err == nil || isNotFound(err) || errdefs.IsFailedPrecondition(err) {
		return nil
	}
	return err
}

// waitExit waits until a task has exited, and settles that.
func (r *Runtime) waitExit(ctx context.Context, c *container) error {
	response, err := r.tasks.Wait(ctx, &tasks.WaitRequest{ContainerID: c.id})
	if err = errgrpc.ToNative(err); isNotFound(err) {
		r.lost(c)
		select {
		case <-c.exited:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for container %s: %w", c.id, ctx.Err())
		}
	}
	if err != nil {
		return fmt.Errorf("wait for container %s: %w", c.id, err)
	}
	r.settle(c, int(response.ExitStatus), response.ExitedAt.AsTime())
	return nil
}

// lateExit is how long the word on a lost task's exit is waited for: a shim repeats it for some seconds.
const lateExit = 6 * time.Second

// lost handles a container whose task containerd no longer has. A containerd that was restarted forgets tasks that
// ended while it was away, but their shim repeats the exit until somebody hears it; only where nobody says anything,
// the exit is unknown.
func (r *Runtime) lost(c *container) {
	if !c.isLost.CompareAndSwap(false, true) {
		return
	}
	if _, err := os.Stat(c.runDir); err != nil {
		// The FIFOs are gone too: the machine was started anew.
		r.settle(c, exitUnknown, time.Now())
		return
	}
	r.copies.Go(func() {
		timer := time.NewTimer(lateExit)
		defer timer.Stop()
		select {
		case <-c.exited:
		case <-timer.C:
			r.logger.Warn("nobody knows how a container ended", "container", c.id)
			r.settle(c, exitUnknown, time.Now())
		case <-r.done:
		}
	})
}

// check compares a container that is believed to run with containerd.
func (r *Runtime) check(ctx context.Context, c *container) error {
	response, err := r.tasks.Get(ctx, &tasks.GetRequest{ContainerID: c.id})
	if err = errgrpc.ToNative(err); isNotFound(err) {
		r.lost(c)
		return nil
	}
	if err != nil {
		return fmt.Errorf("state of container %s: %w", c.id, err)
	}
	if response.Process.Status == tasktypes.Status_STOPPED {
		r.settle(c, int(response.Process.ExitStatus), response.Process.ExitedAt.AsTime())
	}
	return nil
}

// settle records an exit, once: the output is drained, the message read, the record written, the task deleted. What
// it says of an exited container is complete before the container is seen as exited.
func (r *Runtime) settle(c *container, code int, at time.Time) {
	c.settling.Lock()
	defer c.settling.Unlock()
	r.mu.Lock()
	running, out := c.state == runtime.StateRunning, c.output
	r.mu.Unlock()
	if !running {
		return
	}
	if out != nil {
		out.drain()
	}
	ended := c.life
	ended.FinishedAt, ended.ExitCode = at.UTC(), code
	ended.OOMKilled = code == 128+int(unix.SIGKILL) && r.cgroups.oomKills(c.cgroup) > 0
	message := c.readMessage()
	if err := writeJSON(c.stateFile(), ended); err != nil {
		r.logger.Error("container's exit is not recorded", "container", c.id, "error", err)
	}
	// Held before anyone sees the exit, so that a removal that follows it waits for the task's deletion.
	c.deleting.Lock()
	r.mu.Lock()
	c.state, c.life, c.message, c.output = runtime.StateExited, ended, message, nil
	close(c.exited)
	r.mu.Unlock()
	r.hints.Notify(c.podUID)
	r.copies.Go(func() {
		defer c.deleting.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := r.deleteTask(ctx, c); err != nil {
			r.logger.Warn("task of an exited container stays until the container is removed", "container", c.id, "error", err)
		}
		if err := os.RemoveAll(c.runDir); err != nil {
			r.logger.Warn("container's FIFOs stay until the pod is removed", "container", c.id, "error", err)
		}
	})
}

// maxMessage is how much of a termination message is read, as in Kubernetes.
const maxMessage = 4096

func (c *container) readMessage() string {
	if c.terminationPath == "" {
		return ""
	}
	file, err := os.Open(c.terminationFile())
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxMessage))
	if err != nil {
		return ""
	}
	return string(data)
}
