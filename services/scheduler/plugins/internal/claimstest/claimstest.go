// Package claimstest makes claims, volumes and pods that use them, for tests of the plugins for volumes.
package claimstest

import (
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	storagev1 "trireme.dev/proto/gen/trireme/storage/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/plugintest"
)

// World is what a scheduler has heard of.
type World struct {
	Claims  plugintest.List[*corev1.PersistentVolumeClaim]
	Volumes plugintest.List[*corev1.PersistentVolume]
	Classes plugintest.List[*storagev1.StorageClass]
	Drivers plugintest.List[*storagev1.CSINode]
	Nodes   []*corev1.Node
	Pods    []*framework.PodInfo
}

// Handle of a plugin in the world.
func (w *World) Handle(t testing.TB) *plugintest.Handle {
	t.Helper()
	snapshot, err := framework.NewSnapshot(w.Nodes, w.Pods)
	if err != nil {
		t.Fatal(err)
	}
	return &plugintest.Handle{State: snapshot, Listers: map[string]any{
		"PersistentVolumeClaim": framework.Lister[*corev1.PersistentVolumeClaim](w.Claims),
		"PersistentVolume":      framework.Lister[*corev1.PersistentVolume](w.Volumes),
		"StorageClass":          framework.Lister[*storagev1.StorageClass](w.Classes),
		"CSINode":               framework.Lister[*storagev1.CSINode](w.Drivers),
	}}
}

// Pod that uses claims, on a node or, where that is empty, none.
func Pod(t testing.TB, name, node string, claims ...string) *framework.PodInfo {
	t.Helper()
	p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: name}, Spec: &corev1.PodSpec{}}
	if node != "" {
		p.Spec.NodeName = proto.String(node)
	}
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, &corev1.Volume{
			Name: c, PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c},
		})
	}
	return Info(t, p)
}

// Info of a pod.
func Info(t testing.TB, p *corev1.Pod) *framework.PodInfo {
	t.Helper()
	info, err := framework.NewPodInfo(p)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// Node with labels.
func Node(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name, Labels: labels}}
}

// Claim of a class for a size; bound to a volume where that is named.
func Claim(name, class, size, volume string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: "uid-" + name},
		Spec: &corev1.PersistentVolumeClaimSpec{
			AccessModes: []string{"ReadWriteOnce"}, StorageClassName: proto.String(class),
			Resources: &corev1.VolumeResourceRequirements{Requests: map[string]string{"storage": size}},
		},
		Status: &corev1.PersistentVolumeClaimStatus{Phase: proto.String("Pending")},
	}
	if volume != "" {
		c.Spec.VolumeName, c.Status.Phase = proto.String(volume), proto.String("Bound")
	}
	return c
}

// Volume of a class that the nodes with the names can reach, all of them where there are none; bound to a claim where that
// is named.
func Volume(name, class, size, claim string, nodes ...string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		Metadata: &metav1.ObjectMeta{Name: name},
		Spec: &corev1.PersistentVolumeSpec{
			Capacity: map[string]string{"storage": size}, AccessModes: []string{"ReadWriteOnce"}, StorageClassName: proto.String(class),
		},
		Status: &corev1.PersistentVolumeStatus{Phase: proto.String("Available")},
	}
	if len(nodes) > 0 {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []*corev1.NodeSelectorTerm{{
			MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: "In", Values: nodes}},
		}}}}
	}
	if claim != "" {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: proto.String("default"), Name: proto.String(claim), Uid: proto.String("uid-" + claim)}
		v.Status.Phase = proto.String("Bound")
	}
	return v
}

// Class that binds at once, or when the first pod comes.
func Class(name, provisioner string, waits bool) *storagev1.StorageClass {
	c := &storagev1.StorageClass{Metadata: &metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: proto.String("Immediate")}
	if waits {
		c.VolumeBindingMode = proto.String("WaitForFirstConsumer")
	}
	return c
}

// Verdicts asks a plugin for a pod on all nodes of its handle: a rejection at PreFilter counts for each, and "" is none.
func Verdicts(t testing.TB, h *plugintest.Handle, p interface {
	framework.PreFilterPlugin
	framework.FilterPlugin
}, pod *framework.PodInfo) (map[string]string, *framework.CycleState) {
	t.Helper()
	state := framework.NewCycleState()
	_, st := p.PreFilter(state, pod, h.State)
	out := map[string]string{}
	for _, n := range h.State.Nodes() {
		verdict := st
		switch {
		case st.IsSkip():
			verdict = nil
		case st.IsSuccess():
			verdict = p.Filter(state, pod, n)
		}
		out[n.Name()] = ""
		if !verdict.IsSuccess() {
			out[n.Name()] = verdict.Code().String() + ": " + verdict.Message()
		}
	}
	return out, state
}
