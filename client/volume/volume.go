// Package volume decides which persistent volumes satisfy a claim. Whoever binds them asks it, so that the volume
// controller and the scheduler never disagree. It is pure, and knows neither nodes nor pods.
package volume

import (
	"cmp"
	"slices"

	"trireme.dev/client/quantity"
	"trireme.dev/client/selector"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	storagev1 "trireme.dev/proto/gen/trireme/storage/v1"
)

const (
	// NoProvisioner is the provisioner of classes whose volumes are made by hand.
	NoProvisioner = "kubernetes.io/no-provisioner"
	// SelectedNode is the annotation of a claim by which the scheduler says where a provisioner is to make its volume.
	SelectedNode = "volume.kubernetes.io/selected-node"
	// DefaultClass is the annotation of the class of claims that name none.
	DefaultClass = "storageclass.kubernetes.io/is-default-class"

	storage              = "storage"
	bound                = "Bound"
	waitForFirstConsumer = "WaitForFirstConsumer"
)

// Bound reports whether a claim has its volume for good.
func Bound(claim *corev1.PersistentVolumeClaim) bool {
	return claim.GetSpec().GetVolumeName() != "" && claim.GetStatus().GetPhase() == bound
}

// Waits reports whether claims of a class are bound when a pod that uses them is placed.
func Waits(class *storagev1.StorageClass) bool {
	return class.GetVolumeBindingMode() == waitForFirstConsumer
}

// Holds reports whether a volume is bound to a claim, or reserved for it.
func Holds(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := pv.GetSpec().GetClaimRef()
	return ref != nil && ref.GetName() == claim.GetMetadata().GetName() && ref.GetNamespace() == claim.GetMetadata().GetNamespace() &&
		(ref.GetUid() == "" || ref.GetUid() == claim.GetMetadata().GetUid())
}

// Satisfies reports whether a volume is what a claim asks for, whoever has it.
func Satisfies(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	spec, want := pv.GetSpec(), claim.GetSpec()
	if spec.GetStorageClassName() != want.GetStorageClassName() || mode(spec.GetVolumeMode()) != mode(want.GetVolumeMode()) ||
		spec.GetVolumeAttributesClassName() != want.GetVolumeAttributesClassName() {
		return false
	}
	for _, m := range want.GetAccessModes() {
		if !slices.Contains(spec.GetAccessModes(), m) {
			return false
		}
	}
	if want.GetSelector() != nil {
		labels, err := selector.FromLabelSelector(want.GetSelector())
		if err != nil || !labels.Matches(pv.GetMetadata().GetLabels()) {
			return false
		}
	}
	return size(spec.GetCapacity()).Cmp(size(want.GetResources().GetRequests())) >= 0
}

func mode(m string) string { return cmp.Or(m, "Filesystem") }

func size(resources map[string]string) quantity.Quantity {
	q, err := quantity.Parse(resources[storage])
	if err != nil {
		return quantity.New(0)
	}
	return q
}

// Match returns the volume to bind a claim to, nil where there is none: one that is reserved for it, or else the smallest
// that is free and satisfies it, the first by name of several. usable leaves out what the caller has other plans
// for, and what cannot be reached from where it is needed; nil leaves out nothing.
func Match(claim *corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume, usable func(*corev1.PersistentVolume) bool) *corev1.PersistentVolume {
	var best *corev1.PersistentVolume
	for _, pv := range volumes {
		if pv.GetMetadata().GetDeletionTimestamp() != nil || usable != nil && !usable(pv) {
			continue
		}
		if pv.GetSpec().GetClaimRef() != nil {
			if Holds(pv, claim) && mode(pv.GetSpec().GetVolumeMode()) == mode(claim.GetSpec().GetVolumeMode()) &&
				size(pv.GetSpec().GetCapacity()).Cmp(size(claim.GetSpec().GetResources().GetRequests())) >= 0 {
				return pv
			}
			continue
		}
		// Of one in another phase the controller has yet to say that it is free.
		if pv.GetStatus().GetPhase() != "Available" || !Satisfies(pv, claim) {
			continue
		}
		if best == nil || smaller(pv, best) {
			best = pv
		}
	}
	return best
}

func smaller(a, b *corev1.PersistentVolume) bool {
	return cmp.Or(size(a.GetSpec().GetCapacity()).Cmp(size(b.GetSpec().GetCapacity())),
		cmp.Compare(a.GetMetadata().GetName(), b.GetMetadata().GetName())) < 0
}

// CompareSize orders claims by what they ask for, then by name: small ones choose first, so that they do not take what
// only a large one needs.
func CompareSize(a, b *corev1.PersistentVolumeClaim) int {
	return cmp.Or(size(a.GetSpec().GetResources().GetRequests()).Cmp(size(b.GetSpec().GetResources().GetRequests())),
		cmp.Compare(a.GetMetadata().GetName(), b.GetMetadata().GetName()))
}
