package intake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"google.golang.org/grpc"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
)

// WaitForPods waits until all pods have been taken in as they were at a revision. It is for an Intake that is registered.
func (in *Intake) WaitForPods(ctx context.Context, revision int64) error {
	return in.pods.WaitForRevision(ctx, revision)
}

// CatchUp waits until all pods have been taken in as they are now. What an informer has at any moment may be behind, and
// who takes over must know of every binding that the leader before it made.
func (in *Intake) CatchUp(ctx context.Context, conn grpc.ClientConnInterface) error {
	stream, err := corev1.NewPodServiceClient(conn).List(ctx, &metav1.ListRequest{})
	if err != nil {
		return fmt.Errorf("list pods: %w", apierr.FromStatus(err))
	}
	var last int64 // no pod that is there has been written since
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return in.WaitForPods(ctx, last)
		}
		if err != nil {
			return fmt.Errorf("list pods: %w", apierr.FromStatus(err))
		}
		for _, pod := range chunk.GetItems() {
			revision, err := strconv.ParseInt(pod.GetMetadata().GetResourceVersion(), 10, 64)
			if err != nil {
				return fmt.Errorf("resource version of pod %s: %w", framework.Key(pod), err)
			}
			last = max(last, revision)
		}
	}
}
