package explain

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cycle"
)

func TestPredict(t *testing.T) {
	type end struct {
		cpu int64
		at  int64
	}
	for _, c := range []struct {
		name  string
		nodes [][]end // what ends, with what it frees
		need  int64
		node  int
		at    int64
		ok    bool
	}{
		{"nothing ends", [][]end{{}, nil}, 1, 0, 0, false},
		{"one ends in time", [][]end{{{2, 50}}}, 2, 0, 50, true},
		{"the earlier of two nodes", [][]end{{{2, 50}}, {{2, 40}}}, 2, 1, 40, true},
		{"two must end", [][]end{{{1, 90}, {1, 20}}, {{2, 100}}}, 2, 0, 90, true},
		{"enough never ends", [][]end{{{1, 10}, {1, 20}}}, 3, 0, 0, false},
		{"among equals the first", [][]end{{{2, 30}}, {{2, 30}}}, 2, 0, 30, true},
		{"at the same moment", [][]end{{{1, 30}, {1, 30}}}, 2, 0, 30, true},
		{"a deadline that has passed", [][]end{{{2, -5}}}, 2, 0, -5, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var nodes [][]ending
			for _, n := range c.nodes {
				var ends []ending
				for _, e := range n {
					ends = append(ends, ending{&framework.PodInfo{Request: framework.Resource{MilliCPU: e.cpu}}, time.Unix(e.at, 0)})
				}
				nodes = append(nodes, ends)
			}
			node, at, ok := predict(nodes, func(_ int, gone []*framework.PodInfo) bool {
				var free int64
				for _, p := range gone {
					free += p.Request.MilliCPU
				}
				return free >= c.need
			})
			if ok != c.ok || ok && (node != c.node || at.Unix() != c.at) {
				t.Errorf("node %d at %d (%t), want node %d at %d (%t)", node, at.Unix(), ok, c.node, c.at, c.ok)
			}
		})
	}
}

func TestEndOf(t *testing.T) {
	pod := func(start *timestamppb.Timestamp, limit *int64) *corev1.Pod {
		return &corev1.Pod{Spec: &corev1.PodSpec{ActiveDeadlineSeconds: limit}, Status: &corev1.PodStatus{StartTime: start}}
	}
	start := timestamppb.New(time.Unix(100, 0))
	if at, ok := endOf(pod(start, proto.Int64(30))); !ok || at.Unix() != 130 {
		t.Errorf("ends at %v, %t", at, ok)
	}
	if _, ok := endOf(pod(start, nil)); ok {
		t.Error("ends without a deadline")
	}
	if _, ok := endOf(pod(nil, proto.Int64(30))); ok {
		t.Error("ends without having begun")
	}
}

func TestShortage(t *testing.T) {
	res := func(cpu, gpu int64) *framework.Resource {
		return &framework.Resource{MilliCPU: cpu, AllowedPods: 2, Scalar: map[string]int64{"gpu": gpu}}
	}
	want := &framework.Resource{MilliCPU: 1000, Scalar: map[string]int64{"gpu": 4}}
	for _, c := range []struct {
		name  string
		nodes []room
		want  string
	}{
		{"none", nil, "<nil>"},
		{"nothing lacks", []room{{"a", res(8000, 8), res(0, 0), 0}}, "<nil>"},
		{"least", []room{{"a", res(8000, 8), res(0, 8), 0}, {"b", res(8000, 8), res(0, 5), 0}}, "b [{gpu 4 3 8}] never false pods false"},
		{"one that could rather than one that is too small", []room{{"a", res(8000, 3), res(0, 0), 0}, {"b", res(8000, 8), res(0, 8), 0}},
			"b [{gpu 4 0 8}] never false pods false"},
		{"the largest of those that are too small", []room{{"a", res(8000, 2), res(0, 0), 0}, {"b", res(8000, 3), res(0, 0), 0}},
			"b [{gpu 4 3 3}] never true pods false"},
		{"two resources", []room{{"a", res(8000, 8), res(7500, 8), 0}}, "a [{cpu 1000 500 8000} {gpu 4 0 8}] never false pods false"},
		{"pods", []room{{"a", res(8000, 8), res(0, 0), 2}}, "a [] never false pods true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, got := shortageOf(want, c.nodes), "<nil>"
			if s != nil {
				got = fmt.Sprintf("%s %v never %t pods %t", s.node, s.lacks, s.never, s.podsOnly)
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	a := NewAttempts()
	lone := func(uid string) *framework.Queued {
		return &framework.Queued{Pods: []*framework.PodInfo{{Pod: &corev1.Pod{Metadata: &metav1.ObjectMeta{Uid: uid}}}}}
	}
	failed := func(q *framework.Queued, n int) {
		c := *q
		c.Attempts = n
		a.Ended(cycle.Attempt{Queued: &c, Decision: cycle.Decision{Failed: []cycle.Failure{{Pod: q.Pods[0], Message: fmt.Sprint(n)}}}})
	}
	p := lone("p")
	for n := 1; n <= 8; n++ {
		failed(p, n)
	}
	var numbers []int
	for _, t := range a.of(p, "p") {
		numbers = append(numbers, t.number)
	}
	if got := fmt.Sprint(numbers); got != "[8 7 6 5 4]" {
		t.Errorf("remembers %s", got)
	}
	for i := range maxEntities {
		failed(lone(fmt.Sprint(i)), 1)
	}
	if a.of(p, "p") != nil || len(a.entities) != maxEntities || a.order.Len() != maxEntities {
		t.Errorf("%d are remembered, want %d, without the one that was tried first", len(a.entities), maxEntities)
	}
	a.Forget("7")
	a.Ended(cycle.Attempt{Queued: lone("8"), Decision: cycle.Decision{Placed: []framework.Assignment{{}}}})
	if a.of(p, "7") != nil || a.of(p, "8") != nil {
		t.Error("what is gone or placed is remembered")
	}
	g := &framework.Queued{GroupKey: framework.GroupKey{Namespace: "d", Name: "g"}, Pods: p.Pods}
	failed(g, 1)
	if len(a.of(g, "other")) != 1 {
		t.Error("a gang's attempt is not that of all members")
	}
	a.ForgetGroup(g.GroupKey)
	if a.of(g, "other") != nil {
		t.Error("a gang that is gone is remembered")
	}
}
