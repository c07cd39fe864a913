package volumebinding

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/volume"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
)

// PreBindPreFlight implements framework.PreBindPlugin.
func (p *Plugin) PreBindPreFlight(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, _ string) (framework.PreBindPreFlight, *framework.Status) {
	flight := framework.PreBindPreFlight{AllowParallel: true}
	if p.planned(pod) == nil {
		return flight, framework.NewStatus(framework.Skip)
	}
	return flight, nil
}

func (p *Plugin) planned(pod *framework.PodInfo) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plans[pod.UID()]
}

// PreBind implements framework.PreBindPlugin: it writes what Reserve chose, and waits until all claims are bound.
func (p *Plugin) PreBind(ctx context.Context, _ *framework.CycleState, pod *framework.PodInfo, node string) *framework.Status {
	todo := p.planned(pod)
	if todo == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.args.timeout())
	defer cancel()
	for _, b := range todo.bind {
		if err := p.bind(ctx, b); err != nil {
			return framework.AsStatus(err)
		}
	}
	for _, claim := range todo.provision {
		if err := p.provision(ctx, claim, node); err != nil {
			return framework.AsStatus(err)
		}
	}
	for _, claim := range todo.claims {
		if err := p.await(ctx, claim); err != nil {
			return framework.AsStatus(err)
		}
	}
	return nil
}

// bind has a volume say whose it is; the volume controller does the rest.
func (p *Plugin) bind(ctx context.Context, b binding) error {
	if volume.Holds(b.volume, b.claim) && b.volume.GetSpec().GetClaimRef().GetUid() != "" {
		return nil
	}
	next := proto.CloneOf(b.volume)
	meta := b.claim.GetMetadata()
	next.Spec.ClaimRef = &corev1.ObjectReference{
		Kind: proto.String("PersistentVolumeClaim"), ApiVersion: proto.String("v1"), Namespace: proto.String(meta.GetNamespace()),
		Name: proto.String(meta.GetName()), Uid: proto.String(meta.GetUid()),
	}
	if _, err := client.For[*corev1.PersistentVolume](p.handle.Gateway()).Update(ctx, next); err != nil {
		return fmt.Errorf("bind volume %s to claim %s/%s: %w", next.GetMetadata().GetName(), meta.GetNamespace(), meta.GetName(), err)
	}
	return nil
}

// provision asks for a volume that the node reaches.
func (p *Plugin) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) error {
	if claim.GetMetadata().GetAnnotations()[volume.SelectedNode] == node {
		return nil
	}
	next := proto.CloneOf(claim)
	next.Metadata.Annotations = maps.Clone(next.GetMetadata().GetAnnotations())
	if next.Metadata.Annotations == nil {
		next.Metadata.Annotations = map[string]string{}
	}
	next.Metadata.Annotations[volume.SelectedNode] = node
	if _, err := client.For[*corev1.PersistentVolumeClaim](p.handle.Gateway()).Update(ctx, next); err != nil {
		return fmt.Errorf("ask for a volume for claim %s/%s: %w", next.GetMetadata().GetNamespace(), next.GetMetadata().GetName(), err)
	}
	return nil
}

// errGone says that a claim was deleted, or replaced, while it was waited for.
var errGone = errors.New("it is gone")

// await watches a claim until it is bound.
func (p *Plugin) await(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	meta := claim.GetMetadata()
	err := p.watch(ctx, claim)
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("claim %s/%s was not bound within %s", meta.GetNamespace(), meta.GetName(), p.args.timeout())
	}
	return fmt.Errorf("wait for claim %s/%s to be bound: %w", meta.GetNamespace(), meta.GetName(), err)
}

func (p *Plugin) watch(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	meta := claim.GetMetadata()
	w, err := client.For[*corev1.PersistentVolumeClaim](p.handle.Gateway()).Watch(ctx, client.WatchOptions{
		Namespace: meta.GetNamespace(), FieldSelector: "metadata.name=" + meta.GetName(),
	})
	if err != nil {
		return err
	}
	defer w.Close()
	seen := false
	for {
		response, err := w.Recv()
		if err != nil {
			return err
		}
		for _, e := range response.Events {
			if e.Type == metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED || e.Object.GetMetadata().GetUid() != meta.GetUid() {
				return errGone
			}
			seen = true
			if volume.Bound(e.Object) {
				return nil
			}
		}
		if response.InitialEventsEnd && !seen {
			return errGone
		}
	}
}
