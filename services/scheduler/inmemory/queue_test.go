package inmemory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
)

func queueObject(name string, spec *schedulingv1.QueueSpec) *schedulingv1.Queue {
	return &schedulingv1.Queue{Metadata: &metav1.ObjectMeta{Name: name}, Spec: spec}
}

func node(name string, cpus int) *corev1.Node {
	return &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: name}, Spec: &corev1.NodeSpec{},
		Status: &corev1.NodeStatus{Allocatable: map[string]string{"cpu": fmt.Sprint(cpus), "memory": "64Gi", "pods": "110"}},
	}
}

func pod(name, queue string, priority int32) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: name, Labels: map[string]string{framework.LabelQueue: queue}},
		Spec: &corev1.PodSpec{
			SchedulerName: proto.String("default-scheduler"), Priority: proto.Int32(priority),
			Containers: []*corev1.Container{{Name: "main", Resources: &corev1.ResourceRequirements{Requests: map[string]string{"cpu": "1"}}}},
		},
	}
}

// runs starts a scheduler and returns the names of the first n pods that it binds, sorted.
func runs(t *testing.T, s *Scheduler, bound chan string, n int) []string {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var out []string
	for range n {
		out = append(out, <-bound)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	slices.Sort(out) // bindings are made side by side
	return out
}

// TestQueuesTakeTurns by weight, whoever came first, among pods of equal priority.
func TestQueuesTakeTurns(t *testing.T) {
	bound := make(chan string, 100)
	s, err := New(Config{Bound: func(p *corev1.Pod) { bound <- p.GetMetadata().GetName() }})
	if err != nil {
		t.Fatal(err)
	}
	s.Node(nil, node("n", 8))
	for i := range 8 {
		s.Create(pod(fmt.Sprint("a", i), "a", 0))
	}
	for i := range 8 {
		s.Create(pod(fmt.Sprint("b", i), "b", 0))
	}
	s.Create(pod("a-high", "a", 1))
	// That queues come after their pods makes no difference.
	s.Queue(nil, queueObject("a", &schedulingv1.QueueSpec{Weight: proto.Int32(1)}))
	s.Queue(nil, queueObject("b", &schedulingv1.QueueSpec{Weight: proto.Int32(3)}))
	got := strings.Join(runs(t, s, bound, 8), " ")
	if want := "a-high a0 b0 b1 b2 b3 b4 b5"; got != want {
		t.Errorf("bound %s, want %s", got, want)
	}
}

// TestLimitsHold for single pods and for gangs, which see their own members.
func TestLimitsHold(t *testing.T) {
	bound := make(chan string, 100)
	s, err := New(Config{Bound: func(p *corev1.Pod) { bound <- p.GetMetadata().GetName() }})
	if err != nil {
		t.Fatal(err)
	}
	s.Node(nil, node("n", 16))
	three := &schedulingv1.QueueSpec{Limit: map[string]string{"cpu": "3"}}
	s.Queue(nil, queueObject("a", three))
	gang := func(name string, n int) {
		s.Group(nil, &schedulingv1.PodGroup{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: name},
			Spec: &schedulingv1.PodGroupSpec{SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{
				Gang: &schedulingv1.GangSchedulingPolicy{MinCount: int32(n)},
			}},
		})
		for i := range n {
			p := pod(fmt.Sprint(name, i), "a", 0)
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: proto.String(name)}
			s.Create(p)
		}
	}
	gang("four-", 4)
	gang("three-", 3)
	s.Create(pod("free", "", 0))
	got := strings.Join(runs(t, s, bound, 4), " ")
	if want := "free three-0 three-1 three-2"; got != want {
		t.Errorf("bound %s, want %s", got, want)
	}
}
