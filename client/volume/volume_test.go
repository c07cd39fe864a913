package volume_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client/volume"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func claim(size string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "data", Uid: "u1"},
		Spec: &corev1.PersistentVolumeClaimSpec{
			AccessModes: []string{"ReadWriteOnce"}, StorageClassName: proto.String("disk"),
			Resources: &corev1.VolumeResourceRequirements{Requests: map[string]string{"storage": size}},
		},
	}
	if change != nil {
		change(c)
	}
	return c
}

func pv(name, size string, change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": "fast"}},
		Spec: &corev1.PersistentVolumeSpec{
			Capacity: map[string]string{"storage": size}, AccessModes: []string{"ReadWriteOnce", "ReadOnlyMany"},
			StorageClassName: proto.String("disk"),
		},
		Status: &corev1.PersistentVolumeStatus{Phase: proto.String("Available")},
	}
	if change != nil {
		change(v)
	}
	return v
}

func reserved(namespace, name, uid string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: &namespace, Name: &name}
		if uid != "" {
			v.Spec.ClaimRef.Uid = &uid
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		name    string
		claim   *corev1.PersistentVolumeClaim
		volumes []*corev1.PersistentVolume
		want    string
	}{
		{"the smallest that is large enough", claim("5Gi", nil), []*corev1.PersistentVolume{pv("a", "10Gi", nil), pv("b", "6Gi", nil), pv("c", "4Gi", nil)}, "b"},
		{"exactly", claim("5Gi", nil), []*corev1.PersistentVolume{pv("a", "5Gi", nil)}, "a"},
		{"the first by name of equals", claim("5Gi", nil), []*corev1.PersistentVolume{pv("b", "5Gi", nil), pv("a", "5120Mi", nil)}, "a"},
		{"none is large enough", claim("5Gi", nil), []*corev1.PersistentVolume{pv("a", "1Gi", nil)}, ""},
		{"another class", claim("1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = proto.String("") }), []*corev1.PersistentVolume{pv("a", "1Gi", nil)}, ""},
		{"another mode", claim("1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = proto.String("Block") }), []*corev1.PersistentVolume{pv("a", "1Gi", nil)}, ""},
		{"file systems by default", claim("1Gi", nil), []*corev1.PersistentVolume{pv("a", "1Gi", func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = proto.String("Filesystem") })}, "a"},
		{"an access that it does not allow", claim("1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes = []string{"ReadWriteMany"} }), []*corev1.PersistentVolume{pv("a", "1Gi", nil)}, ""},
		{"selected", claim("1Gi", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "slow"}}
		}), []*corev1.PersistentVolume{pv("a", "1Gi", nil), pv("b", "9Gi", func(v *corev1.PersistentVolume) { v.Metadata.Labels["tier"] = "slow" })}, "b"},
		{"bound to another", claim("1Gi", nil), []*corev1.PersistentVolume{pv("a", "1Gi", reserved("default", "other", "u9"))}, ""},
		{"bound to an older claim of the name", claim("1Gi", nil), []*corev1.PersistentVolume{pv("a", "1Gi", reserved("default", "data", "u0"))}, ""},
		{"reserved goes before smaller", claim("1Gi", nil), []*corev1.PersistentVolume{pv("a", "1Gi", nil), pv("b", "9Gi", reserved("default", "data", ""))}, "b"},
		{"reserved in another namespace", claim("1Gi", nil), []*corev1.PersistentVolume{pv("b", "9Gi", reserved("other", "data", ""))}, ""},
		{"reserved, of another class", claim("1Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }), []*corev1.PersistentVolume{pv("b", "9Gi", reserved("default", "data", ""))}, "b"},
		{"reserved and too small", claim("10Gi", nil), []*corev1.PersistentVolume{pv("b", "9Gi", reserved("default", "data", ""))}, ""},
		{"not yet available", claim("1Gi", nil), []*corev1.PersistentVolume{pv("a", "1Gi", func(v *corev1.PersistentVolume) { v.Status = nil })}, ""},
		{"being deleted", claim("1Gi", nil), []*corev1.PersistentVolume{pv("a", "1Gi", func(v *corev1.PersistentVolume) { v.Metadata.DeletionTimestamp = timestamppb.Now() })}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := volume.Match(c.claim, c.volumes, nil).GetMetadata().GetName(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	a := pv("a", "1Gi", nil)
	if got := volume.Match(claim("1Gi", nil), []*corev1.PersistentVolume{a}, func(*corev1.PersistentVolume) bool { return false }); got != nil {
		t.Errorf("got %v, which is not usable", got)
	}
}
