package defaultpreemption_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/runtime"
	"trireme.dev/services/scheduler/plugins"
	"trireme.dev/services/scheduler/plugins/defaultpreemption"
	"trireme.dev/services/scheduler/plugins/plugintest"
)

// shape is a pod of the tests: what it asks for, what it matters, and since when it runs.
type shape struct {
	name     string
	cpu      int64
	priority int32
	start    int64
	guarded  bool // by the budget
	group    string
}

func (s shape) pod(t interface{ Fatal(...any) }, node string) *framework.PodInfo {
	labels := map[string]string{}
	if s.guarded {
		labels["guarded"] = "yes"
	}
	var group *corev1.PodSchedulingGroup
	if s.group != "" {
		group = &corev1.PodSchedulingGroup{PodGroupName: proto.String(s.group)}
	}
	info, err := framework.NewPodInfo(&corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "one", Name: s.name, Uid: s.name, Labels: labels},
		Spec: &corev1.PodSpec{
			SchedulingGroup: group,
			NodeName:        proto.String(node), Priority: proto.Int32(s.priority),
			Containers: []*corev1.Container{{Resources: &corev1.ResourceRequirements{Requests: map[string]string{"cpu": fmt.Sprint(s.cpu)}}}},
		},
		Status: &corev1.PodStatus{StartTime: &timestamppb.Timestamp{Seconds: s.start}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// evictor remembers whom it evicted, and which groups it marked, and fails for those it is told to.
type evictor struct {
	gone  chan string
	fails map[string]bool
}

func (e *evictor) MarkGroup(_ context.Context, group *schedulingv1.PodGroup, _ string) error {
	name := "group " + group.GetMetadata().GetName()
	if e.fails[name] {
		return fmt.Errorf("mark %s: out of order", name)
	}
	e.gone <- name
	return nil
}

func (e *evictor) Evict(_ context.Context, victim *framework.PodInfo, _ string) error {
	if e.fails[victim.UID()] {
		return fmt.Errorf("evict %s: out of order", victim.Name())
	}
	e.gone <- victim.UID()
	return nil
}

// world is a framework over a cluster, and the plugin.
type world struct {
	fw        *runtime.Framework
	snapshot  *framework.Snapshot
	plugin    *defaultpreemption.Plugin
	activated []string
}

func newWorld(t interface{ Fatal(...any) }, nodes []*corev1.Node, pods []*framework.PodInfo, allowed int32, e framework.Evictor, groups ...*schedulingv1.PodGroup) *world {
	s, err := framework.NewSnapshot(nodes, pods)
	if err != nil {
		t.Fatal(err)
	}
	budget := &policyv1.PodDisruptionBudget{
		Metadata: &metav1.ObjectMeta{Namespace: "one", Name: "b", Uid: "b"},
		Spec:     &policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"guarded": "yes"}}},
		Status:   &policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}
	w := &world{snapshot: s}
	w.fw, err = runtime.New(plugins.Default("default-scheduler"), runtime.Deps{
		Evictor: e,
		Objects: map[string]any{
			"PodDisruptionBudget": plugintest.List[*policyv1.PodDisruptionBudget]{budget},
			"PodGroup":            plugintest.List[*schedulingv1.PodGroup](groups),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.fw.SetSnapshot(s)
	w.fw.OnActivate(func(pods []*framework.PodInfo) {
		for _, p := range pods {
			w.activated = append(w.activated, p.UID())
		}
	})
	if w.plugin, err = defaultpreemption.New(w.fw, defaultpreemption.DefaultArgs()); err != nil {
		t.Fatal(err)
	}
	return w
}

// attempt filters and, where nothing fits, has the plugin make room.
func (w *world) attempt(t interface{ Fatal(...any) }, pod *framework.PodInfo) (fits bool, result *framework.PostFilterResult, st *framework.Status) {
	state := framework.NewCycleState()
	if _, st := w.fw.RunPreFilter(state, pod, w.snapshot); !st.IsSuccess() {
		t.Fatal(st)
	}
	var v framework.Verdicts
	v.Reset(w.snapshot.Nodes())
	open, st := w.fw.RunFilterPass(state, pod, w.snapshot.Columns(), slices.Clone(w.snapshot.Positions()), &v)
	if !st.IsSuccess() {
		t.Fatal(st)
	}
	if len(open) > 0 {
		return true, nil, nil
	}
	result, st = w.plugin.PostFilter(context.Background(), state, pod, &v)
	return false, result, st
}

const capacity = 4

func node(name string) *corev1.Node {
	return &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: name}, Spec: &corev1.NodeSpec{},
		Status: &corev1.NodeStatus{Allocatable: map[string]string{"cpu": fmt.Sprint(capacity), "memory": "64Gi", "pods": "110"}},
	}
}

// plan is what the specification (A.7) makes of one node, in plain arithmetic.
type plan struct {
	node       string
	victims    []shape
	violations int
}

func important(a, b shape) int {
	if a.priority != b.priority {
		return int(b.priority - a.priority)
	}
	if a.start != b.start {
		return int(a.start - b.start)
	}
	return strings.Compare(a.name, b.name)
}

func planFor(name string, on []shape, incoming shape, allowed int32) (plan, bool) {
	var lower []shape
	free := int64(capacity)
	for _, s := range on {
		if s.priority < incoming.priority {
			lower = append(lower, s)
		} else {
			free -= s.cpu
		}
	}
	if len(lower) == 0 || incoming.cpu > free {
		return plan{}, false
	}
	slices.SortFunc(lower, important)
	var protected, others []shape
	for _, s := range lower {
		if s.guarded {
			if allowed--; allowed < 0 {
				protected = append(protected, s)
				continue
			}
		}
		others = append(others, s)
	}
	p := plan{node: name}
	for k, list := range [][]shape{protected, others} {
		for _, s := range list {
			if incoming.cpu <= free-s.cpu {
				free -= s.cpu
				continue
			}
			p.victims = append(p.victims, s)
			if k == 0 {
				p.violations++
			}
		}
	}
	slices.SortFunc(p.victims, important)
	return p, len(p.victims) > 0
}

// worse lists what the choice goes by, each the smaller the better.
func (p plan) worse() (out [5]int64) {
	highest, first := p.victims[0].priority, int64(1<<62)
	sum := int64(0)
	for _, v := range p.victims {
		sum += int64(v.priority) + 1<<31
		if v.priority == highest {
			first = min(first, v.start)
		}
	}
	return [5]int64{int64(p.violations), int64(highest), sum, int64(len(p.victims)), -first}
}

func TestChoiceEqualsSpecification(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			nodes []*corev1.Node
			pods  []*framework.PodInfo
			on    = map[string][]shape{}
		)
		for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			name := fmt.Sprintf("n%d", i)
			nodes = append(nodes, node(name))
			for k, free := 0, int64(capacity); free > 0 && k < 4; k++ {
				s := shape{
					name: fmt.Sprintf("p%d-%d", i, k), cpu: int64(rapid.IntRange(1, 2).Draw(t, "cpu")), priority: int32(rapid.IntRange(-1, 3).Draw(t, "priority")),
					start: int64(rapid.IntRange(1, 3).Draw(t, "start")), guarded: rapid.Bool().Draw(t, "guarded"),
				}
				if free -= s.cpu; free >= 0 {
					on[name] = append(on[name], s)
					pods = append(pods, s.pod(t, name))
				}
			}
		}
		allowed := int32(rapid.IntRange(0, 2).Draw(t, "allowed"))
		// The second pod is equal to the first, so that what the first search found out is used.
		w := newWorld(t, nodes, pods, allowed, nil)
		incoming := shape{cpu: int64(rapid.IntRange(1, 4).Draw(t, "asked")), priority: int32(rapid.IntRange(0, 4).Draw(t, "own priority"))}
		for round := range 2 {
			incoming.name = fmt.Sprintf("new-%d", round)
			fits, result, st := w.attempt(t, incoming.pod(t, ""))
			if fits {
				return
			}
			var best *plan
			for _, n := range nodes {
				p, ok := planFor(n.GetMetadata().GetName(), on[n.GetMetadata().GetName()], incoming, allowed)
				if !ok {
					continue
				}
				if best == nil {
					best = &p
					continue
				}
				a, b := p.worse(), best.worse()
				if c := slices.Compare(a[:], b[:]); c < 0 || c == 0 && p.node < best.node {
					best = &p
				}
			}
			switch {
			case best == nil && (st.IsSuccess() || !result.Clear):
				t.Fatalf("room on %s, where none can be made", result.NominatedNode)
			case best != nil && (!st.IsSuccess() || result.NominatedNode != best.node):
				t.Fatalf("got %+v (%v), want %s", result, st, best.node)
			}
		}
	})
}

// TestEvictsLastVictimLast: while victims are being taken away the pod is gated, and the last one goes when it no longer is.
func TestEvictsLastVictimLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &evictor{gone: make(chan string)}
		victims := []shape{{name: "a", cpu: 2, priority: 1}, {name: "b", cpu: 2, priority: 0}}
		w := newWorld(t, []*corev1.Node{node("n")}, []*framework.PodInfo{victims[0].pod(t, "n"), victims[1].pod(t, "n")}, 0, e)
		pod := shape{name: "new", cpu: 4, priority: 9}.pod(t, "")
		_, result, st := w.attempt(t, pod)
		if !st.IsSuccess() || result.NominatedNode != "n" {
			t.Fatalf("got %+v, %v", result, st)
		}
		synctest.Wait() // the first eviction blocks
		if w.plugin.PreEnqueue(pod) == nil {
			t.Error("the pod may be tried while its victims are being taken away")
		}
		if first := <-e.gone; first != "a" {
			t.Errorf("first victim %s, want a, the more important", first)
		}
		synctest.Wait()
		if st := w.plugin.PreEnqueue(pod); st != nil {
			t.Errorf("the pod is held back while the last victim goes: %v", st)
		}
		if last := <-e.gone; last != "b" {
			t.Errorf("last victim %s, want b", last)
		}
	})
}

// TestFailedEvictionActivates: a pod whose victims cannot be taken away is tried again.
func TestFailedEvictionActivates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &evictor{gone: make(chan string, 9), fails: map[string]bool{"a": true}}
		w := newWorld(t, []*corev1.Node{node("n")}, []*framework.PodInfo{
			shape{name: "a", cpu: 2, priority: 1}.pod(t, "n"), shape{name: "b", cpu: 2}.pod(t, "n"),
		}, 0, e)
		pod := shape{name: "new", cpu: 4, priority: 9}.pod(t, "")
		if _, _, st := w.attempt(t, pod); !st.IsSuccess() {
			t.Fatal(st)
		}
		synctest.Wait()
		if len(e.gone) > 0 {
			t.Errorf("%s was taken away for nothing", <-e.gone)
		}
		if w.plugin.PreEnqueue(pod) != nil || !slices.Equal(w.activated, []string{"new"}) {
			t.Errorf("activated %v, want new", w.activated)
		}
	})
}

// TestGroupThatGoesAsAWholeIsMarked before any of its pods goes, once; one whose pods may go one by one is not. Where it cannot
// be, nobody goes.
func TestGroupThatGoesAsAWholeIsMarked(t *testing.T) {
	all := &schedulingv1.DisruptionMode{All: &schedulingv1.AllDisruptionMode{}}
	single := &schedulingv1.DisruptionMode{Single: &schedulingv1.SingleDisruptionMode{}}
	for _, tc := range []struct {
		name  string
		mode  *schedulingv1.DisruptionMode
		fails bool
		want  []string
	}{
		{"as a whole", all, false, []string{"group g", "a", "b"}},
		{"one by one", single, false, []string{"a", "b"}},
		{"it fails", all, true, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &evictor{gone: make(chan string, 9), fails: map[string]bool{"group g": tc.fails}}
				w := newWorld(t, []*corev1.Node{node("n")}, []*framework.PodInfo{
					shape{name: "a", cpu: 2, priority: 1, group: "g"}.pod(t, "n"), shape{name: "b", cpu: 2, group: "g"}.pod(t, "n"),
				}, 0, e, &schedulingv1.PodGroup{
					Metadata: &metav1.ObjectMeta{Namespace: "one", Name: "g"}, Spec: &schedulingv1.PodGroupSpec{DisruptionMode: tc.mode},
				})
				if _, _, st := w.attempt(t, shape{name: "new", cpu: 4, priority: 9}.pod(t, "")); !st.IsSuccess() {
					t.Fatal(st)
				}
				synctest.Wait()
				var got []string
				for len(e.gone) > 0 {
					got = append(got, <-e.gone)
				}
				if !slices.Equal(got, tc.want) || tc.fails != slices.Equal(w.activated, []string{"new"}) {
					t.Errorf("%q, want %q; activated %v", got, tc.want, w.activated)
				}
			})
		})
	}
}

// TestIneligible: who may not preempt says so.
func TestIneligible(t *testing.T) {
	victim := shape{name: "a", cpu: 4, priority: 1}.pod(t, "n")
	t.Run("policy", func(t *testing.T) {
		w := newWorld(t, []*corev1.Node{node("n")}, []*framework.PodInfo{victim}, 0, nil)
		pod := shape{name: "new", cpu: 4, priority: 9}.pod(t, "")
		pod.Pod.Spec.PreemptionPolicy = proto.String("Never")
		_, result, st := w.attempt(t, pod)
		if want := "preemption: not eligible due to preemptionPolicy=Never."; result != nil || st.Message() != want {
			t.Errorf("got %v, %v; want %s", result, st, want)
		}
	})
	t.Run("room is being made", func(t *testing.T) {
		going := proto.CloneOf(victim.Pod)
		going.Metadata.DeletionTimestamp = &timestamppb.Timestamp{Seconds: 1}
		going.Status.Conditions = []*corev1.PodCondition{{Type: "DisruptionTarget", Status: "True", Reason: "PreemptionByScheduler"}}
		info, err := framework.NewPodInfo(going)
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, []*corev1.Node{node("n")}, []*framework.PodInfo{info}, 0, nil)
		pod := shape{name: "new", cpu: 4, priority: 9}.pod(t, "")
		w.fw.Nominate(pod, "n")
		_, result, st := w.attempt(t, pod)
		if want := "preemption: not eligible due to a terminating pod on the nominated node."; result != nil || st.Message() != want {
			t.Errorf("got %v, %v; want %s", result, st, want)
		}
	})
	t.Run("nobody is lower", func(t *testing.T) {
		w := newWorld(t, []*corev1.Node{node("n"), node("m")}, []*framework.PodInfo{victim, shape{name: "b", cpu: 4, priority: 9}.pod(t, "m")}, 0, nil)
		_, result, st := w.attempt(t, shape{name: "new", cpu: 4, priority: 1}.pod(t, ""))
		if want := "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."; !result.Clear || st.Message() != want {
			t.Errorf("got %v, %v; want %s", result, st, want)
		}
	})
}

func TestArgs(t *testing.T) {
	for _, tc := range []struct {
		args defaultpreemption.Args
		want string
	}{
		{*defaultpreemption.DefaultArgs(), ""},
		{defaultpreemption.Args{MinCandidateNodesPercentage: 101}, "minCandidateNodesPercentage: 101 is not in 0..100"},
		{defaultpreemption.Args{MinCandidateNodesAbsolute: -1}, "minCandidateNodesAbsolute: -1 is negative"},
		{defaultpreemption.Args{}, "minCandidateNodesPercentage and minCandidateNodesAbsolute: both are 0"},
	} {
		got := ""
		if err := tc.args.Validate(); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%+v: got %q, want %q", tc.args, got, tc.want)
		}
	}
}
