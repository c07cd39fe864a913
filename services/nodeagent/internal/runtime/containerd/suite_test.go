//go:build linux && realruntime

package containerd

import (
	"context"
	"testing"

	"github.com/containerd/containerd/v2/core/snapshots"

	"trireme.dev/services/nodeagent/internal/runtime/runtimetest"
)

func (n *testNode) walkSnapshots(each func(name string)) error {
	return n.real.snapshotter.Walk(runtimetest.Context(n.t), func(_ context.Context, info snapshots.Info) error {
		each(info.Name)
		return nil
	})
}

func TestSuite(t *testing.T) {
	n := newNode(t)
	runtimetest.Run(t, func(*testing.T) *runtimetest.Node { return &n.Node })
	n.requireNothing()
}
