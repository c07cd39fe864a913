package intake

import (
	"log/slog"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cache"
	"trireme.dev/services/scheduler/internal/queue"
	"trireme.dev/services/scheduler/internal/runtime"
	"trireme.dev/services/scheduler/plugins"
)

// TestStartTimeOfBoundPodIsSeen: preemption goes by when pods began, which only their statuses say. It changes the pod in the
// cache and wakes nobody; what else a status says changes nothing at all.
func TestStartTimeOfBoundPodIsSeen(t *testing.T) {
	fw, err := runtime.New(plugins.Default("default-scheduler"), runtime.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	in := &Intake{SchedulerNames: []string{"default-scheduler"}, Cache: cache.New(logger), Framework: fw, Logger: logger}
	in.Queue = queue.New(queue.Config{
		Less: fw.Less, PreEnqueue: fw.RunPreEnqueue, PreEnqueueGroup: fw.RunPreEnqueueGroup, Events: map[string][]framework.EventHint{
			"NodeResourcesFit": {{Event: framework.ClusterEvent{Resource: framework.AnyResource, Action: framework.AllActions}}},
		},
		Scheduled: in.Cache.Scheduled, OnGated: func(queue.Gated) {},
	})
	in.Change(nil, &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "n"}, Spec: &corev1.NodeSpec{}, Status: &corev1.NodeStatus{}}, false)
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: name, Generation: 1},
			Spec:     &corev1.PodSpec{SchedulerName: proto.String("default-scheduler"), NodeName: proto.String(node)},
			Status:   &corev1.PodStatus{},
		}
	}
	bound := pod("bound", "n")
	in.Change(nil, bound, false)
	in.Change(nil, pod("waits", ""), false)
	popped := in.Queue.Pop()
	in.Queue.Done(popped, queue.Outcome{Rejected: true, Plugins: []string{"NodeResourcesFit"}})

	var snapshot cache.Snapshot
	version := func() uint64 {
		if err := in.Cache.Update(&snapshot); err != nil {
			t.Fatal(err)
		}
		return snapshot.Version()
	}
	before := version()
	started := proto.CloneOf(bound)
	started.Status.StartTime = timestamppb.New(time.Unix(1000, 0))
	in.Change(bound, started, false)
	after := version()
	if got := snapshot.Node("n").Pods[0].Pod.GetStatus().GetStartTime().GetSeconds(); got != 1000 || after == before {
		t.Errorf("the pod began at %d, want 1000", got)
	}
	running := proto.CloneOf(started)
	running.Status.Phase = "Running"
	in.Change(started, running, false)
	if version() != after {
		t.Error("a phase changed the snapshot")
	}
	if active, backoff, pool := in.Queue.Len(); active != 0 || backoff != 0 || pool != 1 {
		t.Errorf("%d ready, %d in backoff, %d unschedulable; want the one that waits to be unschedulable", active, backoff, pool)
	}
}

// TestNodeChange: the kinds of update that Kubernetes' scheduler tells apart; what none of them names wakes nobody.
func TestNodeChange(t *testing.T) {
	base := &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"a": "1"}},
		Spec:     &corev1.NodeSpec{Taints: []*corev1.Taint{{Key: "k", Effect: "NoSchedule"}}},
		Status: &corev1.NodeStatus{
			Allocatable: map[string]string{"cpu": "4"}, Capacity: map[string]string{"cpu": "4"},
			Conditions: []*corev1.NodeCondition{{Type: "Ready", Status: "True", Reason: "r"}},
		},
	}
	for _, tc := range []struct {
		name   string
		change func(*corev1.Node)
		want   framework.Action
	}{
		{"nothing", func(*corev1.Node) {}, 0},
		{"allocatable", func(n *corev1.Node) { n.Status.Allocatable["cpu"] = "8" }, framework.UpdateNodeAllocatable},
		{"capacity alone", func(n *corev1.Node) { n.Status.Capacity["cpu"] = "8" }, 0},
		{"a label", func(n *corev1.Node) { n.Metadata.Labels["a"] = "2" }, framework.UpdateNodeLabel},
		{"a label less", func(n *corev1.Node) { delete(n.Metadata.Labels, "a") }, framework.UpdateNodeLabel},
		{"an annotation", func(n *corev1.Node) { n.Metadata.Annotations["b"] = "1" }, framework.UpdateNodeAnnotation},
		{"a taint goes", func(n *corev1.Node) { n.Spec.Taints = nil }, framework.UpdateNodeTaint},
		{"a taint's effect", func(n *corev1.Node) { n.Spec.Taints[0].Effect = "NoExecute" }, framework.UpdateNodeTaint},
		{"a cordon", func(n *corev1.Node) { n.Spec.Unschedulable = proto.Bool(true) }, framework.UpdateNodeTaint},
		{"a condition's status", func(n *corev1.Node) { n.Status.Conditions[0].Status = "False" }, framework.UpdateNodeCondition},
		{"a condition's reason alone", func(n *corev1.Node) { n.Status.Conditions[0].Reason = "q" }, 0},
		{"a condition's heartbeat alone", func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = timestamppb.New(time.Unix(1, 0)) }, 0},
		{"a condition more", func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, &corev1.NodeCondition{Type: "DiskPressure", Status: "False"})
		}, framework.UpdateNodeCondition},
		{"two kinds at once", func(n *corev1.Node) {
			n.Metadata.Labels["a"] = "2"
			n.Status.Allocatable["cpu"] = "8"
		}, framework.UpdateNodeLabel | framework.UpdateNodeAllocatable},
	} {
		after := proto.CloneOf(base)
		tc.change(after)
		if got := nodeChange(base, after); got != tc.want {
			t.Errorf("%s: %b, want %b", tc.name, got, tc.want)
		}
	}
}
