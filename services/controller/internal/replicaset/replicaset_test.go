package replicaset

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// testPod is a Running pod on node n1 that has been ready for an hour, changed by the functions given.
func testPod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name, Uid: name, CreationTimestamp: timestamppb.New(now.Add(-2 * time.Hour))},
		Spec:     &corev1.PodSpec{NodeName: proto.String("n1")},
		Status:   &corev1.PodStatus{Phase: "Running"},
	}
	ready(time.Hour)(p)
	for _, change := range changes {
		change(p)
	}
	return p
}

func ready(ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []*corev1.PodCondition{{Type: "Ready", Status: "True", LastTransitionTime: timestamppb.New(now.Add(-ago))}}
	}
}

func notReady(p *corev1.Pod) { p.Status.Conditions = nil }
func phase(s string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = s }
}
func node(s string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = proto.String(s) }
}
func cost(s string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Metadata.Annotations = map[string]string{deletionCost: s} }
}
func restarted(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses = []*corev1.ContainerStatus{{RestartCount: n}} }
}
func age(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Metadata.CreationTimestamp = timestamppb.New(now.Add(-d)) }
}

func TestTheFirstRuleThatTellsTwoPodsApartChoosesTheVictim(t *testing.T) {
	for _, c := range []struct {
		rule           string
		victim, spared *corev1.Pod
		others         []*corev1.Pod
	}{
		{"without a node", testPod("z", func(p *corev1.Pod) { p.Spec.NodeName = nil }), testPod("a", phase("Pending"), notReady), nil},
		{"Pending before Unknown", testPod("z", phase("Pending")), testPod("a", phase("Unknown"), notReady), nil},
		{"Unknown before Running", testPod("z", phase("Unknown")), testPod("a", notReady), nil},
		{"not ready", testPod("z", notReady), testPod("a", cost("-10")), nil},
		{"lower cost", testPod("z", cost("-1")), testPod("a", ready(time.Second)), nil},
		{"a cost that is no number is 0", testPod("z", cost("-1")), testPod("a", cost("cheap")), nil},
		{"more siblings", testPod("z"), testPod("a", node("n2"), ready(time.Second)), []*corev1.Pod{testPod("b", cost("100"))}},
		{"ready more recently", testPod("z", ready(10*time.Second)), testPod("a", restarted(5)), nil},
		{"ready times of one magnitude are one", testPod("z", ready(63*time.Minute), restarted(1)), testPod("a", ready(60*time.Minute)), nil},
		{"more restarts", testPod("z", restarted(2)), testPod("a", restarted(1), age(time.Hour)), nil},
		{"newer", testPod("z", age(time.Hour)), testPod("a", age(9*time.Hour)), nil},
		{"by UID", testPod("a"), testPod("b"), nil},
	} {
		t.Run(c.rule, func(t *testing.T) {
			pods := append([]*corev1.Pod{c.spared, c.victim}, c.others...)
			if got := Victims(pods, 1, now); got[0] != c.victim {
				t.Errorf("victim %s, want %s", got[0].GetMetadata().GetName(), c.victim.GetMetadata().GetName())
			}
			slices.Reverse(pods)
			if got := Victims(pods, 1, now); got[0] != c.victim {
				t.Errorf("in the other order: victim %s", got[0].GetMetadata().GetName())
			}
		})
	}
}

func TestVictimsDoNotDependOnTheOrderGiven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pods []*corev1.Pod
		for i := range rapid.IntRange(1, 8).Draw(t, "pods") {
			p := testPod(fmt.Sprint(i), node(rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node")),
				phase(rapid.SampledFrom([]string{"Pending", "Running"}).Draw(t, "phase")),
				ready(time.Duration(rapid.IntRange(0, 9).Draw(t, "ready"))*time.Minute), restarted(rapid.Int32Range(0, 2).Draw(t, "restarts")))
			pods = append(pods, p)
		}
		n := rapid.IntRange(0, len(pods)).Draw(t, "n")
		first := Victims(pods, n, now)
		shuffled := rapid.Permutation(pods).Draw(t, "order")
		if !slices.Equal(first, Victims(shuffled, n, now)) {
			t.Fatal("another order of the same pods gives other victims")
		}
	})
}

func TestSlowStartStopsAfterTheFirstBatchThatFails(t *testing.T) {
	for _, c := range []struct{ n, failsFrom, calls int }{
		{10, 1, 1}, {10, 2, 3}, {10, 4, 7}, {10, 100, 10}, {0, 1, 0},
	} {
		var calls atomic.Int64
		err := slowStart(c.n, func() error {
			if int(calls.Add(1)) >= c.failsFrom {
				return errors.New("quota")
			}
			return nil
		})
		if int(calls.Load()) != c.calls || (err != nil) != (c.failsFrom <= c.calls && c.calls > 0) {
			t.Errorf("%+v: %d calls, %v", c, calls.Load(), err)
		}
	}
}

func TestStatusCountsAndWaits(t *testing.T) {
	rs := &appsv1.ReplicaSet{
		Metadata: &metav1.ObjectMeta{Generation: 3},
		Spec:     &appsv1.ReplicaSetSpec{MinReadySeconds: proto.Int32(30), Template: &corev1.PodTemplateSpec{Metadata: &metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}},
	}
	labelled := func(p *corev1.Pod) { p.Metadata.Labels = map[string]string{"a": "b"} }
	pods := []*corev1.Pod{
		testPod("available", labelled),
		testPod("soon", ready(20*time.Second)),
		testPod("later", ready(5*time.Second)),
		testPod("not ready", notReady),
		testPod("failed", phase("Failed")),
		testPod("going", func(p *corev1.Pod) { p.Metadata.DeletionTimestamp = timestamppb.New(now) }),
	}
	got, wait := Status(rs, pods, nil, now)
	want := &appsv1.ReplicaSetStatus{
		Replicas: 4, FullyLabeledReplicas: 1, ReadyReplicas: 3, AvailableReplicas: 1,
		TerminatingReplicas: proto.Int32(1), ObservedGeneration: 3,
	}
	if !proto.Equal(got, want) || wait != 10*time.Second {
		t.Errorf("status %v in %s, want %v in 10s", got, wait, want)
	}
	failing, _ := Status(rs, nil, errors.New("no quota"), now)
	rs.Status = failing
	if c := failing.GetConditions(); len(c) != 1 || c[0].GetType() != "ReplicaFailure" || c[0].GetMessage() != "no quota" {
		t.Errorf("conditions %v", c)
	}
	if again, _ := Status(rs, nil, errors.New("no quota"), now.Add(time.Hour)); !proto.Equal(again, failing) {
		t.Errorf("the same failure later: %v, want no change", again)
	}
	if healed, _ := Status(rs, nil, nil, now); len(healed.GetConditions()) != 0 {
		t.Errorf("after it healed: %v", healed.GetConditions())
	}
}
