// Package claims is what the plugins for volumes have in common: which claims a pod uses, and what the scheduler knows of
// claims, volumes and classes.
package claims

import (
	"trireme.dev/client"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	storagev1 "trireme.dev/proto/gen/trireme/storage/v1"
	"trireme.dev/services/scheduler/framework"
)

// Of calls fn for the claims that a pod's volumes name, all in the pod's namespace.
func Of(pod *corev1.Pod, fn func(name string)) {
	for _, v := range pod.GetSpec().GetVolumes() {
		if c := v.GetPersistentVolumeClaim(); c != nil {
			fn(c.GetClaimName())
		}
	}
}

// Any reports whether a pod uses claims.
func Any(pod *corev1.Pod) bool {
	for _, v := range pod.GetSpec().GetVolumes() {
		if v.GetPersistentVolumeClaim() != nil {
			return true
		}
	}
	return false
}

// Uses reports whether a pod uses the claim.
func Uses(pod *corev1.Pod, claim client.Object) bool {
	found := false
	if pod.GetMetadata().GetNamespace() == claim.GetMetadata().GetNamespace() {
		Of(pod, func(name string) { found = found || name == claim.GetMetadata().GetName() })
	}
	return found
}

// Objects are the listers that plugins for volumes need. What the scheduler does not watch has no objects.
type Objects struct {
	Claims  framework.Lister[*corev1.PersistentVolumeClaim]
	Volumes framework.Lister[*corev1.PersistentVolume]
	Classes framework.Lister[*storagev1.StorageClass]
	Nodes   framework.Lister[*storagev1.CSINode]
}

// From takes the listers from a handle.
func From(h framework.Handle) Objects {
	return Objects{
		Claims:  lister[*corev1.PersistentVolumeClaim](h, "PersistentVolumeClaim"),
		Volumes: lister[*corev1.PersistentVolume](h, "PersistentVolume"),
		Classes: lister[*storagev1.StorageClass](h, "StorageClass"),
		Nodes:   lister[*storagev1.CSINode](h, "CSINode"),
	}
}

func lister[T client.Object](h framework.Handle, kind string) framework.Lister[T] {
	if l, ok := framework.Objects[T](h, kind); ok {
		return l
	}
	return none[T]{}
}

// Claim of a pod.
func (o Objects) Claim(pod *corev1.Pod, name string) (*corev1.PersistentVolumeClaim, bool) {
	return o.Claims.Get(pod.GetMetadata().GetNamespace(), name)
}

// Volume that a claim names; nil where it names none or it is gone.
func (o Objects) Volume(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	if claim.GetSpec().GetVolumeName() == "" {
		return nil
	}
	pv, _ := o.Volumes.Get("", claim.GetSpec().GetVolumeName())
	return pv
}

// Class of a claim; nil where it names none or it is gone.
func (o Objects) Class(claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	if claim.GetSpec().GetStorageClassName() == "" {
		return nil
	}
	class, _ := o.Classes.Get("", claim.GetSpec().GetStorageClassName())
	return class
}

// HintClaim has a pod tried again that uses the claim that changed.
func HintClaim(pod *framework.PodInfo, change *framework.Change) framework.Hint {
	if change.New != nil && Uses(pod.Pod, change.New) {
		return framework.Queue
	}
	return framework.QueueSkip
}
