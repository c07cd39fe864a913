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
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
)

// Evictor implements framework.Evictor. Make it with New.
type Evictor struct {
	pods   *client.Resource[*corev1.Pod]
	groups *client.Resource[*schedulingv1.PodGroup]
}

// New returns one that evicts through conn.
func New(conn grpc.ClientConnInterface) *Evictor {
	return &Evictor{client.For[*corev1.Pod](conn), client.For[*schedulingv1.PodGroup](conn)}
}

// Evict implements framework.Evictor. Only the pod with the victim's uid is touched.
func (e *Evictor) Evict(ctx context.Context, victim *framework.PodInfo, message string) error {
	meta := victim.Pod.GetMetadata()
	err := mark(ctx, e.pods, meta, message)
	if err == nil {
		_, err = e.pods.Delete(ctx, meta.GetNamespace(), meta.GetName(), &metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{Uid: proto.String(meta.GetUid())},
		})
	}
	if err = unlessGone(err); err != nil {
		return fmt.Errorf("evict pod %s: %w", victim.Name(), err)
	}
	return nil
}

// MarkGroup implements framework.Evictor. Only the group with that uid is touched.
func (e *Evictor) MarkGroup(ctx context.Context, group *schedulingv1.PodGroup, message string) error {
	meta := group.GetMetadata()
	if err := unlessGone(mark(ctx, e.groups, meta, message)); err != nil {
		return fmt.Errorf("mark pod group %s/%s: %w", meta.GetNamespace(), meta.GetName(), err)
	}
	return nil
}

// mark sets the condition by which an object says that it is being disrupted, and leaves its others.
func mark[T client.Object](ctx context.Context, objects *client.Resource[T], meta *metav1.ObjectMeta, message string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": meta.GetUid()},
		"status": map[string]any{"conditions": []map[string]any{{
			"type": framework.ConditionDisruptionTarget, "status": "True",
			"reason": framework.ReasonPreemptionByScheduler, "message": message,
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		}}},
	})
	if err != nil {
		return fmt.Errorf("condition: %w", err)
	}
	_, err = objects.Patch(ctx, meta.GetNamespace(), meta.GetName(), metav1.PatchType_PATCH_TYPE_STRATEGIC_MERGE, patch, "status")
	return err
}

// unlessGone is the error of a write to an object that is still there. A conflict is one of uids: another has its name.
func unlessGone(err error) error {
	if apierr.IsNotFound(err) || apierr.IsConflict(err) {
		return nil
	}
	return err
}
