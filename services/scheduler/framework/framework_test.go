package framework

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func container(requests, limits map[string]string) *corev1.Container {
	return &corev1.Container{Resources: &corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func TestPodRequests(t *testing.T) {
	type list = map[string]string
	sidecar := container(list{"cpu": "200m", "memory": "100"}, nil)
	sidecar.RestartPolicy = proto.String("Always")
	for _, tc := range []struct {
		name string
		spec *corev1.PodSpec
		want Resource
		cpu  int64 // scored
		mem  int64
	}{
		{
			"containers add up, limits stand in for requests",
			&corev1.PodSpec{Containers: []*corev1.Container{
				container(list{"cpu": "100m"}, list{"cpu": "2", "memory": "64", "nvidia.com/gpu": "2"}),
				container(list{"cpu": "1", "memory": "36"}, nil),
			}},
			Resource{MilliCPU: 1100, Memory: 100, Scalar: map[string]int64{"nvidia.com/gpu": 2}}, 1100, 100,
		},
		{
			"nothing asked counts for scoring",
			&corev1.PodSpec{Containers: []*corev1.Container{container(nil, nil), container(list{"cpu": "0", "memory": "1"}, nil)}},
			Resource{Memory: 1}, 100, 200<<20 + 1,
		},
		{
			"the largest init container, beside the sidecars before it",
			&corev1.PodSpec{
				InitContainers: []*corev1.Container{container(list{"cpu": "900m", "memory": "1"}, nil), sidecar, container(list{"cpu": "1", "memory": "50"}, nil)},
				Containers:     []*corev1.Container{container(list{"cpu": "500m", "memory": "200"}, nil)},
			},
			Resource{MilliCPU: 1200, Memory: 300}, 1200, 300,
		},
		{
			"the pod's own figure and overhead",
			&corev1.PodSpec{
				Containers: []*corev1.Container{container(list{"cpu": "1", "memory": "10"}, nil)},
				Resources:  &corev1.ResourceRequirements{Requests: list{"cpu": "3"}},
				Overhead:   list{"cpu": "50m", "memory": "5"},
			},
			Resource{MilliCPU: 3050, Memory: 15}, 3050, 15,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := NewPodInfo(&corev1.Pod{Spec: tc.spec})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Request); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if got.Scored.MilliCPU != tc.cpu || got.Scored.Memory != tc.mem {
				t.Errorf("scored as %d, %d, want %d, %d", got.Scored.MilliCPU, got.Scored.Memory, tc.cpu, tc.mem)
			}
		})
	}
	if _, err := NewPodInfo(&corev1.Pod{Spec: &corev1.PodSpec{Containers: []*corev1.Container{container(map[string]string{"cpu": "many"}, nil)}}}); err == nil {
		t.Error("a quantity that cannot be read went unnoticed")
	}
}

func TestTolerates(t *testing.T) {
	taint := &corev1.Taint{Key: "k", Value: proto.String("5"), Effect: TaintNoSchedule}
	for _, tc := range []struct {
		key, op, value, effect string
		want                   bool
	}{
		{"k", "", "5", "", true},
		{"k", "Equal", "5", "NoSchedule", true},
		{"k", "Equal", "6", "", false},
		{"k", "Exists", "", "", true},
		{"", "Exists", "", "", true},
		{"", "Equal", "5", "", false},
		{"x", "Exists", "", "", false},
		{"k", "Exists", "", "NoExecute", false},
		{"k", "Lt", "6", "", true},
		{"k", "Gt", "6", "", false},
		{"k", "Gt", "x", "", false},
	} {
		tol := &corev1.Toleration{Key: proto.String(tc.key), Operator: proto.String(tc.op), Value: proto.String(tc.value), Effect: proto.String(tc.effect)}
		if got := Tolerates([]*corev1.Toleration{tol}, taint); got != tc.want {
			t.Errorf("%+v tolerates: %t, want %t", tc, got, tc.want)
		}
	}
	soft := &corev1.Taint{Key: "s", Effect: TaintPreferNoSchedule}
	if got := UntoleratedTaint([]*corev1.Taint{soft, taint}, nil); got != taint {
		t.Errorf("untolerated = %v, want the hard taint", got)
	}
}

func TestNormalizeDefault(t *testing.T) {
	for _, tc := range []struct {
		in      []int64
		reverse bool
		want    []int64
	}{
		{[]int64{1, 2, 4}, false, []int64{25, 50, 100}},
		{[]int64{1, 2, 4}, true, []int64{75, 50, 0}},
		{[]int64{0, 0}, false, []int64{0, 0}},
		{[]int64{0, 0}, true, []int64{100, 100}},
	} {
		got := slices.Clone(tc.in)
		NormalizeDefault(got, tc.reverse)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%v reverse %t = %v, want %v", tc.in, tc.reverse, got, tc.want)
		}
	}
}

func TestStatus(t *testing.T) {
	var success *Status
	cause := errors.New("cause")
	if !success.IsSuccess() || success.Err() != nil || success.Message() != "" || success.WithPlugin("p") != nil {
		t.Error("nil is not a plain success")
	}
	if st := AsStatus(cause); st.Code() != Error || !errors.Is(st.Err(), cause) || st.Message() != "cause" {
		t.Errorf("AsStatus = %v", st)
	}
	a := NewStatus(Unschedulable, "x", "y")
	for _, other := range []*Status{nil, NewStatus(Pending, "x", "y"), NewStatus(Unschedulable, "x"), a.WithPlugin("p"), AsStatus(cause)} {
		if a.Equal(other) || other.Equal(a) {
			t.Errorf("%v equals %v", a, other)
		}
	}
	if !a.WithPlugin("p").Equal(NewStatus(Unschedulable, "x", "y").WithPlugin("p")) {
		t.Error("equal statuses differ")
	}
	for code, want := range map[Code]bool{Unschedulable: true, UnschedulableAndUnresolvable: true, Pending: true, Error: false, Wait: false, Skip: false} {
		if got := NewStatus(code).IsRejected(); got != want {
			t.Errorf("%s rejected: %t, want %t", code, got, want)
		}
	}
}

func TestNodeInfoAddRemove(t *testing.T) {
	var n NodeInfo
	for _, uid := range []string{"a", "b", "c"} {
		p, err := NewPodInfo(&corev1.Pod{Metadata: &metav1.ObjectMeta{Uid: uid},
			Spec: &corev1.PodSpec{Containers: []*corev1.Container{container(map[string]string{"cpu": "1", "x.io/y": "2"}, nil)}}})
		if err != nil {
			t.Fatal(err)
		}
		n.AddPod(p)
	}
	var copied NodeInfo
	copied.CopyFrom(&n)
	if err := n.RemovePod("b"); err != nil {
		t.Fatal(err)
	}
	if n.Requested.MilliCPU != 2000 || n.Requested.Scalar["x.io/y"] != 4 || len(n.Pods) != 2 {
		t.Errorf("after removal: %+v", n)
	}
	if copied.Requested.Scalar["x.io/y"] != 6 || len(copied.Pods) != 3 {
		t.Error("the copy changed with its original")
	}
	if err := n.RemovePod("b"); err == nil {
		t.Error("removed twice")
	}
}

// TestPodInfoNow: a later state of a pod takes over what was derived only while its generation and labels are the same.
func TestPodInfoNow(t *testing.T) {
	pod := func(generation int64, cpu, app string) *corev1.Pod {
		return &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Uid: "u", Generation: generation, Labels: map[string]string{"app": app}},
			Spec:     &corev1.PodSpec{Containers: []*corev1.Container{container(map[string]string{"cpu": cpu}, nil)}},
		}
	}
	first, err := NewPodInfo(pod(1, "1", "a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		pod   *corev1.Pod
		milli int64
		class bool
	}{
		{"its status", pod(1, "7", "a"), 1000, true}, // not looked at again
		{"its spec", pod(2, "2", "a"), 2000, true},
		{"its labels", pod(1, "1", "b"), 1000, false},
		{"no generation", pod(0, "3", "a"), 3000, true},
	} {
		now, err := first.Now(tc.pod)
		if err != nil {
			t.Fatal(err)
		}
		if now.Pod != tc.pod || now.Request.MilliCPU != tc.milli || (now.Class == first.Class) != tc.class {
			t.Errorf("%s: %+v, want %dm and the same class: %t", tc.name, now, tc.milli, tc.class)
		}
	}
}
