package volumerestrictions

import (
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/internal/claimstest"
)

func with(t *testing.T, name, node string, v *corev1.Volume) *framework.PodInfo {
	p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: name}, Spec: &corev1.PodSpec{Volumes: []*corev1.Volume{v}}}
	if node != "" {
		p.Spec.NodeName = &node
	}
	return claimstest.Info(t, p)
}

func TestDisks(t *testing.T) {
	gce := func(name string, readOnly bool) *corev1.Volume {
		return &corev1.Volume{GcePersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PdName: name, ReadOnly: &readOnly}}
	}
	ebs := func(id string) *corev1.Volume {
		return &corev1.Volume{AwsElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeId: id, ReadOnly: proto.Bool(true)}}
	}
	rbd := func(image, monitor string, readOnly bool) *corev1.Volume {
		return &corev1.Volume{Rbd: &corev1.RBDVolumeSource{Monitors: []string{"m0", monitor}, Pool: proto.String("p"), Image: image, ReadOnly: &readOnly}}
	}
	iscsi := func(iqn string, readOnly bool) *corev1.Volume {
		return &corev1.Volume{Iscsi: &corev1.ISCSIVolumeSource{Iqn: iqn, ReadOnly: &readOnly}}
	}
	const conflict = "Unschedulable: node(s) had no available disk"
	for _, c := range []struct {
		name         string
		there, asked *corev1.Volume
		want         string
	}{
		{"same disk", gce("a", false), gce("a", false), conflict},
		{"other disk", gce("a", false), gce("b", false), ""},
		{"both only read", gce("a", true), gce("a", true), ""},
		{"one writes", gce("a", true), gce("a", false), conflict},
		{"same EBS, even if both only read", ebs("a"), ebs("a"), conflict},
		{"other EBS", ebs("a"), ebs("b"), ""},
		{"another kind of the name", gce("a", false), ebs("a"), ""},
		{"same image, a monitor in common", rbd("i", "m1", false), rbd("i", "m2", false), conflict},
		{"other image", rbd("i", "m1", false), rbd("j", "m1", false), ""},
		{"same image, both only read", rbd("i", "m1", true), rbd("i", "m1", true), ""},
		{"same target", iscsi("t", false), iscsi("t", true), conflict},
		{"other target", iscsi("t", false), iscsi("u", false), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &claimstest.World{Nodes: []*corev1.Node{claimstest.Node("n", nil), claimstest.Node("free", nil)}}
			w.Pods = append(w.Pods, with(t, "there", "n", c.there))
			h := w.Handle(t)
			got, _ := claimstest.Verdicts(t, h, New(h), with(t, "p", "", c.asked))
			if got["n"] != c.want || got["free"] != "" {
				t.Errorf("got %v, want %q on n", got, c.want)
			}
		})
	}
}

// TestReadWriteOncePod: such a claim has one pod in the whole cluster, and preemption may be told so.
func TestReadWriteOncePod(t *testing.T) {
	const inUse = "Unschedulable: node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
	w := &claimstest.World{Nodes: []*corev1.Node{claimstest.Node("n1", nil), claimstest.Node("n2", nil)}}
	w.Claims = append(w.Claims, claimstest.Claim("alone", "x", "1Gi", "v"), claimstest.Claim("shared", "x", "1Gi", "u"))
	w.Claims[0].Spec.AccessModes = []string{"ReadWriteOncePod"}
	holder := claimstest.Pod(t, "there", "n1", "alone", "shared")
	w.Pods = append(w.Pods, holder)
	h := w.Handle(t)
	p := New(h)
	pod := claimstest.Pod(t, "p", "", "alone")
	got, state := claimstest.Verdicts(t, h, p, pod)
	if got["n1"] != inUse || got["n2"] != inUse {
		t.Errorf("got %v", got)
	}
	n1 := h.State.Node("n1").Clone()
	if err := n1.RemovePod(holder.UID()); err != nil {
		t.Fatal(err)
	}
	p.RemovePod(state, pod, holder, n1)
	if st := p.Filter(state, pod, n1); !st.IsSuccess() {
		t.Errorf("without the other: %v", st)
	}
	n1.AddPod(holder)
	p.AddPod(state, pod, holder, n1)
	if st := p.Filter(state, pod, n1); st.IsSuccess() {
		t.Error("the other is back")
	}
	if got, _ := claimstest.Verdicts(t, h, p, claimstest.Pod(t, "q", "", "shared")); got["n1"] != "" {
		t.Errorf("a claim that many may use: %v", got)
	}
	if got, _ := claimstest.Verdicts(t, h, p, claimstest.Pod(t, "q", "", "nosuch")); got["n1"] != `UnschedulableAndUnresolvable: persistentvolumeclaim "nosuch" not found` {
		t.Errorf("got %v", got)
	}
	if freed(pod, &framework.Change{OldPod: holder}) != framework.Queue || freed(pod, &framework.Change{OldPod: claimstest.Pod(t, "x", "n1", "other")}) != framework.QueueSkip {
		t.Error("the end of who has the claim is what wakes a pod")
	}
}
