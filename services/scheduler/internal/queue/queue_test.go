package queue

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/gangscheduling"
	"trireme.dev/services/scheduler/plugins/queuesort"
	"trireme.dev/services/scheduler/plugins/schedulinggates"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pod(name, group string, change ...func(*corev1.Pod)) *framework.PodInfo {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: "uid-" + name},
		Spec:     &corev1.PodSpec{},
	}
	if group != "" {
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: proto.String(group)}
	}
	for _, c := range change {
		c(p)
	}
	info, err := framework.NewPodInfo(p)
	if err != nil {
		panic(err)
	}
	return info
}

func priority(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Priority = proto.Int32(n) }
}

func gates(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, n := range names {
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, &corev1.PodSchedulingGate{Name: n})
		}
	}
}

func gang(name string, minCount int32) *schedulingv1.PodGroup {
	return &schedulingv1.PodGroup{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: &schedulingv1.PodGroupSpec{SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{
			Gang: &schedulingv1.GangSchedulingPolicy{MinCount: minCount},
		}},
	}
}

func basic(name string) *schedulingv1.PodGroup {
	return &schedulingv1.PodGroup{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: &schedulingv1.PodGroupSpec{SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{
			Basic: &schedulingv1.BasicSchedulingPolicy{},
		}},
	}
}

var nodeAdded = framework.Change{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add}}

// newQueue returns a queue with the real gates and two plugins that reject: Fit, which a new node helps, and Outside,
// whose work a new label on a node ends.
func newQueue(change func(*Config)) *Queue {
	cfg := Config{
		Less: queuesort.Plugin{}.Less,
		PreEnqueue: func(p *framework.PodInfo) *framework.Status {
			return schedulinggates.Plugin{}.PreEnqueue(p).WithPlugin(schedulinggates.Name)
		},
		PreEnqueueGroup: func(g *framework.Queued) *framework.Status {
			return gangscheduling.Plugin{}.PreEnqueueGroup(g).WithPlugin(gangscheduling.Name)
		},
		Events: map[string][]framework.EventHint{
			"Fit":                {{Event: nodeAdded.Event}},
			"Outside":            {{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.UpdateNodeLabel}}},
			gangscheduling.Name:  gangscheduling.Plugin{}.EventsToRegister(),
			schedulinggates.Name: schedulinggates.Plugin{}.EventsToRegister(),
		},
		Scheduled: func(framework.GroupKey) int { return 0 },
		OnGated:   func(Gated) {},
	}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

// pop returns the next entity's name, "" where none is ready now.
func pop(q *Queue) (*framework.Queued, string) {
	p := q.Pop()
	if p == nil {
		return nil, ""
	}
	return p, p.Name()
}

// next waits for the next entity.
func next(ctx context.Context, q *Queue) *framework.Queued {
	for {
		if p := q.Pop(); p != nil {
			return p
		}
		q.Wait(ctx)
	}
}

func names(q *Queue) (got []string) {
	for {
		p, name := pop(q)
		if p == nil {
			return got
		}
		got = append(got, strings.TrimPrefix(name, "default/"))
	}
}

func TestOrder(t *testing.T) {
	q := newQueue(nil)
	begin := time.Now()
	q.Add(pod("late", ""), begin.Add(2*time.Second))
	q.Add(pod("early", ""), begin)
	q.Add(pod("high", "", priority(10)), begin.Add(3*time.Second))
	q.Add(pod("same-b", ""), begin.Add(time.Second))
	q.Add(pod("same-a", ""), begin.Add(time.Second))
	if diff := cmp.Diff([]string{"high", "early", "same-a", "same-b", "late"}, names(q)); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestPause(t *testing.T) {
	q := newQueue(nil)
	var got []time.Duration
	for n := range 8 {
		got = append(got, q.pause(n)/time.Second)
	}
	if diff := cmp.Diff([]time.Duration{0, 1, 2, 4, 8, 10, 10, 10}, got); diff != "" {
		t.Errorf("pauses after n attempts (-want +got):\n%s", diff)
	}
}

func TestRejectedWaitsForItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(nil)
		q.Add(pod("a", ""), time.Now())
		a, _ := pop(q)
		q.Done(a, Outcome{Rejected: true, Plugins: []string{"Fit"}})
		q.Move(framework.Change{Event: framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete}}, nil)
		if _, name := pop(q); name != "" {
			t.Fatalf("%s came back for an event that its plugin did not register", name)
		}
		q.Move(nodeAdded, nil)
		if active, backoff, _ := q.Len(); active != 0 || backoff != 1 {
			t.Fatalf("active %d, backoff %d, want it in backoff", active, backoff)
		}
		// Nothing else is ready, so it need not wait.
		if _, name := pop(q); name != "default/a" {
			t.Fatalf("popped %q, want the pod out of backoff", name)
		}
	})
}

func TestBackoffYieldsToActiveAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := newQueue(nil)
		done := make(chan error)
		go func() { done <- q.Run(ctx) }()
		q.Add(pod("a", ""), time.Now())
		a, _ := pop(q)
		q.Done(a, Outcome{Rejected: true, Plugins: []string{"Fit"}})
		q.Move(nodeAdded, nil)
		q.Add(pod("b", ""), time.Now())
		b, name := pop(q)
		if name != "default/b" {
			t.Fatalf("popped %q, want b, which is not in backoff", name)
		}
		q.Done(b, Outcome{Scheduled: []string{"uid-b"}})
		time.Sleep(time.Second)
		synctest.Wait()
		if active, _, _ := q.Len(); active != 1 {
			t.Errorf("active = %d after the backoff, want 1", active)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestErrorWaitsOutItsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := newQueue(nil)
		done := make(chan error)
		go func() { done <- q.Run(ctx) }()
		q.Add(pod("a", ""), time.Now())
		a, _ := pop(q)
		q.Done(a, Outcome{Failed: true})
		for i, want := range []int{1, 2, 4, 8, 10, 10} {
			begin := time.Now()
			q.Move(nodeAdded, nil) // no event shortens an error's backoff
			a := next(ctx, q)
			if got := time.Since(begin); got != time.Duration(want)*time.Second {
				t.Errorf("attempt %d came after %s, want %ds", i+2, got, want)
			}
			q.Done(a, Outcome{Failed: true})
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestEventInFlight(t *testing.T) {
	for _, tc := range []struct {
		name    string
		outcome Outcome
		except  bool
		active  int
		backoff int
	}{
		{"queue", Outcome{Rejected: true, Plugins: []string{"Fit"}}, false, 0, 1},
		{"pending goes straight on", Outcome{Rejected: true, Plugins: []string{"Fit"}, Pending: []string{"Fit"}}, false, 1, 0},
		{"not registered", Outcome{Rejected: true, Plugins: []string{"Outside"}}, false, 0, 0},
		{"its own doing", Outcome{Rejected: true, Plugins: []string{"Fit"}}, true, 0, 0},
		{"no plugin: time", Outcome{Rejected: true}, false, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(nil)
				q.Add(pod("a", ""), time.Now())
				a, _ := pop(q)
				var except *framework.Queued
				if tc.except {
					except = a
				}
				q.Move(nodeAdded, except)
				q.Done(a, tc.outcome)
				if active, backoff, _ := q.Len(); active != tc.active || backoff != tc.backoff {
					t.Errorf("active %d, backoff %d, want %d, %d", active, backoff, tc.active, tc.backoff)
				}
				if q.log.Len() != 0 {
					t.Errorf("%d events kept with nothing in flight", q.log.Len())
				}
			})
		})
	}
}

func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := newQueue(nil)
		done := make(chan error)
		go func() { done <- q.Run(ctx) }()
		q.Add(pod("a", ""), time.Now())
		a, _ := pop(q)
		begin := time.Now()
		q.Done(a, Outcome{Rejected: true, Plugins: []string{"Fit"}})
		next(ctx, q)
		if got := time.Since(begin); got < 5*time.Minute || got > 5*time.Minute+30*time.Second {
			t.Errorf("flushed after %s, want 5m to 5m30s", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestGangWaitsForItsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var said []string
		q := newQueue(func(c *Config) {
			c.OnGated = func(g Gated) { said = append(said, fmt.Sprintf("%d: %s", len(g.Pods), g.Pods[0].Status.Message())) }
		})
		done := make(chan error)
		go func() { done <- q.Run(ctx) }()
		q.Add(pod("g-0", "g"), time.Now())
		time.Sleep(2 * time.Second)
		q.SetGroup(gang("g", 3))
		q.Add(pod("g-1", "g"), time.Now())
		time.Sleep(2 * time.Second)
		if _, name := pop(q); name != "" {
			t.Fatalf("popped %s with 2 of 3 members", name)
		}
		q.Add(pod("g-2", "g"), time.Now())
		g, name := pop(q)
		if name != "default/g" || len(g.Pods) != 3 {
			t.Fatalf("popped %q with %d pods, want the gang of 3", name, len(g.Pods))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		want := []string{
			"1: waiting for pod group default/g to appear",
			"2: waiting for 1 more pod of pod group default/g, 2 of 3 seen",
		}
		if diff := cmp.Diff(want, said); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
	})
}

func TestGangLosesMember(t *testing.T) {
	q := newQueue(nil)
	q.SetGroup(gang("g", 2))
	q.Add(pod("g-0", "g"), time.Now())
	q.Add(pod("g-1", "g"), time.Now())
	q.Delete("uid-g-0")
	if _, name := pop(q); name != "" {
		t.Errorf("popped %s with 1 of 2 members", name)
	}
	// A member that is held by its own gate does not count either.
	q.Add(pod("g-2", "g", gates("example.com/x")), time.Now())
	if _, name := pop(q); name != "" {
		t.Errorf("popped %s with 1 of 2 members and one gated", name)
	}
	q.Update(pod("g-2", "g"))
	if p, _ := pop(q); p == nil || len(p.Pods) != 2 {
		t.Errorf("popped %v, want the gang of 2", p)
	}
}

func TestMemberThatComesInFlight(t *testing.T) {
	q := newQueue(func(c *Config) {
		c.Scheduled = func(framework.GroupKey) int { return 2 } // as once the first two are bound
	})
	q.SetGroup(gang("g", 2))
	q.Add(pod("g-0", "g"), time.Now())
	q.Add(pod("g-1", "g"), time.Now())
	g, _ := pop(q)
	q.Add(pod("g-2", "g"), time.Now())
	if _, name := pop(q); name != "" {
		t.Fatalf("popped %s while the gang is in flight", name)
	}
	q.Done(g, Outcome{Scheduled: []string{"uid-g-0", "uid-g-1"}})
	p, _ := pop(q)
	if p == nil || len(p.Pods) != 1 || p.Pods[0].Name() != "default/g-2" {
		t.Errorf("popped %v, want the member that came meanwhile", p)
	}
}

func TestBasicGroupIsLonePods(t *testing.T) {
	q := newQueue(nil)
	q.Add(pod("p-0", "g"), time.Now())
	q.Add(pod("p-1", "g"), time.Now())
	if _, name := pop(q); name != "" {
		t.Fatalf("popped %s before its group exists", name)
	}
	q.SetGroup(basic("g"))
	if diff := cmp.Diff([]string{"p-0", "p-1"}, names(q)); diff != "" {
		t.Errorf("popped (-want +got):\n%s", diff)
	}
}

func TestGroupDeletedHoldsMembers(t *testing.T) {
	q := newQueue(nil)
	q.SetGroup(basic("g"))
	q.Add(pod("p-0", "g"), time.Now())
	p, _ := pop(q)
	q.DeleteGroup(framework.GroupKey{Namespace: "default", Name: "g"})
	q.Done(p, Outcome{Rejected: true, Plugins: []string{"Fit"}})
	q.Move(nodeAdded, nil)
	if _, name := pop(q); name != "" {
		t.Errorf("popped %s, whose group is gone", name)
	}
}

func TestPodThatIsHeldAtAStatusUpdateIsNotHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held *framework.Status
		q := newQueue(func(c *Config) { c.PreEnqueue = func(*framework.PodInfo) *framework.Status { return held } })
		q.Add(pod("a", ""), time.Now())
		held = framework.NewStatus(framework.UnschedulableAndUnresolvable, "not now")
		q.Update(pod("a", "", func(p *corev1.Pod) { p.Status = &corev1.PodStatus{Phase: "Pending"} }))
		if p := q.Pop(); p != nil {
			t.Errorf("popped with %d pods", len(p.Pods))
		}
	})
}

func TestStatusUpdateWakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(nil)
		q.Add(pod("a", ""), time.Now())
		a, _ := pop(q)
		q.Done(a, Outcome{Rejected: true, Plugins: []string{"Fit"}})
		q.Update(pod("a", "", func(p *corev1.Pod) {
			p.Status = &corev1.PodStatus{Conditions: []*corev1.PodCondition{{Type: "PodScheduled", Status: "False"}}}
		}))
		if active, backoff, pool := q.Len(); active+backoff != 0 || pool != 1 {
			t.Errorf("active %d, backoff %d, pool %d, want it to stay in the pool", active, backoff, pool)
		}
	})
}

// TestUnschedulableNamesProfiles: a pod counts for the profile that it names.
func TestUnschedulableNamesProfiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(nil)
		names := func(profile string) func(*corev1.Pod) {
			return func(p *corev1.Pod) { p.Spec.SchedulerName = proto.String(profile) }
		}
		for _, p := range []*framework.PodInfo{pod("a", "", names("one")), pod("b", "", names("two")), pod("c", "", names("two"))} {
			q.Add(p, time.Now())
			popped, _ := pop(q)
			q.Done(popped, Outcome{Rejected: true, Plugins: []string{"Fit", "Outside"}})
		}
		q.Add(pod("gated", "", names("two"), func(p *corev1.Pod) { p.Spec.SchedulingGates = []*corev1.PodSchedulingGate{{Name: "g"}} }), time.Now())
		want := map[Refusal]int{
			{"Fit", "one"}: 1, {"Outside", "one"}: 1, {"Fit", "two"}: 2, {"Outside", "two"}: 2, {schedulinggates.Name, "two"}: 1,
		}
		if got := q.Unschedulable(); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
