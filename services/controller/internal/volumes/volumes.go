// Package volumes binds claims to persistent volumes that exist, and says in the status of both how it stands. Claims whose
// class waits for a pod are bound to what the scheduler chose for them. It makes no volumes and deletes none: what a
// reclaim policy other than Retain asks for is left to whoever made the volume.
package volumes

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client"
	"trireme.dev/client/event"
	"trireme.dev/client/informer"
	"trireme.dev/client/reconcile"
	"trireme.dev/client/volume"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	storagev1 "trireme.dev/proto/gen/trireme/storage/v1"
)

const (
	phaseAvailable = "Available"
	phaseBound     = "Bound"
	phaseReleased  = "Released"
	phaseLost      = "Lost"

	// retry is how soon to look again after a conflict; the informer is about to show what came between.
	retry = 10 * time.Millisecond
)

// Controller reconciles claims and volumes.
type Controller struct {
	claims    *client.Resource[*corev1.PersistentVolumeClaim]
	volumes   *client.Resource[*corev1.PersistentVolume]
	claimsIn  *informer.Informer[*corev1.PersistentVolumeClaim]
	volumesIn *informer.Informer[*corev1.PersistentVolume]
	classesIn *informer.Informer[*storagev1.StorageClass]
	events    *event.Recorder
}

// Deps are what the controller works with.
type Deps struct {
	Claims  *client.Resource[*corev1.PersistentVolumeClaim]
	Volumes *client.Resource[*corev1.PersistentVolume]
	Events  *event.Recorder
	Logger  *slog.Logger
}

// New returns the runners of the controller, one for claims and one for volumes, their informers taken from the factory.
func New(factory *informer.Factory, deps Deps) []*reconcile.Runner {
	c := &Controller{
		claims: deps.Claims, volumes: deps.Volumes, events: deps.Events,
		claimsIn:  informer.Of[*corev1.PersistentVolumeClaim](factory, informer.Config{}),
		volumesIn: informer.Of[*corev1.PersistentVolume](factory, informer.Config{}),
		classesIn: informer.Of[*storagev1.StorageClass](factory, informer.Config{}),
	}
	// One worker for claims: two at once would choose the same volume, and one of them in vain.
	claims := reconcile.New(reconcile.Config{
		Name: "volume-claims", Span: "syncClaim", Workers: 1, Logger: deps.Logger,
		Inputs:  []string{"PersistentVolumeClaim", "PersistentVolume", "StorageClass"},
		Outputs: []string{"PersistentVolumeClaim", "PersistentVolumeClaim/status", "PersistentVolume/spec.claimRef"},
	}, reconcile.Func(c.claim))
	volumes := reconcile.New(reconcile.Config{
		Name: "volumes", Span: "syncVolume", Workers: 2, Logger: deps.Logger,
		Inputs: []string{"PersistentVolume", "PersistentVolumeClaim"}, Outputs: []string{"PersistentVolume/status"},
	}, reconcile.Func(c.volume))

	c.claimsIn.AddHandler(reconcile.EnqueueSelf[*corev1.PersistentVolumeClaim](claims))
	c.claimsIn.AddHandler(reconcile.EnqueueMapped(volumes, func(claim *corev1.PersistentVolumeClaim) []reconcile.Key {
		if name := claim.GetSpec().GetVolumeName(); name != "" {
			return []reconcile.Key{{Name: name}}
		}
		return nil
	}))
	c.volumesIn.AddHandler(reconcile.EnqueueSelf[*corev1.PersistentVolume](volumes))
	c.volumesIn.AddHandler(reconcile.EnqueueMapped(claims, c.claimsOf))
	c.classesIn.AddHandler(reconcile.EnqueueMapped(claims, func(*storagev1.StorageClass) []reconcile.Key { return c.open(nil) }))
	return []*reconcile.Runner{claims, volumes}
}

// claimsOf are the claims that a volume concerns: the one that has it, or all that may want it.
func (c *Controller) claimsOf(pv *corev1.PersistentVolume) []reconcile.Key {
	if ref := pv.GetSpec().GetClaimRef(); ref != nil {
		return []reconcile.Key{{Namespace: ref.GetNamespace(), Name: ref.GetName()}}
	}
	return c.open(pv)
}

// open are the claims without a volume; of a volume those whose class it has, and those that name it.
func (c *Controller) open(pv *corev1.PersistentVolume) []reconcile.Key {
	var keys []reconcile.Key
	for _, claim := range c.claimsIn.Lister().List("", nil) {
		spec := claim.GetSpec()
		switch {
		case pv != nil && spec.GetVolumeName() == pv.GetMetadata().GetName():
		case spec.GetVolumeName() != "":
			continue
		case pv != nil && spec.GetStorageClassName() != pv.GetSpec().GetStorageClassName():
			continue
		}
		keys = append(keys, reconcile.KeyOf(claim))
	}
	return keys
}

// volume brings the phase of one volume up to date.
func (c *Controller) volume(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	pv, ok := c.volumesIn.Lister().Get("", key.Name)
	if !ok || pv.GetMetadata().GetDeletionTimestamp() != nil {
		return reconcile.Result{}, nil
	}
	phase, message := c.phase(pv)
	if phase == "" || phase == pv.GetStatus().GetPhase() && message == pv.GetStatus().GetMessage() {
		return reconcile.Result{}, nil
	}
	next := proto.CloneOf(pv)
	next.Status = &corev1.PersistentVolumeStatus{
		Phase: proto.String(phase), LastPhaseTransitionTime: pv.GetStatus().GetLastPhaseTransitionTime(),
	}
	if message != "" {
		next.Status.Message = proto.String(message)
	}
	if phase != pv.GetStatus().GetPhase() {
		next.Status.LastPhaseTransitionTime = timestamppb.New(time.Now().Truncate(time.Second))
	}
	_, err := c.volumes.UpdateStatus(reconcile.Writing(ctx, pv), next)
	return settled(err)
}

// phase of a volume, and what people are to know of it; empty where it is in between two.
func (c *Controller) phase(pv *corev1.PersistentVolume) (phase, message string) {
	ref := pv.GetSpec().GetClaimRef()
	if ref == nil || ref.GetUid() == "" {
		return phaseAvailable, ""
	}
	claim, ok := c.claimsIn.Lister().Get(ref.GetNamespace(), ref.GetName())
	switch {
	case !ok || claim.GetMetadata().GetUid() != ref.GetUid():
		if policy := pv.GetSpec().GetPersistentVolumeReclaimPolicy(); policy != "Retain" {
			return phaseReleased, "its claim is gone, and nobody here acts on reclaim policy " + policy
		}
		return phaseReleased, ""
	case claim.GetSpec().GetVolumeName() == pv.GetMetadata().GetName() && volume.Holds(pv, claim):
		return phaseBound, ""
	default:
		return "", "" // the claim is about to name it
	}
}
