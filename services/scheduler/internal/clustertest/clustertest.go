// Package clustertest draws clusters and pods for property tests: small ones in which most things that plugins look at
// occur, and often enough for them to meet.
package clustertest

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
)

// SchedulerName that all pods drawn here choose.
const SchedulerName = "default-scheduler"

var (
	taints = []*corev1.Taint{
		{Key: "dedicated", Value: proto.String("a"), Effect: framework.TaintNoSchedule},
		{Key: "dedicated", Value: proto.String("b"), Effect: framework.TaintNoExecute},
		{Key: "slow", Effect: framework.TaintPreferNoSchedule},
		{Key: "old", Value: proto.String("3"), Effect: framework.TaintPreferNoSchedule},
	}
	images = []string{"web:1", "db", "registry:5000/x"}
)

// fair is true once in two to the n, which numbers, of which rapid draws small ones more often, are not.
func fair(t *rapid.T, label string, n int) bool {
	for range n {
		if !rapid.Bool().Draw(t, label) {
			return false
		}
	}
	return true
}

// Node draws a node.
func Node(t *rapid.T, name string) *corev1.Node {
	one := func(label string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name+" "+label) }
	some := func(label string) bool { return fair(t, name+" "+label, 2) }
	few := func(label string) bool { return fair(t, name+" "+label, 3) }
	n := &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{
			framework.LabelHostname: name, framework.LabelZone: one("zone", "z1", "z2", "z3"), "rank": one("rank", "1", "5", "x"),
		}},
		Spec: &corev1.NodeSpec{},
		Status: &corev1.NodeStatus{Allocatable: map[string]string{
			"cpu": one("cpu", "4", "2", "8", "4", "0"), "memory": one("memory", "4Gi", "8Gi", "2Gi", "16Gi", "0"), "pods": one("pods", "20", "10", "3"),
		}},
	}
	if rapid.Bool().Draw(t, name+" rack?") {
		n.Metadata.Labels["rack"] = one("rack", "r1", "r2")
	}
	if some("gpus?") {
		n.Status.Allocatable["nvidia.com/gpu"] = one("gpus", "1", "4")
	}
	if few("cordoned") {
		n.Spec.Unschedulable = proto.Bool(true)
	}
	for i, taint := range taints {
		if label := fmt.Sprint("taint ", i); (taint.GetEffect() == framework.TaintPreferNoSchedule && some(label)) || few(label) {
			n.Spec.Taints = append(n.Spec.Taints, taint)
		}
	}
	for _, image := range images {
		if some("image " + image) {
			n.Status.Images = append(n.Status.Images, &corev1.ContainerImage{Names: []string{image, image + ":latest"}, SizeBytes: rapid.SampledFrom([]int64{300, 20, 900}).Draw(t, "MB") << 20})
		}
	}
	return n
}

// Shape draws what is common to pods made from one template.
func Shape(t *rapid.T) *corev1.PodSpec {
	one := func(label string, values ...string) string { return rapid.SampledFrom(values).Draw(t, "shape "+label) }
	some := func(label string) bool { return fair(t, "shape "+label, 2) }
	requests := map[string]string{}
	for _, r := range [][]string{{"cpu", "100m", "", "300m", "700m", "3"}, {"memory", "100Mi", "", "300Mi", "1Gi"}, {"nvidia.com/gpu", "", "", "", "1"}} {
		if v := one(r[0], r[1:]...); v != "" {
			requests[r[0]] = v
		}
	}
	spec := &corev1.PodSpec{
		SchedulerName: proto.String(SchedulerName),
		Containers: []*corev1.Container{{
			Name: "main", Image: one("image", append(images, "none")...), Resources: &corev1.ResourceRequirements{Requests: requests},
		}},
	}
	if some("port?") {
		spec.Containers[0].Ports = []*corev1.ContainerPort{{
			HostPort: proto.Int32(rapid.SampledFrom([]int32{80, 81}).Draw(t, "port")), HostIp: proto.String(one("ip", "", "10.0.0.1")),
		}}
	}
	if some("tolerates?") {
		spec.Tolerations = []*corev1.Toleration{{
			Key: proto.String(one("tolerates", "dedicated", "slow", framework.TaintUnschedulable)), Operator: proto.String("Exists"),
		}}
	}
	if some("selector?") {
		spec.NodeSelector = map[string]string{"rack": one("selector", "r1", "r2", "r3")}
	}
	term := func(label string) *corev1.NodeSelectorTerm {
		term := &corev1.NodeSelectorTerm{}
		for i := range rapid.IntRange(0, 2).Draw(t, label) {
			r := &corev1.NodeSelectorRequirement{Key: one(label+" key", "rack", "rank", framework.LabelZone), Operator: one(label+" operator", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")}
			switch r.GetOperator() {
			case "In", "NotIn":
				r.Values = []string{one(fmt.Sprint(label, " value ", i), "r1", "1", "z1", "z2")}
			case "Gt", "Lt":
				r.Values = []string{one(fmt.Sprint(label, " value ", i), "2", "5")}
			}
			term.MatchExpressions = append(term.MatchExpressions, r)
		}
		if some(label + " field?") {
			term.MatchFields = []*corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: one(label+" field operator", "In", "NotIn"), Values: []string{one(label+" field", "n0", "n1")}}}
		}
		return term
	}
	if some("affinity?") {
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
		if rapid.Bool().Draw(t, "required?") {
			required := &corev1.NodeSelector{}
			for range rapid.IntRange(1, 2).Draw(t, "terms") {
				required.NodeSelectorTerms = append(required.NodeSelectorTerms, term("required"))
			}
			spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = required
		}
		for range rapid.IntRange(0, 2).Draw(t, "preferences") {
			spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(
				spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
				&corev1.PreferredSchedulingTerm{Weight: rapid.Int32Range(1, 100).Draw(t, "weight"), Preference: term("preferred")})
		}
	}
	return spec
}

// Pod is a pod of a shape; on names its node, empty for one that waits.
func Pod(shape *corev1.PodSpec, name, on string) *corev1.Pod {
	spec := proto.CloneOf(shape)
	if on != "" {
		spec.NodeName = proto.String(on)
	}
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: name, Labels: map[string]string{"app": "a"}},
		Spec:     spec,
	}
}

// Info derives a PodInfo.
func Info(t *rapid.T, pod *corev1.Pod) *framework.PodInfo {
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		t.Fatal(err)
	}
	return info
}
