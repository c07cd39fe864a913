package noderesources

import (
	"fmt"
	"testing"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
)

type list = map[string]string

func pod(t testing.TB, name string, requests ...list) *framework.PodInfo {
	spec := &corev1.PodSpec{}
	for _, r := range requests {
		spec.Containers = append(spec.Containers, &corev1.Container{Resources: &corev1.ResourceRequirements{Requests: r}})
	}
	info, err := framework.NewPodInfo(&corev1.Pod{Metadata: &metav1.ObjectMeta{Name: name, Uid: name}, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func node(t testing.TB, allocatable list, pods ...*framework.PodInfo) *framework.NodeInfo {
	var n framework.NodeInfo
	if err := n.SetNode(&corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: "n"}, Status: &corev1.NodeStatus{Allocatable: allocatable},
	}); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		n.AddPod(p)
	}
	return &n
}

func TestFit(t *testing.T) {
	roomy := list{"cpu": "4", "memory": "8Gi", "ephemeral-storage": "10Gi", "pods": "2", "nvidia.com/gpu": "4"}
	for _, tc := range []struct {
		name string
		pod  *framework.PodInfo
		node *framework.NodeInfo
		want string
	}{
		{"fits", pod(t, "p", list{"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "4"}), node(t, roomy), "Success"},
		{"nothing asked, nothing there", pod(t, "p", list{}), node(t, list{"pods": "1"}), "Success"},
		{"too many pods", pod(t, "p", list{}), node(t, list{"pods": "1"}, pod(t, "q")), "Unschedulable: Too many pods"},
		{"no pods at all", pod(t, "p", list{}), node(t, list{}), "UnschedulableAndUnresolvable: Too many pods"},
		{"cpu taken", pod(t, "p", list{"cpu": "2"}), node(t, roomy, pod(t, "q", list{"cpu": "2500m"})), "Unschedulable: Insufficient cpu"},
		{"more cpu than there is", pod(t, "p", list{"cpu": "4001m"}), node(t, roomy), "UnschedulableAndUnresolvable: Insufficient cpu"},
		{"containers add up", pod(t, "p", list{"cpu": "3"}, list{"cpu": "2"}), node(t, roomy), "UnschedulableAndUnresolvable: Insufficient cpu"},
		{
			"all at once", pod(t, "p", list{"cpu": "3", "memory": "6Gi", "ephemeral-storage": "6Gi", "nvidia.com/gpu": "3", "example.com/a": "1"}),
			node(t, roomy, pod(t, "q", list{"cpu": "3", "memory": "6Gi", "ephemeral-storage": "6Gi", "nvidia.com/gpu": "3"}), pod(t, "r")),
			"UnschedulableAndUnresolvable: Too many pods, Insufficient cpu, Insufficient memory, Insufficient ephemeral-storage, Insufficient example.com/a, Insufficient nvidia.com/gpu",
		},
		{"gpus taken", pod(t, "p", list{"nvidia.com/gpu": "2"}), node(t, roomy, pod(t, "q", list{"nvidia.com/gpu": "3"})), "Unschedulable: Insufficient nvidia.com/gpu"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := NewFit(DefaultFitArgs()).Filter(nil, tc.pod, tc.node)
			got := st.Code().String()
			if m := st.Message(); m != "" {
				got += ": " + m
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestLeastAllocated(t *testing.T) {
	has := list{"cpu": "4", "memory": "8Gi", "pods": "10"}
	for _, tc := range []struct {
		name string
		pod  *framework.PodInfo
		node *framework.NodeInfo
		want int64
	}{
		// cpu (4000-1000)*100/4000 = 75, memory (8-2)*100/8 = 75.
		{"quarter of each", pod(t, "p", list{"cpu": "1", "memory": "2Gi"}), node(t, has), 75},
		// cpu (4000-3000)*100/4000 = 25, memory (8-3)*100/8 = 62.
		{"beside another", pod(t, "p", list{"cpu": "1", "memory": "1Gi"}), node(t, has, pod(t, "q", list{"cpu": "2", "memory": "2Gi"})), 43},
		{"full", pod(t, "p", list{"cpu": "4", "memory": "8Gi"}), node(t, has), 0},
		// more than there is counts as 0: (0 + 50)/2.
		{"over in cpu", pod(t, "p", list{"cpu": "5", "memory": "4Gi"}), node(t, has), 25},
		// 100m and 200 MiB: cpu 97, memory (8192-200)*100/8192 = 97.
		{"asks for nothing", pod(t, "p", list{}), node(t, has), 97},
		{"node without cpu and memory", pod(t, "p", list{}), node(t, list{"pods": "1"}), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, st := NewFit(DefaultFitArgs()).Score(nil, tc.pod, tc.node)
			if !st.IsSuccess() || got != tc.want {
				t.Errorf("score = %d (%v), want %d", got, st, tc.want)
			}
		})
	}
}

func TestBalanced(t *testing.T) {
	has := list{"cpu": "4", "memory": "8Gi", "pods": "10"}
	for _, tc := range []struct {
		name string
		pod  *framework.PodInfo
		node *framework.NodeInfo
		want int64
	}{
		{"keeps the balance", pod(t, "p", list{"cpu": "2", "memory": "4Gi"}), node(t, has), 75},
		// with: |1-0|/2 = 0.5 → 50; without: 100; 50 + (50+50-100)/2.
		{"worst", pod(t, "p", list{"cpu": "4"}), node(t, has), 50},
		// with: 100; without: 50.
		{"best", pod(t, "p", list{"memory": "8Gi"}), node(t, has, pod(t, "q", list{"cpu": "4"})), 100},
		// with: |0.5-0.25|/2 → 87; without 100; 50 + 37/2.
		{"a little worse", pod(t, "p", list{"cpu": "2", "memory": "2Gi"}), node(t, has), 68},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, st := NewBalanced(DefaultBalancedArgs()).Score(nil, tc.pod, tc.node)
			if !st.IsSuccess() || got != tc.want {
				t.Errorf("score = %d (%v), want %d", got, st, tc.want)
			}
		})
	}
	if st := NewBalanced(DefaultBalancedArgs()).PreScore(nil, pod(t, "p", list{"nvidia.com/gpu": "1"}), nil, nil); !st.IsSkip() {
		t.Errorf("PreScore without cpu and memory = %v, want Skip", st)
	}
}

func TestFitHints(t *testing.T) {
	hints := NewFit(DefaultFitArgs()).EventsToRegister()
	gpu := pod(t, "p", list{"nvidia.com/gpu": "2"})
	nodeWith := func(n int) *corev1.Node {
		return &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "n"},
			Status: &corev1.NodeStatus{Allocatable: list{"pods": "10", "nvidia.com/gpu": fmt.Sprint(n)}}}
	}
	if got := hints[1].Hint(gpu, &framework.Change{NewNode: nodeWith(1)}); got != framework.QueueSkip {
		t.Error("a node too small even when empty woke the pod")
	}
	if got := hints[1].Hint(gpu, &framework.Change{NewNode: nodeWith(2)}); got != framework.Queue {
		t.Error("a node large enough did not wake the pod")
	}
	shrunk := &framework.Change{OldPod: pod(t, "q", list{"cpu": "2", "nvidia.com/gpu": "1"}), NewPod: pod(t, "q", list{"cpu": "1", "nvidia.com/gpu": "1"})}
	if got := hints[0].Hint(gpu, shrunk); got != framework.QueueSkip {
		t.Error("a pod that gave back cpu woke one that wants gpus")
	}
	if got := hints[0].Hint(gpu, &framework.Change{OldPod: pod(t, "q")}); got != framework.Queue {
		t.Error("a pod that went did not wake the pod: it may have held its place")
	}
}
