package cycle

import (
	"testing"

	"github.com/cockroachdb/datadriven"
	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
)

// TestNominatedPodsCount: a node has to do both with the pods on it for which room is being made there and that are as important
// as the pod, and without them; and the node on which room was made for a pod is tried first, and alone.
func TestNominatedPodsCount(t *testing.T) {
	cpu := func(amount string) []datadriven.CmdArg {
		return []datadriven.CmdArg{{Key: "cpu", Vals: []string{amount}}}
	}
	prio := func(p *corev1.Pod, n int32) *corev1.Pod { p.Spec.Priority = proto.Int32(n); return p }
	near := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{{
			TopologyKey: framework.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "nominated"}},
		}}}}
		return p
	}
	far := func(p *corev1.Pod) *corev1.Pod {
		near(p)
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
		}}
		return p
	}
	for _, tc := range []struct {
		name string
		// nodes have 4 CPU each; 3 of the first are nominated to a pod of priority 5.
		nodes []string
		pod   *corev1.Pod
		want  string // empty for nowhere
	}{
		{"less important, no room beside it", []string{"n1"}, prio(scriptPod(t, "a", cpu("2")), 4), ""},
		{"as important", []string{"n1"}, prio(scriptPod(t, "a", cpu("2")), 5), ""},
		{"more important", []string{"n1"}, prio(scriptPod(t, "a", cpu("2")), 6), "n1"},
		{"less important, room beside it", []string{"n1"}, prio(scriptPod(t, "a", cpu("1")), 4), "n1"},
		{"less important, room elsewhere", []string{"n1", "n2"}, prio(scriptPod(t, "a", cpu("2")), 4), "n2"},
		{"only with it: it may never come", []string{"n1"}, prio(near(scriptPod(t, "a", cpu("1"))), 4), ""},
		{"only without it", []string{"n1"}, prio(far(scriptPod(t, "a", cpu("1"))), 4), ""},
		{"only without it, and more important", []string{"n1"}, prio(far(scriptPod(t, "a", cpu("1"))), 6), "n1"},
		{"its own room", []string{"n1", "n2"}, prio(scriptPod(t, "nominated", cpu("3")), 5), "n1"},
		{"its own room, which it has outgrown", []string{"n1"}, prio(scriptPod(t, "nominated", cpu("4")), 5), "n1"},
		{"its own room, too small by now", []string{"n1"}, prio(scriptPod(t, "nominated", cpu("5")), 5), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			for _, name := range tc.nodes {
				n := scriptNode(t, name, nil)
				n.Metadata.Labels[framework.LabelHostname] = name
				w.cache.SetNode(n)
			}
			nominated := prio(scriptPod(t, "nominated", cpu("3")), 5)
			nominated.Metadata.Labels = map[string]string{"app": "nominated"}
			w.decider.fw.Nominate(info(t, nominated), "n1")
			w.decider.rotation = 1 // where there is a second node it is before n1 among equals
			got := ""
			if d := w.decide(t, &framework.Queued{Pods: []*framework.PodInfo{info(t, tc.pod)}}); len(d.Placed) > 0 {
				got = d.Placed[0].Node
			}
			if got != tc.want {
				t.Errorf("it goes to %q, want %q", got, tc.want)
			}
		})
	}
}
