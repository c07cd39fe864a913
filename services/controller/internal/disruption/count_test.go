package disruption

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
)

var now = time.Unix(2e9, 0).UTC()

func pods(healthy, sick int) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range healthy + sick {
		status := "True"
		if i >= healthy {
			status = "False"
		}
		out = append(out, &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: fmt.Sprintf("p%d", i)},
			Status:   &corev1.PodStatus{Phase: "Running", Conditions: []*corev1.PodCondition{{Type: "Ready", Status: status}}},
		})
	}
	return out
}

func spec(least, most any) *policyv1.PodDisruptionBudgetSpec {
	value := func(v any) *structpb.Value {
		if v == nil {
			return nil
		}
		out, err := structpb.NewValue(v)
		if err != nil {
			panic(err)
		}
		return out
	}
	return &policyv1.PodDisruptionBudgetSpec{MinAvailable: value(least), MaxUnavailable: value(most)}
}

func TestCount(t *testing.T) {
	for _, c := range []struct {
		name                                string
		spec                                *policyv1.PodDisruptionBudgetSpec
		healthy, sick                       int
		scale                               int32
		expected, current, desired, allowed int32
	}{
		{"enough", spec(2, nil), 3, 0, 3, 3, 3, 2, 1},
		{"just enough", spec(3, nil), 3, 0, 3, 3, 3, 3, 0},
		{"one is sick", spec(2, nil), 2, 1, 3, 3, 2, 2, 0},
		{"too few", spec(5, nil), 3, 0, 3, 3, 3, 5, 0},
		{"none needed", spec(0, nil), 3, 0, 3, 3, 3, 0, 3},
		{"no pods", spec(0, nil), 0, 0, 0, 0, 0, 0, 0},
		{"half, rounded up", spec("50%", nil), 5, 0, 5, 5, 5, 3, 2},
		{"half of what is meant to be there", spec("50%", nil), 4, 0, 10, 10, 4, 5, 0},
		{"all", spec("100%", nil), 5, 0, 5, 5, 5, 5, 0},
		{"no part", spec("0%", nil), 5, 0, 5, 5, 5, 0, 5},
		{"one may miss", spec(nil, 1), 5, 0, 5, 5, 5, 4, 1},
		{"one may miss and does", spec(nil, 1), 4, 0, 5, 5, 4, 4, 0},
		{"one may miss and is sick", spec(nil, 1), 4, 1, 5, 5, 4, 4, 0},
		{"more may miss than there are", spec(nil, 9), 5, 0, 5, 5, 5, 0, 5},
		{"a third may miss, rounded up", spec(nil, "34%"), 5, 0, 5, 5, 5, 3, 2},
		{"none may miss", spec(nil, 0), 5, 0, 5, 5, 5, 5, 0},
		{"nothing is said", spec(nil, nil), 5, 0, 5, 0, 5, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &policyv1.PodDisruptionBudget{Metadata: &metav1.ObjectMeta{Generation: 7}, Spec: c.spec}
			s, again, _ := Count(b, pods(c.healthy, c.sick), scales{total: c.scale}, now)
			got := [4]int32{s.GetExpectedPods(), s.GetCurrentHealthy(), s.GetDesiredHealthy(), s.GetDisruptionsAllowed()}
			if want := [4]int32{c.expected, c.current, c.desired, c.allowed}; got != want || s.GetObservedGeneration() != 7 || !again.IsZero() {
				t.Errorf("expected, current, desired, allowed: got %v, want %v (%v)", got, want, s)
			}
			status, reason := "False", "InsufficientPods"
			if c.allowed > 0 {
				status, reason = "True", "SufficientPods"
			}
			if x := s.GetConditions()[0]; x.GetType() != "DisruptionAllowed" || x.GetStatus() != status || x.GetReason() != reason {
				t.Errorf("condition %v", x)
			}
		})
	}
}

// TestCountOfEvictedPods: what was evicted counts as gone, until it is, or two minutes are over.
func TestCountOfEvictedPods(t *testing.T) {
	all := pods(4, 0)
	all[1].Metadata.DeletionTimestamp = timestamppb.New(now)
	b := &policyv1.PodDisruptionBudget{Metadata: &metav1.ObjectMeta{Generation: 1}, Spec: spec(1, nil), Status: &policyv1.PodDisruptionBudgetStatus{
		DisruptedPods: map[string]*timestamppb.Timestamp{
			"p0":   timestamppb.New(now.Add(-time.Minute)),     // still expected to go
			"p1":   timestamppb.New(now.Add(-time.Second)),     // goes
			"p2":   timestamppb.New(now.Add(-2 * time.Minute)), // never went
			"gone": timestamppb.New(now),
		},
	}}
	s, again, lost := Count(b, all, scales{}, now)
	if len(s.GetDisruptedPods()) != 1 || s.GetDisruptedPods()["p0"] == nil {
		t.Errorf("disrupted pods %v", s.GetDisruptedPods())
	}
	if s.GetCurrentHealthy() != 2 || s.GetDisruptionsAllowed() != 1 {
		t.Errorf("p2 and p3 are healthy: %v", s)
	}
	if want := now.Add(time.Minute); !again.Equal(want) {
		t.Errorf("counted again at %s, want %s", again, want)
	}
	if len(lost) != 1 || lost[0].GetMetadata().GetName() != "p2" {
		t.Errorf("lost %v", lost)
	}
}

// TestCountWithoutControllers fails safe, and only where the number of pods meant to be there matters.
func TestCountWithoutControllers(t *testing.T) {
	meant := scales{err: errors.New(`found no controllers for pod "p0"`)}
	b := &policyv1.PodDisruptionBudget{
		Metadata: &metav1.ObjectMeta{Generation: 2}, Spec: spec(nil, 1),
		Status: &policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 4, Conditions: []*metav1.Condition{
			{Type: "DisruptionAllowed", Status: "False", LastTransitionTime: timestamppb.New(time.Unix(1, 0))}, {Type: "Other", Status: "True"},
		}},
	}
	s, _, _ := Count(b, pods(3, 0), meant, now)
	if s.GetDisruptionsAllowed() != 0 || s.GetObservedGeneration() != 2 || len(s.GetConditions()) != 2 {
		t.Errorf("status %v", s)
	}
	c := s.GetConditions()[1]
	if c.GetReason() != "SyncFailed" || c.GetMessage() != `found no controllers for pod "p0"` || c.GetLastTransitionTime().GetSeconds() != 1 {
		t.Errorf("condition %v", c)
	}
	b.Spec = spec(2, nil)
	if s, _, _ := Count(b, pods(3, 0), meant, now); s.GetDisruptionsAllowed() != 1 {
		t.Errorf("a number needs no controllers: %v", s)
	}
}
