package defaultpreemption_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

// TestGroupIsHeldBack while its victims are being taken away, until the last one's turn; it is tried again where one cannot be.
func TestGroupIsHeldBack(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := &evictor{gone: make(chan string), fails: map[string]bool{"a": fails}}
			w := newWorld(t, []*corev1.Node{node("n")}, []*framework.PodInfo{
				shape{name: "a", cpu: 2}.pod(t, "n"), shape{name: "b", cpu: 2}.pod(t, "n"),
			}, 0, e)
			member := shape{name: "new", cpu: 4, priority: 9}.pod(t, "")
			group := &framework.Queued{GroupKey: framework.GroupKey{Namespace: "one", Name: "g"}, Pods: []*framework.PodInfo{member}}
			fits := func() bool { return len(w.snapshot.Node("n").Pods) == 0 }
			attempt := framework.GroupAttempt{
				Placements: []*framework.Placement{{}},
				Try: func(p *framework.Placement) (framework.Placed, *framework.Status) {
					if !fits() {
						return framework.Placed{}, framework.NewStatus(framework.Unschedulable)
					}
					return framework.Placed{Placement: p, Assignments: []framework.Assignment{{Pod: member, Node: "n"}}}, nil
				},
				Judge: func(*framework.Placement, *framework.PodInfo, *framework.NodeInfo) *framework.Status {
					if !fits() {
						return framework.NewStatus(framework.Unschedulable)
					}
					return nil
				},
			}
			result, st := w.plugin.PodGroupPostFilter(context.Background(), framework.NewCycleState(), group, w.snapshot, attempt)
			if !st.IsSuccess() || len(result.Victims) != 2 || len(result.Nominated) != 1 {
				t.Fatalf("got %+v, %v", result, st)
			}
			if !fails {
				synctest.Wait() // the first eviction blocks
				if w.plugin.PreEnqueueGroup(group) == nil {
					t.Error("the group may be tried while its victims are being taken away")
				}
				<-e.gone
			}
			synctest.Wait()
			if st := w.plugin.PreEnqueueGroup(group); st != nil {
				t.Errorf("the group is held back still: %v", st)
			}
			if !fails {
				<-e.gone
				synctest.Wait()
			}
			if got := slices.Equal(w.activated, []string{"new"}); got != fails {
				t.Errorf("activated %v; an eviction failed: %v", w.activated, fails)
			}
		})
	}
}
