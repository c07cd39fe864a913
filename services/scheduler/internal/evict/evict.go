// Package evict takes pods away through the gateway, for plugins that make room. It implements framework.Evictor and
// decides nothing.
package evict

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
)

// Evictor implements framework.Evictor. Make it with New.
type Evictor struct{ pods *client.Resource[*corev1.Pod] }

// New returns one that evicts through conn.
func New(conn grpc.ClientConnInterface) *Evictor {
	return &Evictor{client.For[*corev1.Pod](conn)}
}

// Evict implements framework.Evictor. Only the pod with the victim's uid is touched.
func (e *Evictor) Evict(ctx context.Context, victim *framework.PodInfo, message string) error {
	meta := victim.Pod.GetMetadata()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": meta.GetUid()},
		"status": map[string]any{"conditions": []map[string]any{{
			"type": framework.ConditionDisruptionTarget, "status": "True",
			"reason": framework.ReasonPreemptionByScheduler, "message": message,
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}}},
	})
	if err != nil {
		return fmt.Errorf("condition of pod %s: %w", victim.Name(), err)
	}
	_, err = e.pods.Patch(ctx, meta.GetNamespace(), meta.GetName(), metav1.PatchType_PATCH_TYPE_STRATEGIC_MERGE, patch, "status")
	if err == nil {
		_, err = e.pods.Delete(ctx, meta.GetNamespace(), meta.GetName(), &metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{Uid: proto.String(meta.GetUid())},
		})
	}
	// A conflict is one of uids: the victim is gone, and another has its name.
	if err == nil || apierr.IsNotFound(err) || apierr.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("evict pod %s: %w", victim.Name(), err)
}
