package controller

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/volume"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	storagev1 "trireme.dev/proto/gen/trireme/storage/v1"
)

func pv(name, class, size string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		Metadata: &metav1.ObjectMeta{Name: name},
		Spec: &corev1.PersistentVolumeSpec{
			Capacity: map[string]string{"storage": size}, AccessModes: []string{"ReadWriteOnce"}, StorageClassName: &class,
			HostPath: &corev1.HostPathVolumeSource{Path: "/data/" + name},
		},
	}
}

func pvc(name string, class *string, size string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: &corev1.PersistentVolumeClaimSpec{
			AccessModes: []string{"ReadWriteOnce"}, StorageClassName: class,
			Resources: &corev1.VolumeResourceRequirements{Requests: map[string]string{"storage": size}},
		},
	}
}

type storage struct {
	*cluster
	claims  *client.Resource[*corev1.PersistentVolumeClaim]
	volumes *client.Resource[*corev1.PersistentVolume]
	classes *client.Resource[*storagev1.StorageClass]
}

func startStorage(t *testing.T) *storage {
	c := start(t)
	return &storage{
		cluster: c, claims: client.For[*corev1.PersistentVolumeClaim](c.conn), volumes: client.For[*corev1.PersistentVolume](c.conn),
		classes: client.For[*storagev1.StorageClass](c.conn),
	}
}

// has waits until a claim has a volume, and both say so.
func (s *storage) has(t *testing.T, claim, pv string) {
	t.Helper()
	until(t, s.claims, "default", claim+" bound to "+pv, func(l []*corev1.PersistentVolumeClaim) bool {
		for _, c := range l {
			if c.GetMetadata().GetName() == claim {
				return volume.Bound(c) && c.GetSpec().GetVolumeName() == pv && c.GetStatus().GetCapacity()["storage"] != ""
			}
		}
		return false
	})
	s.phase(t, pv, "Bound")
}

func (s *storage) phase(t *testing.T, name, phase string) {
	t.Helper()
	until(t, s.volumes, "", name+" "+phase, func(l []*corev1.PersistentVolume) bool {
		for _, v := range l {
			if v.GetMetadata().GetName() == name {
				return v.GetStatus().GetPhase() == phase
			}
		}
		return false
	})
}

// TestClaimsAreBoundAtOnce: the smallest volume that will do; what is released is nobody's until somebody says so.
func TestClaimsAreBoundAtOnce(t *testing.T) {
	s := startStorage(t)
	none := ""
	must[*corev1.PersistentVolume](t)(s.volumes.Create(t.Context(), pv("large", none, "10Gi")))
	must[*corev1.PersistentVolume](t)(s.volumes.Create(t.Context(), pv("small", none, "2Gi")))
	s.phase(t, "large", "Available")
	s.phase(t, "small", "Available")
	must[*corev1.PersistentVolumeClaim](t)(s.claims.Create(t.Context(), pvc("a", &none, "1Gi")))
	s.has(t, "a", "small")
	must[*corev1.PersistentVolumeClaim](t)(s.claims.Create(t.Context(), pvc("b", &none, "1Gi")))
	s.has(t, "b", "large")
	must[*corev1.PersistentVolumeClaim](t)(s.claims.Delete(t.Context(), "default", "a", nil))
	s.phase(t, "small", "Released")

	// The claim that comes again is another one. It waits, and gets what an operator frees.
	must[*corev1.PersistentVolumeClaim](t)(s.claims.Create(t.Context(), pvc("a", &none, "1Gi")))
	v := must[*corev1.PersistentVolume](t)(s.volumes.Get(t.Context(), "", "small"))
	v.Spec.ClaimRef = nil
	must[*corev1.PersistentVolume](t)(s.volumes.Update(t.Context(), v))
	s.has(t, "a", "small")

	must[*corev1.PersistentVolume](t)(s.volumes.Delete(t.Context(), "", "small", nil))
	until(t, s.claims, "default", "the claim lost", func(l []*corev1.PersistentVolumeClaim) bool {
		return l[0].GetStatus().GetPhase() == "Lost" || len(l) > 1 && l[1].GetStatus().GetPhase() == "Lost"
	})
}

// TestDefaultClass: a claim that names no class gets the default one, also one that was there before.
func TestDefaultClass(t *testing.T) {
	s := startStorage(t)
	must[*corev1.PersistentVolumeClaim](t)(s.claims.Create(t.Context(), pvc("a", nil, "1Gi")))
	must[*corev1.PersistentVolume](t)(s.volumes.Create(t.Context(), pv("v", "disk", "1Gi")))
	must[*storagev1.StorageClass](t)(s.classes.Create(t.Context(), &storagev1.StorageClass{
		Metadata:    &metav1.ObjectMeta{Name: "disk", Annotations: map[string]string{volume.DefaultClass: "true"}},
		Provisioner: volume.NoProvisioner,
	}))
	s.has(t, "a", "v")
}

// TestClaimsThatWait are bound to what the scheduler, or an operator, has reserved for them, and to nothing else.
func TestClaimsThatWait(t *testing.T) {
	s := startStorage(t)
	must[*storagev1.StorageClass](t)(s.classes.Create(t.Context(), &storagev1.StorageClass{
		Metadata: &metav1.ObjectMeta{Name: "local"}, Provisioner: volume.NoProvisioner, VolumeBindingMode: proto.String("WaitForFirstConsumer"),
	}))
	must[*corev1.PersistentVolume](t)(s.volumes.Create(t.Context(), pv("v", "local", "1Gi")))
	must[*corev1.PersistentVolume](t)(s.volumes.Create(t.Context(), pv("w", "local", "1Gi")))
	s.phase(t, "v", "Available")
	s.phase(t, "w", "Available")
	claim := must[*corev1.PersistentVolumeClaim](t)(s.claims.Create(t.Context(), pvc("a", proto.String("local"), "1Gi")))
	// Another one, which need not wait, comes after it: by then the first has been looked at.
	none := ""
	must[*corev1.PersistentVolume](t)(s.volumes.Create(t.Context(), pv("x", none, "1Gi")))
	must[*corev1.PersistentVolumeClaim](t)(s.claims.Create(t.Context(), pvc("b", &none, "1Gi")))
	s.has(t, "b", "x")
	if c := must[*corev1.PersistentVolumeClaim](t)(s.claims.Get(t.Context(), "default", "a")); c.GetSpec().GetVolumeName() != "" || c.GetStatus().GetPhase() != "Pending" {
		t.Fatalf("it did not wait: %v", c)
	}
	v := must[*corev1.PersistentVolume](t)(s.volumes.Get(t.Context(), "", "w"))
	v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: proto.String("default"), Name: proto.String("a"), Uid: proto.String(claim.GetMetadata().GetUid())}
	must[*corev1.PersistentVolume](t)(s.volumes.Update(t.Context(), v))
	s.has(t, "a", "w")
}
