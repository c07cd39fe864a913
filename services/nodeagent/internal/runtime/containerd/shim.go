//go:build linux

package containerd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"path/filepath"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/ttrpc"

	"trireme.dev/services/nodeagent/internal/runtime"
)

// shimSocket is where a pod's shim serves: containerd's own rule for the name.
func (r *Runtime) shimSocket(uid string) string {
	name := sha256.Sum256([]byte(filepath.Join(r.cfg.Address, r.cfg.Namespace, uid)))
	return filepath.Join(r.cfg.ShimSocketDir, hex.EncodeToString(name[:]))
}

// leaveShim removes the socket of a pod's shim, which ends with the pod's last task. The shim itself may not: it looks
// for the socket's name in the folder of its first task, which is gone. And a task that comes next finds no socket of
// a shim that is on its way out.
func (r *Runtime) leaveShim(uid string) {
	if err := os.Remove(r.shimSocket(uid)); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.logger.Warn("socket of a pod's last shim stays", "pod_uid", uid, "error", err)
	}
}

// listenAtShims asks the shims themselves for exits while containerd is away. A containerd that comes back forgets
// tasks that ended meanwhile, before anyone can ask it how.
func (r *Runtime) listenAtShims(ctx context.Context) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if c.state == runtime.StateRunning {
			r.copies.Go(func() { r.listenAtShim(ctx, c) })
		}
	}
	return stop
}

func (r *Runtime) listenAtShim(ctx context.Context, c *container) {
	conn, err := net.Dial("unix", r.shimSocket(c.podUID))
	if err != nil {
		r.logger.Debug("shim is not asked", "container", c.id, "error", err)
		return
	}
	client := ttrpc.NewClient(conn)
	defer func() { _ = client.Close() }()
	response, err := task.NewTTRPCTaskClient(client).Wait(namespaces.WithNamespace(ctx, r.cfg.Namespace), &task.WaitRequest{ID: c.id})
	if err != nil {
		if ctx.Err() == nil {
			r.logger.Debug("shim does not answer", "container", c.id, "error", err)
		}
		return
	}
	r.settle(c, int(response.ExitStatus), response.ExitedAt.AsTime())
}
