package up

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const manifests = `
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: x}
spec: {containers: [{name: c, image: i}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: x}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: m, namespace: x}
`

func owned(set string) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Name: set + "-1", Namespace: "x", OwnerReferences: []*metav1.OwnerReference{
		{Kind: "ReplicaSet", Name: set},
	}}
}

func TestExpectedPodsAreThoseOfTheManifests(t *testing.T) {
	docs, err := manifest.Decode(kind.Builtin(), "m.yaml", strings.NewReader(manifests))
	if err != nil {
		t.Fatal(err)
	}
	e := expectedOf(docs)
	if e.count() != 3 {
		t.Errorf("%d pods expected, want 3", e.count())
	}
	for _, tt := range []struct {
		meta *metav1.ObjectMeta
		want bool
	}{
		{&metav1.ObjectMeta{Name: "a", Namespace: "x"}, true},
		{&metav1.ObjectMeta{Name: "a", Namespace: "y"}, false},
		{&metav1.ObjectMeta{Name: "b", Namespace: "x"}, false},
		{owned("web-5d4f"), true},
		{owned("website"), false},
	} {
		if got := e.belongs(&corev1.Pod{Metadata: tt.meta}); got != tt.want {
			t.Errorf("belongs(%v) = %v, want %v", tt.meta, got, tt.want)
		}
	}
}

func TestNodeReadyMeansReadySinceTheStart(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 5e8, time.UTC)
	node := func(status string, beat time.Time) *corev1.Node {
		return &corev1.Node{Status: &corev1.NodeStatus{Conditions: []*corev1.NodeCondition{
			{Type: "MemoryPressure", Status: "True"},
			{Type: "Ready", Status: status, LastHeartbeatTime: timestamppb.New(beat)},
		}}}
	}
	for name, tt := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"new":             {node("True", start.Add(time.Second)), true},
		"the same second": {node("True", start.Truncate(time.Second)), true},
		"an earlier run":  {node("True", start.Add(-time.Minute)), false},
		"not ready":       {node("False", start.Add(time.Second)), false},
		"no status":       {&corev1.Node{}, false},
	} {
		if got := nodeReady(tt.node, start); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestWhyNot(t *testing.T) {
	for want, status := range map[string]*corev1.PodStatus{
		"no status yet": nil,
		"Pending":       {Phase: "Pending"},
		"Unschedulable: 0/4 nodes are available": {Phase: "Pending", Conditions: []*corev1.PodCondition{
			{Type: "PodScheduled", Status: "False", Reason: "Unschedulable", Message: "0/4 nodes are available"}}},
		"ImagePullBackOff: no such image": {Phase: "Pending", ContainerStatuses: []*corev1.ContainerStatus{
			{State: &corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}},
	} {
		if got := whyNot(&corev1.Pod{Status: status}); got != want {
			t.Errorf("whyNot(%v) = %q, want %q", status, got, want)
		}
	}
}

func TestDevicesOf(t *testing.T) {
	asks := &corev1.PodSpec{Containers: []*corev1.Container{{Resources: &corev1.ResourceRequirements{
		Limits: map[string]string{"nvidia.com/gpu": "2", "memory": "1Gi"}}}}}
	given := &corev1.PodStatus{ContainerStatuses: []*corev1.ContainerStatus{{AllocatedResourcesStatus: []*corev1.ResourceStatus{
		{Name: "nvidia.com/gpu", Resources: []*corev1.ResourceHealth{{ResourceId: "GPU-0"}, {ResourceId: "GPU-3"}}}}}}}
	for want, p := range map[string]*corev1.Pod{
		"nvidia.com/gpu: GPU-0,GPU-3": {Spec: asks, Status: given},
		"nvidia.com/gpu: 2":           {Spec: asks},
		"-":                           {},
	} {
		if got := devicesOf(p); got != want {
			t.Errorf("devicesOf = %q, want %q", got, want)
		}
	}
}

func TestPodRunsMeansItsContainersStartedSince(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 5e8, time.UTC)
	pod := func(phase, ready string, started time.Time) *corev1.Pod {
		return &corev1.Pod{Status: &corev1.PodStatus{
			Phase:      phase,
			Conditions: []*corev1.PodCondition{{Type: "Ready", Status: ready}},
			ContainerStatuses: []*corev1.ContainerStatus{
				{State: &corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: timestamppb.New(started)}}},
			},
		}}
	}
	for name, tt := range map[string]struct {
		pod   *corev1.Pod
		since time.Time
		want  bool
	}{
		"new":                   {pod("Running", "True", start.Add(time.Second)), start, true},
		"the same second":       {pod("Running", "True", start.Truncate(time.Second)), start, true},
		"of an earlier run":     {pod("Running", "True", start.Add(-time.Minute)), start, false},
		"that has been running": {pod("Running", "True", start.Add(-time.Minute)), time.Time{}, true},
		"not ready":             {pod("Running", "False", start.Add(time.Second)), start, false},
		"pending":               {pod("Pending", "False", start.Add(time.Second)), start, false},
	} {
		if got := podRuns(tt.pod, tt.since); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
