package cycle

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cache"
	"trireme.dev/services/scheduler/internal/runtime"
	"trireme.dev/services/scheduler/plugins"
	"trireme.dev/services/scheduler/plugins/plugintest"
)

// running is a pod on a node.
type running struct {
	name, node string
	cpus       int
	priority   int32
	start      int64
	group      string
	guarded    bool // by the budget
	going      bool // preempted already
}

func (r running) info(t testing.TB) *framework.PodInfo {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: r.name, Uid: r.name, Labels: map[string]string{}},
		Spec: &corev1.PodSpec{
			NodeName: proto.String(r.node), Priority: proto.Int32(r.priority),
			Containers: []*corev1.Container{{
				Name: "main", Resources: &corev1.ResourceRequirements{Requests: map[string]string{"cpu": fmt.Sprint(r.cpus)}},
			}},
		},
		Status: &corev1.PodStatus{StartTime: &timestamppb.Timestamp{Seconds: r.start}},
	}
	if r.group != "" {
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: proto.String(r.group)}
	}
	if r.guarded {
		p.Metadata.Labels["guarded"] = "yes"
	}
	if r.going {
		p.Metadata.DeletionTimestamp = &timestamppb.Timestamp{Seconds: 1}
		p.Status.Conditions = []*corev1.PodCondition{{Type: framework.ConditionDisruptionTarget, Status: "True", Reason: framework.ReasonPreemptionByScheduler}}
	}
	return info(t, p)
}

// victimGroup is a group whose pods are on nodes.
func victimGroup(name string, minCount int32, whole bool, priority *int32) *schedulingv1.PodGroup {
	g := &schedulingv1.PodGroup{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: &schedulingv1.PodGroupSpec{
			Priority:         priority,
			SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{Gang: &schedulingv1.GangSchedulingPolicy{MinCount: minCount}},
			DisruptionMode:   &schedulingv1.DisruptionMode{Single: &schedulingv1.SingleDisruptionMode{}},
		},
	}
	if whole {
		g.Spec.DisruptionMode = &schedulingv1.DisruptionMode{All: &schedulingv1.AllDisruptionMode{}}
	}
	return g
}

// fullWorld is a cluster in which room has to be made.
type fullWorld struct {
	*world
	fw *runtime.Framework
}

func newFullWorld(t testing.TB, nodes []*corev1.Node, pods []running, groups []*schedulingv1.PodGroup, allowed int32) *fullWorld {
	budget := &policyv1.PodDisruptionBudget{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "b", Uid: "b"},
		Spec:     &policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"guarded": "yes"}}},
		Status:   &policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}
	fw, err := runtime.New(plugins.Default("default-scheduler"), runtime.Deps{Objects: map[string]any{
		"PodGroup":            plugintest.List[*schedulingv1.PodGroup](groups),
		"PodDisruptionBudget": plugintest.List[*policyv1.PodDisruptionBudget]{budget},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w := &fullWorld{&world{cache: cache.New(slog.New(slog.DiscardHandler)), on: map[string][]*framework.PodInfo{}}, fw}
	w.decider = NewDecider(fw, &w.snapshot, 0)
	for _, n := range nodes {
		w.cache.SetNode(n)
	}
	for _, p := range pods {
		w.cache.AddPod(p.info(t))
	}
	return w
}

// try runs one attempt that leaves no trace.
func (w *fullWorld) try(t testing.TB, q *framework.Queued) Decision {
	if err := w.cache.Update(&w.snapshot); err != nil {
		t.Fatal(err)
	}
	before := traces(&w.snapshot.Snapshot)
	d := w.decider.Decide(t.Context(), q, nil)
	if after := traces(&w.snapshot.Snapshot); after != before {
		t.Fatalf("the attempt left a trace:\n%s\nwas\n%s", after, before)
	}
	if d.Err != nil {
		t.Fatal(d.Err)
	}
	return d
}

// traces is all that an attempt may not leave changed.
func traces(s *framework.Snapshot) string {
	var b strings.Builder
	c := s.Columns()
	groups := map[framework.GroupKey]bool{}
	for i, n := range s.Nodes() {
		fmt.Fprintf(&b, "%s cpu %d %d pods %d:", n.Name(), n.Requested.MilliCPU, c.Requested[framework.CPU][i], c.Pods[i])
		for _, p := range n.Pods {
			fmt.Fprintf(&b, " %s", p.Name())
			if key, ok := p.Group(); ok {
				groups[key] = true
			}
		}
		b.WriteString("\n")
	}
	var members []string
	for key := range groups {
		for _, m := range s.Members(key) {
			members = append(members, fmt.Sprintf("%s: %s on %s\n", key, m.Pod.Name(), m.Node.Name()))
		}
	}
	slices.Sort(members)
	fmt.Fprint(&b, members, len(s.Positions()))
	return b.String()
}

func victimNames(d Decision) string {
	var out []string
	for _, v := range d.Victims {
		out = append(out, v.Pod.Pod.GetMetadata().GetName())
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func nominated(d Decision) (n int) {
	for _, f := range d.Failed {
		if f.NominatedNode != "" {
			n++
		}
	}
	return n
}

// incoming is a gang of that priority with members of so many CPUs.
func incoming(t testing.TB, minCount int, priority int32, cpus ...int) *framework.Queued {
	pods := members(t, "new", cpus...)
	for i, p := range pods {
		pod := proto.CloneOf(p.Pod)
		pod.Spec.Priority = proto.Int32(priority)
		pods[i] = info(t, pod)
	}
	return gang("new", minCount, 0, pods...)
}

func TestRoomForGroup(t *testing.T) {
	two := []*corev1.Node{rackNode("n1", "a", 4), rackNode("n2", "b", 4)}
	racks := []*corev1.Node{rackNode("a1", "a", 4), rackNode("a2", "a", 4), rackNode("b1", "b", 4), rackNode("b2", "b", 4)}
	for _, tc := range []struct {
		name    string
		nodes   []*corev1.Node
		pods    []running
		groups  []*schedulingv1.PodGroup
		allowed int32
		gang    *framework.Queued
		// victims, or the end of the message where there are none; nominated pods of the gang.
		victims, message string
		nominated        int
	}{
		{
			name: "what is free is used, and the newer pod goes", nodes: two,
			pods: []running{{name: "old", node: "n1", cpus: 2, start: 1}, {name: "new", node: "n2", cpus: 2, start: 2}, {name: "other", node: "n2", cpus: 2, start: 1}},
			gang: incoming(t, 2, 9, 2, 2), victims: "new", nominated: 2,
		},
		{
			name: "lower priority first", nodes: two,
			pods: []running{{name: "a", node: "n1", cpus: 4, priority: 3}, {name: "b", node: "n2", cpus: 4, priority: 2}},
			gang: incoming(t, 1, 9, 4), victims: "b", nominated: 1,
		},
		{
			name: "nobody is lower", nodes: two,
			pods: []running{{name: "a", node: "n1", cpus: 4, priority: 9}, {name: "b", node: "n2", cpus: 4, priority: 9}},
			gang: incoming(t, 1, 9, 4), message: "2 Insufficient cpu.",
		},
		{
			name: "not even without them", nodes: two,
			pods: []running{{name: "a", node: "n1", cpus: 4, priority: 9}, {name: "b", node: "n2", cpus: 4, priority: 1}},
			gang: incoming(t, 2, 9, 4, 4), message: "; preemption: it would not fit even without the pods of lower priority",
		},
		{
			name: "as many as the gang needs", nodes: two,
			pods: []running{{name: "a", node: "n1", cpus: 4, priority: 1}, {name: "b", node: "n2", cpus: 4}},
			gang: incoming(t, 1, 9, 4, 4), victims: "b", nominated: 1,
		},
		{
			name: "a policy", nodes: two,
			pods: []running{{name: "a", node: "n1", cpus: 4}, {name: "b", node: "n2", cpus: 4}},
			gang: func() *framework.Queued {
				q := incoming(t, 1, 9, 4)
				q.Pods[0].Pod.Spec.PreemptionPolicy = proto.String("Never")
				return q
			}(), message: "; preemption: not eligible due to preemptionPolicy=Never.",
		},
		{
			name: "room is being made", nodes: two,
			pods: []running{{name: "a", node: "n1", cpus: 4, going: true}, {name: "b", node: "n2", cpus: 4}},
			gang: func() *framework.Queued {
				q := incoming(t, 1, 9, 4)
				q.Pods[0].Pod.Status = &corev1.PodStatus{NominatedNodeName: "n1"}
				return q
			}(), message: "; preemption: not eligible due to terminating pods on the nominated nodes.",
		},
		{
			name: "a budget is honoured at the price of a higher priority", nodes: two,
			pods: []running{{name: "a", node: "n1", cpus: 4, guarded: true}, {name: "b", node: "n2", cpus: 4, priority: 5}},
			gang: incoming(t, 1, 9, 4), victims: "b", nominated: 1,
		},
		{
			name: "a budget with something left is no reason", nodes: two, allowed: 1,
			pods: []running{{name: "a", node: "n1", cpus: 4, guarded: true}, {name: "b", node: "n2", cpus: 4, priority: 5}},
			gang: incoming(t, 1, 9, 4), victims: "a", nominated: 1,
		},
		{
			name: "a budget is broken where nothing else helps", nodes: two, allowed: 1,
			pods: []running{{name: "a", node: "n1", cpus: 4, guarded: true}, {name: "b", node: "n2", cpus: 4, guarded: true}},
			gang: incoming(t, 2, 9, 4, 4), victims: "a b", nominated: 2,
		},
		{
			name: "a group that goes as a whole", nodes: two, groups: []*schedulingv1.PodGroup{victimGroup("g", 2, true, nil)},
			pods: []running{{name: "a", node: "n1", cpus: 4, group: "g"}, {name: "b", node: "n2", cpus: 1, group: "g"}, {name: "c", node: "n2", cpus: 3, priority: 9}},
			gang: incoming(t, 1, 9, 4), victims: "a b", nominated: 1,
		},
		{
			name: "a group matters more than a pod", nodes: two, groups: []*schedulingv1.PodGroup{victimGroup("g", 2, true, nil)},
			pods: []running{{name: "a", node: "n1", cpus: 2, group: "g"}, {name: "b", node: "n1", cpus: 2, group: "g"}, {name: "c", node: "n2", cpus: 4, start: -5}},
			gang: incoming(t, 1, 9, 4), victims: "c", nominated: 1,
		},
		{
			name: "one pod of higher priority saves its group", nodes: two, groups: []*schedulingv1.PodGroup{victimGroup("g", 2, true, nil)},
			pods: []running{{name: "a", node: "n1", cpus: 4, group: "g"}, {name: "b", node: "n2", cpus: 4, group: "g", priority: 9}},
			gang: incoming(t, 1, 9, 4), message: "2 Insufficient cpu.",
		},
		{
			name: "what the group says of its priority counts", nodes: two, groups: []*schedulingv1.PodGroup{victimGroup("g", 2, true, proto.Int32(3))},
			pods: []running{{name: "a", node: "n1", cpus: 2, group: "g"}, {name: "b", node: "n1", cpus: 2, group: "g"}, {name: "c", node: "n2", cpus: 4, priority: 2}},
			gang: incoming(t, 1, 9, 4), victims: "c", nominated: 1,
		},
		{
			name: "pods beyond the quorum go one by one", nodes: two, groups: []*schedulingv1.PodGroup{victimGroup("g", 1, false, nil)},
			pods: []running{{name: "a", node: "n1", cpus: 4, group: "g", start: 1}, {name: "b", node: "n2", cpus: 4, group: "g", start: 2}},
			gang: incoming(t, 1, 9, 4), victims: "b", nominated: 1,
		},
		{
			name: "a quorum is kept at the price of a higher priority", nodes: two, groups: []*schedulingv1.PodGroup{victimGroup("g", 2, false, nil)},
			pods: []running{{name: "a", node: "n1", cpus: 2, group: "g"}, {name: "b", node: "n1", cpus: 2, group: "g"}, {name: "c", node: "n2", cpus: 4, priority: 5}},
			gang: incoming(t, 1, 9, 4), victims: "c", nominated: 1,
		},
		{
			name: "a quorum is broken where nothing else helps", nodes: two[:1], groups: []*schedulingv1.PodGroup{victimGroup("g", 2, false, nil)},
			pods: []running{{name: "a", node: "n1", cpus: 2, group: "g", start: 1}, {name: "b", node: "n1", cpus: 2, group: "g", start: 2}},
			gang: incoming(t, 1, 9, 2), victims: "b", nominated: 1,
		},
		{
			name: "the rack of the lowest priority", nodes: racks,
			pods: []running{
				{name: "a1", node: "a1", cpus: 4, priority: 5}, {name: "a2", node: "a2", cpus: 4},
				{name: "b1", node: "b1", cpus: 4, priority: 3}, {name: "b2", node: "b2", cpus: 4, priority: 3},
			},
			gang: inRack(incoming(t, 2, 9, 4, 4)), victims: "b1 b2", nominated: 2,
		},
		{
			name: "the rack with the fewest victims", nodes: racks,
			pods: []running{
				{name: "a1", node: "a1", cpus: 2}, {name: "a1+", node: "a1", cpus: 2}, {name: "a2", node: "a2", cpus: 4},
				{name: "b1", node: "b1", cpus: 4}, {name: "b2", node: "b2", cpus: 4},
			},
			gang: inRack(incoming(t, 2, 9, 4, 4)), victims: "b1 b2", nominated: 2,
		},
		{
			name: "the first of equal racks", nodes: racks,
			pods: []running{{name: "a1", node: "a1", cpus: 4}, {name: "a2", node: "a2", cpus: 4}, {name: "b1", node: "b1", cpus: 4}, {name: "b2", node: "b2", cpus: 4}},
			gang: inRack(incoming(t, 2, 9, 4, 4)), victims: "a1 a2", nominated: 2,
		},
		{
			name: "a rack that keeps the budget", nodes: racks,
			pods: []running{{name: "a1", node: "a1", cpus: 4, guarded: true}, {name: "a2", node: "a2", cpus: 4}, {name: "b1", node: "b1", cpus: 4, priority: 7}, {name: "b2", node: "b2", cpus: 4}},
			gang: inRack(incoming(t, 2, 9, 4, 4)), victims: "b1 b2", nominated: 2,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newFullWorld(t, tc.nodes, tc.pods, tc.groups, tc.allowed)
			d := w.try(t, tc.gang)
			if got := victimNames(d); len(d.Placed) > 0 || got != tc.victims || nominated(d) != tc.nominated || !strings.HasSuffix(d.Message, tc.message) {
				t.Errorf("placed %v; victims %q, want %q; %d nominated, want %d; message %q", d.Placed, got, tc.victims, nominated(d), tc.nominated, d.Message)
			}
		})
	}
}

// cluster is what the property test draws.
type cluster struct {
	nodes   []*corev1.Node
	pods    []running
	groups  map[string]*schedulingv1.PodGroup
	allowed int32
	gang    *framework.Queued
}

func drawCluster(t *rapid.T) cluster {
	c := cluster{groups: map[string]*schedulingv1.PodGroup{}, allowed: int32(rapid.IntRange(0, 2).Draw(t, "allowed"))}
	for _, name := range []string{"g1", "g2", "g3"} {
		var priority *int32
		if rapid.Bool().Draw(t, name+" priority?") {
			priority = proto.Int32(int32(rapid.IntRange(0, 5).Draw(t, name+" priority")))
		}
		c.groups[name] = victimGroup(name, int32(rapid.IntRange(1, 3).Draw(t, name+" min")), rapid.Bool().Draw(t, name+" whole"), priority)
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
		rack, free := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "rack"), rapid.IntRange(2, 5).Draw(t, "cpus")
		n := rackNode(fmt.Sprint("n", i), rack, free)
		c.nodes = append(c.nodes, n)
		for k := 0; free > 0 && k < 4; k++ {
			p := running{
				name: fmt.Sprintf("p%d-%d", i, k), node: n.Metadata.Name, cpus: rapid.IntRange(1, 2).Draw(t, "cpu"),
				priority: int32(rapid.IntRange(0, 4).Draw(t, "priority")), start: int64(rapid.IntRange(1, 3).Draw(t, "start")),
				group: rapid.SampledFrom([]string{"", "", "g1", "g2", "g3"}).Draw(t, "group"), guarded: rapid.Bool().Draw(t, "guarded"),
			}
			if free -= p.cpus; free >= 0 {
				c.pods = append(c.pods, p)
			}
		}
	}
	var cpus []int
	for range rapid.IntRange(1, 4).Draw(t, "members") {
		cpus = append(cpus, rapid.IntRange(1, 4).Draw(t, "member's cpu"))
	}
	c.gang = incoming(nil, rapid.IntRange(1, len(cpus)).Draw(t, "min"), int32(rapid.IntRange(1, 5).Draw(t, "own priority")), cpus...)
	if rapid.Bool().Draw(t, "in a rack") {
		inRack(c.gang)
	}
	return c
}

// unitOf names what a pod gives way with: itself, or its group.
func (c *cluster) unitOf(p running) (name string, priority int32) {
	g := c.groups[p.group]
	if g.GetSpec().GetDisruptionMode().GetAll() == nil {
		return p.name, p.priority
	}
	priority = -1 << 31
	for _, o := range c.pods {
		if o.group == p.group {
			priority = max(priority, o.priority)
		}
	}
	if g.Spec.Priority != nil {
		priority = g.Spec.GetPriority()
	}
	return "group " + p.group, priority
}

// without is the cluster without some of its pods.
func (c *cluster) without(t *rapid.T, gone func(running) bool) *fullWorld {
	var rest []running
	for _, p := range c.pods {
		if !gone(p) {
			rest = append(rest, p)
		}
	}
	var groups []*schedulingv1.PodGroup
	for _, name := range []string{"g1", "g2", "g3"} {
		groups = append(groups, c.groups[name])
	}
	return newFullWorld(nil, c.nodes, rest, groups, c.allowed)
}

// only is the cluster with the nodes of one rack only; the whole of it where it is empty.
func (c cluster) only(rack string) *cluster {
	if rack == "" {
		return &c
	}
	c.nodes = slices.DeleteFunc(slices.Clone(c.nodes), func(n *corev1.Node) bool { return n.Metadata.Labels["rack"] != rack })
	c.pods = slices.DeleteFunc(slices.Clone(c.pods), func(p running) bool {
		return !slices.ContainsFunc(c.nodes, func(n *corev1.Node) bool { return n.Metadata.Name == p.node })
	})
	return &c
}

// fits reports whether the gang has a place without room being made.
func (c *cluster) fits(t *rapid.T, gone func(running) bool, at map[string]string) bool {
	w := c.without(t, gone)
	if err := w.cache.Update(&w.snapshot); err != nil {
		t.Fatal(err)
	}
	for _, p := range c.gang.Pods {
		w.fw.Nominate(p, at[p.UID()])
	}
	d := w.decider.Decide(t.Context(), c.gang, nil)
	if d.Err != nil {
		t.Fatal(d.Err)
	}
	return len(d.Placed) > 0
}

// TestRoomForGroupIsLeast draws clusters. The victims matter less than the gang, and those that go together do. It fits
// without them, and not without all but one. No rule is broken where the gang fits without the pods that no rule protects.
// Where no room is made, there is none to be made. Snapshots are left as they were.
func TestRoomForGroupIsLeast(t *testing.T) {
	made := 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		w := c.without(t, func(running) bool { return false })
		if err := w.cache.Update(&w.snapshot); err != nil {
			t.Fatal(err)
		}
		before := traces(&w.snapshot.Snapshot)
		d := w.decider.Decide(t.Context(), c.gang, nil)
		if after := traces(&w.snapshot.Snapshot); d.Err != nil || after != before {
			t.Fatalf("error %v; the attempt left a trace:\n%s\nwas\n%s", d.Err, after, before)
		}
		if len(d.Placed) > 0 {
			return
		}
		lower := func(p running) bool {
			_, priority := c.unitOf(p)
			return priority < c.gang.Pods[0].Priority()
		}
		if len(d.Victims) == 0 {
			if nominated(d) == 0 && c.fits(t, lower, nil) {
				t.Fatalf("no room was made, but the gang fits without all pods that matter less: %s", d.Message)
			}
			return
		}
		made++
		victims, units := map[string]bool{}, map[string]bool{}
		for _, v := range d.Victims {
			victims[v.Pod.Pod.GetMetadata().GetName()] = true
		}
		at, rack := map[string]string{}, ""
		for _, f := range d.Failed {
			at[f.Pod.UID()] = f.NominatedNode
			if n := w.snapshot.Node(f.NominatedNode); n != nil && c.gang.Group.Spec.SchedulingConstraints != nil {
				rack = n.Labels()["rack"]
			}
		}
		for _, p := range c.pods {
			if victims[p.name] {
				unit, _ := c.unitOf(p)
				units[unit] = true
				if !lower(p) {
					t.Fatalf("victim %s does not matter less", p.name)
				}
			}
		}
		isVictim := func(p running) bool { unit, _ := c.unitOf(p); return units[unit] }
		for _, p := range c.pods {
			if isVictim(p) != victims[p.name] {
				t.Fatalf("victims %v: %s does not go with the others of its group", victims, p.name)
			}
		}
		if !c.fits(t, isVictim, at) {
			t.Fatalf("does not fit without %v", victims)
		}
		for spared := range units {
			// A group that goes may leave another rack empty that it was too dear for.
			if c.only(rack).fits(t, func(p running) bool { unit, _ := c.unitOf(p); return units[unit] && unit != spared }, nil) {
				t.Fatalf("%s is a victim for nothing, with %v", spared, victims)
			}
		}
		if c.violations(victims) > 0 && c.fits(t, func(p running) bool { return lower(p) && !c.protected(p) }, nil) {
			t.Fatalf("rules are broken by %v, and need not be", victims)
		}
	})
	if made == 0 {
		t.Error("no room was ever made")
	}
}

// protected reports whether a rule may speak against the going of a pod.
func (c *cluster) protected(p running) bool {
	for _, o := range c.pods {
		same, _ := c.unitOf(o)
		if unit, _ := c.unitOf(p); same == unit && (o.guarded || o.group != "" && unit == p.name) {
			return true
		}
	}
	return false
}

// violations counts the pods whose going breaks the budget or the quorum of a gang.
func (c *cluster) violations(victims map[string]bool) int {
	guarded, going, members := 0, map[string]int{}, map[string]int{}
	for _, p := range c.pods {
		if unit, _ := c.unitOf(p); unit == p.name && p.group != "" {
			members[p.group]++
			if victims[p.name] {
				going[p.group]++
			}
		}
		if victims[p.name] && p.guarded {
			guarded++
		}
	}
	out := max(guarded-int(c.allowed), 0)
	for group, n := range going {
		need := int(c.groups[group].GetSpec().GetSchedulingPolicy().GetGang().GetMinCount())
		if members[group] >= need {
			out += max(n-(members[group]-need), 0)
		}
	}
	return out
}

// TestRoomForPodMindsGroups: a pod that preempts takes groups that go as a whole as a whole, and leaves gangs their quorums.
func TestRoomForPodMindsGroups(t *testing.T) {
	two := []*corev1.Node{rackNode("n1", "a", 4), rackNode("n2", "b", 4)}
	for _, tc := range []struct {
		name    string
		pods    []running
		group   *schedulingv1.PodGroup
		victims string
		node    string
	}{
		{
			"a group goes as a whole", []running{{name: "a", node: "n1", cpus: 4, group: "g"}, {name: "b", node: "n2", cpus: 1, group: "g"}, {name: "c", node: "n2", cpus: 3, priority: 9}},
			victimGroup("g", 2, true, nil), "a b", "n1",
		},
		{
			"one pod of higher priority saves it", []running{{name: "a", node: "n1", cpus: 4, group: "g"}, {name: "b", node: "n2", cpus: 4, group: "g", priority: 9}},
			victimGroup("g", 2, true, nil), "", "",
		},
		{
			"what it says of its priority counts", []running{{name: "a", node: "n1", cpus: 4, group: "g"}, {name: "b", node: "n2", cpus: 4, priority: 2}},
			victimGroup("g", 1, true, proto.Int32(3)), "b", "n2",
		},
		{
			"a whole group costs all of its pods", []running{
				{name: "a", node: "n1", cpus: 4, group: "g"}, {name: "b", node: "n2", cpus: 2}, {name: "b+", node: "n2", cpus: 2},
				{name: "x", node: "n3", cpus: 4, group: "g"}, {name: "y", node: "n3", cpus: 0, group: "g"},
			}, victimGroup("g", 1, true, nil), "b b+", "n2",
		},
		{
			"a quorum is kept at the price of a higher priority", []running{{name: "a", node: "n1", cpus: 4, group: "g"}, {name: "b", node: "n2", cpus: 4, priority: 5}},
			victimGroup("g", 1, false, nil), "b", "n2",
		},
		{
			"a pod beyond the quorum goes by itself", []running{{name: "a", node: "n1", cpus: 4, group: "g"}, {name: "b", node: "n2", cpus: 4, group: "g", priority: 1}},
			victimGroup("g", 1, false, nil), "a", "n1",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nodes := append(slices.Clone(two), rackNode("n3", "c", 4))
			pods := append(tc.pods, running{name: "full", node: "n3", cpus: 4, priority: 9})
			if slices.ContainsFunc(tc.pods, func(p running) bool { return p.node == "n3" }) {
				pods = tc.pods
			}
			w := newFullWorld(t, nodes, pods, []*schedulingv1.PodGroup{tc.group}, 0)
			pod := proto.CloneOf(incoming(t, 1, 9, 4).Pods[0].Pod)
			pod.Spec.SchedulingGroup = nil
			d := w.try(t, &framework.Queued{Pods: []*framework.PodInfo{info(t, pod)}})
			if got := victimNames(d); len(d.Failed) != 1 || got != tc.victims || d.Failed[0].NominatedNode != tc.node {
				t.Errorf("victims %q, want %q; %+v", got, tc.victims, d.Failed)
			}
			// What was found out holds no longer than the other pods of the group are where they were.
			if tc.name == "a pod beyond the quorum goes by itself" {
				w.cache.RemovePod("b")
				w.cache.AddPod(running{name: "other", node: "n2", cpus: 4, priority: 5}.info(t))
				if d := w.try(t, &framework.Queued{Pods: []*framework.PodInfo{info(t, pod)}}); victimNames(d) != "other" {
					t.Errorf("victims %q once a is all that is left of its gang, want other", victimNames(d))
				}
			}
		})
	}
}
