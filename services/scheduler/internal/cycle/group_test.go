package cycle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/clustertest"
)

func within(key string) *schedulingv1.PodGroupSchedulingConstraints {
	return &schedulingv1.PodGroupSchedulingConstraints{Topology: []*schedulingv1.TopologyConstraint{{Key: key}}}
}

// rackNode is a node of so many CPUs in a rack, in none where it is empty.
func rackNode(name, rack string, cpus int) *corev1.Node {
	n := &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
		Spec:     &corev1.NodeSpec{},
		Status:   &corev1.NodeStatus{Allocatable: map[string]string{"cpu": fmt.Sprint(cpus), "memory": "64Gi", "pods": "110"}},
	}
	if rack != "" {
		n.Metadata.Labels["rack"] = rack
	}
	return n
}

// members are pods of so many CPUs.
func members(t testing.TB, group string, cpus ...int) []*framework.PodInfo {
	var out []*framework.PodInfo
	for i, c := range cpus {
		name := fmt.Sprintf("%s-%d", group, i)
		out = append(out, info(t, &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: name},
			Spec: &corev1.PodSpec{
				SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: proto.String(group)},
				Containers: []*corev1.Container{{
					Name: "main", Resources: &corev1.ResourceRequirements{Requests: map[string]string{"cpu": fmt.Sprint(c)}},
				}},
			},
		}))
	}
	return out
}

func inRack(q *framework.Queued) *framework.Queued {
	q.Group.Spec.SchedulingConstraints = within("rack")
	return q
}

// TestPlacements has groups choose among racks: the fullest in which they fit, the first by name of equals, and a message for
// each rack where they fit in none.
func TestPlacements(t *testing.T) {
	w := newWorld(t)
	for _, n := range []*corev1.Node{rackNode("a1", "a", 4), rackNode("a2", "a", 4), rackNode("b1", "b", 4), rackNode("b2", "b", 4), rackNode("c1", "c", 2), rackNode("x1", "", 64)} {
		w.cache.SetNode(n)
	}
	steps := []struct {
		q    *framework.Queued
		want string
	}{
		{inRack(gang("one", 2, 0, members(t, "one", 1, 1)...)), "one-0 → c1\none-1 → c1\n"}, // the most allocated then
		{inRack(gang("two", 3, 0, members(t, "two", 2, 2, 2)...)), "two-0 → a1\ntwo-1 → a2\ntwo-2 → a1\n"},
		{inRack(gang("three", 2, 0, members(t, "three", 2, 2)...)), "three-0 → b1\nthree-1 → b2\n"},
		{inRack(gang("four", 3, 0, members(t, "four", 2, 2, 2)...)),
			"pod group default/four needs 3 pods placed together; 0/3 placements are available: " +
				"rack=b: 2 of 3 pods fit (0/2 nodes are available for pod four-2: 2 Insufficient cpu); " +
				"rack=a: 1 of 3 pods fit (0/2 nodes are available for pod four-1: 2 Insufficient cpu); " +
				"rack=c: 0 of 3 pods fit (0/1 nodes are available for pod four-0: 1 Insufficient cpu)"},
		{inRack(gang("five", 5, 0, members(t, "five", 2, 2, 2, 2, 2)...)),
			"pod group default/five needs 5 pods placed together; 0/3 placements are available: " +
				"rack=b: 2 of 5 pods fit (0/2 nodes are available for pod five-2: 2 Insufficient cpu); " +
				"rack=a: 1 of 5 pods fit (0/2 nodes are available for pod five-1: 2 Insufficient cpu); " +
				"rack=c: 0 of 5 pods fit (0/1 nodes are available for pod five-0: 1 Insufficient cpu); " +
				"even if empty, no placement would hold more than 4: rack=a"},
		{gang("six", 100, 0, members(t, "six", slices.Repeat([]int{1}, 100)...)...),
			"pod group default/six needs 100 pods placed together; 70 fit: 0/6 nodes are available for pod six-70: 6 Insufficient cpu.; " +
				"even if empty, all nodes together would hold no more than 82"},
		// Members of different sizes; as many as fit of those beyond what is needed.
		{inRack(gang("seven", 1, 0, members(t, "seven", 2, 3, 2)...)), "seven-0 → b1\nseven-2 → b2\nseven-1: 0/2 nodes are available: 2 Insufficient cpu.\n"},
		// Members that come later go to the rack where the others are.
		{inRack(gang("two", 1, 3, members(t, "more-of-two", 1)...)), "more-of-two-0 → a2\n"},
		{inRack(gang("two", 3, 4, members(t, "too-many-of-two", 2)...)), "pod group default/two needs 3 pods placed together; 4 scheduled, 0/1 placements are available: " +
			"rack=a: 0 of 1 pods fit (0/2 nodes are available for pod too-many-of-two-0: 2 Insufficient cpu)"},
	}
	for _, s := range steps {
		d := w.decide(t, s.q)
		got := printed(d)
		if i := strings.Index(got, "rejected by"); i >= 0 {
			got = got[:i]
		}
		if d.Message != "" {
			got = d.Message
		}
		if d.Err != nil || got != s.want {
			t.Errorf("group %s:\ngot  %s\nwant %s", s.q.GroupKey, got, s.want)
		}
	}
	if d := w.decide(t, inRack(gang("four", 3, 0, members(t, "four", 2, 2, 2)...))); len(d.Placements) != 3 || d.Placements[0].Message == "" {
		t.Errorf("verdicts on placements: %v", d.Placements)
	}
}

// TestNeverCountsWhatPodsMayUse: room on nodes that no pod of the group can go to is none.
func TestNeverCountsWhatPodsMayUse(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		n := rackNode(fmt.Sprint("n", i), "", 4)
		if i == 0 {
			n.Metadata.Labels["gpu"] = "yes"
		}
		w.cache.SetNode(n)
	}
	choosy := func(n int) *framework.Queued {
		pods := members(t, "g", slices.Repeat([]int{2}, n)...)
		for _, p := range pods {
			p.Pod.Spec.NodeSelector = map[string]string{"gpu": "yes"}
		}
		return gang("g", n, 0, pods...)
	}
	if d := w.decide(t, choosy(2)); len(d.Placed) != 2 {
		t.Fatalf("two do not fit: %s", d.Message)
	}
	const never = "even if empty"
	if d := w.decide(t, choosy(2)); strings.Contains(d.Message, never) {
		t.Errorf("two fit once the node is empty, and it says: %s", d.Message)
	}
	if d := w.decide(t, choosy(3)); !strings.HasSuffix(d.Message, "even if empty, all nodes together would hold no more than 2") {
		t.Errorf("three never fit, and it says: %s", d.Message)
	}
	mixed := choosy(3)
	mixed.Pods[0].Pod.Spec.NodeSelector = nil
	if d := w.decide(t, mixed); strings.Contains(d.Message, never) {
		t.Errorf("it cannot be sure, and says: %s", d.Message)
	}
}

// TestBestPlacementIsFoundEarly compares the search that ends when nothing better can come with one that tries every
// placement.
func TestBestPlacementIsFoundEarly(t *testing.T) {
	ended, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := newTwin(t, rapid.Uint64().Draw(t, "seed"))
		for i := range 12 {
			n := clustertest.Node(t, fmt.Sprint("n", i))
			n.Metadata.Labels["rack"] = rapid.SampledFrom([]string{"r1", "r2", "r3", "r4"}).Draw(t, "rack")
			w.cache.SetNode(n)
		}
		for g := range 4 {
			var pods []*framework.PodInfo
			for i := range rapid.IntRange(1, 5).Draw(t, "pods") {
				pods = append(pods, clustertest.Info(t, clustertest.Pod(clustertest.Shape(t), fmt.Sprintf("g%d-%d", g, i), "")))
			}
			q := inRack(gang(fmt.Sprint("g", g), rapid.IntRange(1, len(pods)).Draw(t, "min"), 0, pods...))
			if err := w.cache.Update(&w.snapshot); err != nil {
				t.Fatal(err)
			}
			d := w.decider
			placements, st := w.fw.RunPlacementGenerate(nil, q, d.snapshot)
			if !st.IsSuccess() {
				t.Fatal(st)
			}
			found := func(s *groupSearch) string {
				if err := s.run(context.Background()); err != nil {
					t.Fatal(err)
				}
				best, err := s.choose()
				if err != nil {
					t.Fatal(err)
				}
				if best == nil {
					return "none"
				}
				return fmt.Sprint(best.Placement.Name, len(best.Assignments))
			}
			early := &groupSearch{d: d, q: q, state: framework.NewCycleState(), placements: placements}
			early.bounds = w.fw.PlacementBounds(early.state, q, placements, d.snapshot)
			every := &groupSearch{d: d, q: q, state: framework.NewCycleState(), placements: placements}
			if got, want := found(early), found(every); got != want {
				t.Fatalf("ended with %s, the best is %s", got, want)
			}
			ended, all = ended+len(early.verdicts), all+len(every.verdicts)
			for _, a := range d.Decide(context.Background(), q, nil).Placed {
				if err := w.cache.Assume(a.Pod, a.Node); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	if ended >= all {
		t.Errorf("%d placements were tried of %d", ended, all)
	}
}

// TestMoreThanCanBeBoundAtOnce leaves the rest of a large group to the next attempt.
func TestMoreThanCanBeBoundAtOnce(t *testing.T) {
	w := newWorld(t)
	for i := range 60 {
		w.cache.SetNode(rackNode(fmt.Sprint("n", i), "", 100))
	}
	d := w.decide(t, gang("large", 2, 0, members(t, "large", slices.Repeat([]int{1}, framework.MaxGroupPods+3)...)...))
	if d.Err != nil || len(d.Placed) != framework.MaxGroupPods || len(d.Failed) != 0 {
		t.Fatalf("placed %d, failed %d, %v", len(d.Placed), len(d.Failed), d.Err)
	}
}
