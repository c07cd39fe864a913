package volumes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	"trireme.dev/client/event"
	"trireme.dev/client/reconcile"
	"trireme.dev/client/volume"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	storagev1 "trireme.dev/proto/gen/trireme/storage/v1"
)

// claim brings one claim nearer to having its volume. Each call takes one step: what it writes brings the next one.
func (c *Controller) claim(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	claim, ok := c.claimsIn.Lister().Get(key.Namespace, key.Name)
	if !ok || claim.GetMetadata().GetDeletionTimestamp() != nil {
		return reconcile.Result{}, nil
	}
	ctx = reconcile.Writing(ctx, claim)
	if claim.GetSpec().GetVolumeName() != "" {
		return settled(c.bound(ctx, claim))
	}
	if claim.GetSpec().StorageClassName == nil {
		if class := c.defaultClass(); class != nil {
			next := proto.CloneOf(claim)
			next.Spec.StorageClassName = proto.String(class.GetMetadata().GetName())
			_, err := c.claims.Update(ctx, next)
			return settled(err)
		}
	}
	class, _ := c.classesIn.Lister().Get("", claim.GetSpec().GetStorageClassName())
	// Of a class that waits, only what is reserved for the claim is its volume: the scheduler chooses among the others.
	waits := volume.Waits(class)
	pv := volume.Match(claim, c.volumesIn.Lister().List("", nil), func(pv *corev1.PersistentVolume) bool {
		return !waits || volume.Holds(pv, claim)
	})
	switch {
	case pv != nil:
		return settled(c.bind(ctx, claim, pv))
	case waits && claim.GetMetadata().GetAnnotations()[volume.SelectedNode] == "":
		c.events.Event(claim, event.Normal, "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	case class != nil && class.GetProvisioner() != volume.NoProvisioner:
		c.events.Event(claim, event.Normal, "ExternalProvisioning", fmt.Sprintf("waiting for a volume to be created by %q or by hand", class.GetProvisioner()))
	default:
		c.events.Event(claim, event.Normal, "FailedBinding", "no persistent volumes available for this claim and no storage class is set")
	}
	return reconcile.Result{}, nil
}

// settled has a key come again where somebody else wrote the object meanwhile.
func settled(err error) (reconcile.Result, error) {
	switch {
	case apierr.IsConflict(err):
		return reconcile.Result{After: retry}, nil
	case apierr.IsNotFound(err):
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, err
}

// bind has the volume say whose it is, and then the claim which it has: should this be cut short, the first says enough.
func (c *Controller) bind(ctx context.Context, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	if err := c.reserve(ctx, claim, pv); err != nil {
		return err
	}
	next := proto.CloneOf(claim)
	next.Spec.VolumeName = proto.String(pv.GetMetadata().GetName())
	updated, err := c.claims.Update(ctx, next)
	if err != nil {
		return err
	}
	return c.sayBound(ctx, updated, pv)
}

// reserve writes the claim, with its uid, into the volume.
func (c *Controller) reserve(ctx context.Context, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	if pv.GetSpec().GetClaimRef().GetUid() == claim.GetMetadata().GetUid() {
		return nil
	}
	next := proto.CloneOf(pv)
	next.Spec.ClaimRef = &corev1.ObjectReference{
		Kind: proto.String("PersistentVolumeClaim"), ApiVersion: proto.String("v1"), Namespace: proto.String(claim.GetMetadata().GetNamespace()),
		Name: proto.String(claim.GetMetadata().GetName()), Uid: proto.String(claim.GetMetadata().GetUid()),
	}
	_, err := c.volumes.Update(ctx, next)
	return err
}

// bound brings the status of a claim that names a volume up to date.
func (c *Controller) bound(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	pv, ok := c.volumesIn.Lister().Get("", claim.GetSpec().GetVolumeName())
	was := claim.GetStatus().GetPhase()
	switch {
	case !ok && was == phaseBound:
		c.events.Event(claim, event.Warning, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
		return c.say(ctx, claim, &corev1.PersistentVolumeClaimStatus{Phase: proto.String(phaseLost)})
	case !ok:
		return nil // the volume is still to come
	case pv.GetSpec().GetClaimRef() == nil && pv.GetMetadata().GetDeletionTimestamp() == nil, volume.Holds(pv, claim):
		if err := c.reserve(ctx, claim, pv); err != nil {
			return err
		}
		return c.sayBound(ctx, claim, pv)
	case was == phaseBound:
		c.events.Event(claim, event.Warning, "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
		return c.say(ctx, claim, &corev1.PersistentVolumeClaimStatus{Phase: proto.String(phaseLost)})
	default:
		c.events.Event(claim, event.Warning, "FailedBinding", fmt.Sprintf("volume %q already bound to a different claim.", pv.GetMetadata().GetName()))
		return nil
	}
}

func (c *Controller) sayBound(ctx context.Context, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	status := proto.CloneOf(claim.GetStatus())
	if status == nil {
		status = &corev1.PersistentVolumeClaimStatus{}
	}
	status.Phase = proto.String(phaseBound)
	status.AccessModes = slices.Clone(pv.GetSpec().GetAccessModes())
	if len(status.GetCapacity()) == 0 {
		status.Capacity = map[string]string{"storage": pv.GetSpec().GetCapacity()["storage"]}
	}
	return c.say(ctx, claim, status)
}

func (c *Controller) say(ctx context.Context, claim *corev1.PersistentVolumeClaim, status *corev1.PersistentVolumeClaimStatus) error {
	if proto.Equal(claim.GetStatus(), status) {
		return nil
	}
	next := proto.CloneOf(claim)
	next.Status = status
	_, err := c.claims.UpdateStatus(ctx, next)
	return err
}

// defaultClass is the class of claims that name none: of several the newest, then the first by name.
func (c *Controller) defaultClass() *storagev1.StorageClass {
	var found *storagev1.StorageClass
	for _, class := range c.classesIn.Lister().List("", nil) {
		if class.GetMetadata().GetAnnotations()[volume.DefaultClass] != "true" {
			continue
		}
		if found == nil || newer(class, found) {
			found = class
		}
	}
	return found
}

func newer(a, b *storagev1.StorageClass) bool {
	x, y := a.GetMetadata().GetCreationTimestamp().AsTime(), b.GetMetadata().GetCreationTimestamp().AsTime()
	if !x.Equal(y) {
		return x.After(y)
	}
	return strings.Compare(a.GetMetadata().GetName(), b.GetMetadata().GetName()) < 0
}
