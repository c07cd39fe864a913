//go:build linux

package containerd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	"golang.org/x/sys/unix"

	"trireme.dev/services/nodeagent/internal/runtime"
)

// Exec runs a command beside the container's own process. It returns when the command has exited and its output has
// been written; Stdout and Stderr are never written at the same time. When ctx ends the command is killed. A read from Stdin that is under way then is not waited for.
func (r *Runtime) Exec(ctx context.Context, id string, spec runtime.ExecSpec) (int, error) {
	code, err := r.exec(ctx, id, spec)
	if err != nil {
		return 0, fmt.Errorf("exec in container %s: %w", id, err)
	}
	return code, nil
}

func (r *Runtime) exec(ctx context.Context, id string, spec runtime.ExecSpec) (int, error) {
	c, err := r.find(id)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	state := c.state
	r.mu.Unlock()
	if state != runtime.StateRunning {
		return 0, errors.New("it is not running")
	}
	if len(spec.Command) == 0 {
		return 0, errors.New("no command")
	}
	object, err := r.client.ContainerService().Get(ctx, id)
	if err != nil {
		return 0, err
	}
	var ociSpec oci.Spec
	if err := typeurl.UnmarshalTo(object.Spec, &ociSpec); err != nil {
		return 0, err
	}
	process := ociSpec.Process
	process.Args, process.Terminal = spec.Command, spec.TTY
	if spec.TTY {
		process.Env = mergeEnv(process.Env, []string{"TERM=xterm"})
	}
	processAny, err := typeurl.MarshalAny(process)
	if err != nil {
		return 0, err
	}
	raw := make([]byte, 8)
	_, _ = rand.Read(raw)
	e := &execution{runtime: r, container: c, id: hex.EncodeToString(raw), spec: spec}
	e.dir = filepath.Join(c.runDir, "exec-"+e.id)
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(e.dir) }()
	return e.run(ctx, &tasks.ExecProcessRequest{
		ContainerID: id, ExecID: e.id, Terminal: spec.TTY, Spec: typeurl.MarshalProto(processAny),
	})
}

// execution is one command that runs in a container.
type execution struct {
	runtime   *Runtime
	container *container
	id, dir   string
	spec      runtime.ExecSpec
	fifos     []*fifo
	holds     []*os.File
	stdin     *os.File
	copies    sync.WaitGroup
	writing   sync.Mutex
}

// oneByOne makes the command's two streams write one after the other, since both may lead to one place.
type oneByOne struct {
	mu *sync.Mutex
	w  io.Writer
}

func (o oneByOne) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(b)
}

func (e *execution) run(ctx context.Context, request *tasks.ExecProcessRequest) (int, error) {
	defer e.close()
	if err := e.open(request); err != nil {
		return 0, err
	}
	api := e.runtime.tasks
	if _, err := api.Exec(ctx, request); err != nil {
		return 0, errgrpc.ToNative(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, err := api.DeleteProcess(ctx, &tasks.DeleteProcessRequest{ContainerID: request.ContainerID, ExecID: e.id})
		if err = errgrpc.ToNative(err); err != nil && !isNotFound(err) {
			e.runtime.logger.Debug("exec process stays", "container", request.ContainerID, "error", err)
		}
	}()
	if _, err := api.Start(ctx, &tasks.StartRequest{ContainerID: request.ContainerID, ExecID: e.id}); err != nil {
		return 0, errors.New(cleanError(errgrpc.ToNative(err)))
	}
	for _, hold := range e.holds {
		_ = hold.Close()
	}
	done := make(chan struct{})
	defer close(done)
	if e.stdin != nil {
		go e.copyStdin(ctx)
	}
	if e.spec.Resize != nil && e.spec.TTY {
		go e.resize(ctx, done)
	}
	response, err := api.Wait(ctx, &tasks.WaitRequest{ContainerID: request.ContainerID, ExecID: e.id})
	if err != nil {
		e.kill(ctx)
		return 0, errgrpc.ToNative(err)
	}
	for _, f := range e.fifos {
		f.drain()
	}
	e.copies.Wait()
	return int(response.ExitStatus), nil
}

func (e *execution) open(request *tasks.ExecProcessRequest) error {
	outputs := []struct {
		name string
		path *string
		w    io.Writer
	}{{"stdout", &request.Stdout, e.spec.Stdout}, {"stderr", &request.Stderr, e.spec.Stderr}}
	if e.spec.TTY {
		outputs = outputs[:1]
	}
	for _, o := range outputs {
		*o.path = filepath.Join(e.dir, o.name)
		f, hold, err := openFIFO(*o.path, true)
		if err != nil {
			return err
		}
		e.fifos, e.holds = append(e.fifos, f), append(e.holds, hold)
		w := io.Discard
		if o.w != nil {
			w = oneByOne{&e.writing, o.w}
		}
		e.copies.Go(func() {
			if _, err := io.Copy(w, f); err != nil && !errors.Is(err, os.ErrClosed) {
				// The reader has left; the command must not wait for it.
				_, _ = io.Copy(io.Discard, f)
			}
		})
	}
	if e.spec.Stdin == nil {
		return nil
	}
	request.Stdin = filepath.Join(e.dir, "stdin")
	if err := unix.Mkfifo(request.Stdin, 0o600); err != nil {
		return fmt.Errorf("make FIFO %s: %w", request.Stdin, err)
	}
	// Opened both ways, since there is no reader yet.
	file, err := os.OpenFile(request.Stdin, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open FIFO: %w", err)
	}
	e.stdin = file
	return nil
}

// copyStdin gives the command its input and then the end of it.
func (e *execution) copyStdin(ctx context.Context) {
	_, _ = io.Copy(e.stdin, e.spec.Stdin)
	_ = e.stdin.Close()
	// The shim holds the pipe open too, until it is told.
	_, err := e.runtime.tasks.CloseIO(ctx, &tasks.CloseIORequest{ContainerID: e.container.id, ExecID: e.id, Stdin: true})
	if err != nil && ctx.Err() == nil {
		e.runtime.logger.Debug("exec's standard input is not closed", "container", e.container.id, "error", err)
	}
}

func (e *execution) resize(ctx context.Context, done <-chan struct{}) {
	for {
		select {
		case size, ok := <-e.spec.Resize:
			if !ok {
				return
			}
			_, err := e.runtime.tasks.ResizePty(ctx, &tasks.ResizePtyRequest{
				ContainerID: e.container.id, ExecID: e.id, Width: uint32(size.Width), Height: uint32(size.Height),
			})
			if err != nil {
				e.runtime.logger.Debug("terminal is not resized", "container", e.container.id, "error", err)
			}
		case <-done:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (e *execution) kill(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, err := e.runtime.tasks.Kill(ctx, &tasks.KillRequest{
		ContainerID: e.container.id, ExecID: e.id, Signal: uint32(unix.SIGKILL),
	})
	if err == nil {
		_, err = e.runtime.tasks.Wait(ctx, &tasks.WaitRequest{ContainerID: e.container.id, ExecID: e.id})
	}
	if err != nil {
		e.runtime.logger.Debug("exec process is not killed", "container", e.container.id, "error", err)
	}
}

// close ends all copying.
func (e *execution) close() {
	for _, f := range e.fifos {
		_ = f.file.Close()
	}
	for _, hold := range e.holds {
		_ = hold.Close()
	}
	if e.stdin != nil {
		_ = e.stdin.Close()
	}
	e.copies.Wait()
}
