// Package plugintest is for tests of plugins: small clusters drawn at random, a Handle over a snapshot, and the checks that
// every plugin which works in passes must stand.
package plugintest

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"trireme.dev/client"
	"trireme.dev/client/selector"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
)

// Handle is the part of framework.Handle that decisions on nodes use.
type Handle struct {
	framework.Handle
	// State is the snapshot of the cycle.
	State *framework.Snapshot
	// Listers by kind.
	Listers map[string]any
}

// Snapshot implements framework.Handle.
func (h *Handle) Snapshot() *framework.Snapshot { return h.State }

// Objects implements framework.Handle.
func (h *Handle) Objects(kind string) any { return h.Listers[kind] }

// List is a framework.Lister over a list.
type List[T client.Object] []T

// Get implements framework.Lister.
func (l List[T]) Get(namespace, name string) (found T, ok bool) {
	for _, o := range l {
		if o.GetMetadata().GetNamespace() == namespace && o.GetMetadata().GetName() == name {
			return o, true
		}
	}
	return found, false
}

// List implements framework.Lister.
func (l List[T]) List(namespace string, labels *selector.Labels) []T {
	var out []T
	for _, o := range l {
		if (namespace == "" || o.GetMetadata().GetNamespace() == namespace) && (labels == nil || labels.Matches(o.GetMetadata().GetLabels())) {
			out = append(out, o)
		}
	}
	return out
}

// Keys and values of the labels that are drawn.
var (
	Zones  = []string{"a", "b", "c"}
	Values = []string{"x", "y"}
)

// Node draws a node: a host, most of the time in a zone, sometimes tainted.
func Node(t *rapid.T, i int) *corev1.Node {
	name := fmt.Sprintf("n%d", i)
	labels := map[string]string{framework.LabelHostname: name}
	if rapid.IntRange(0, 5).Draw(t, "zoned") > 0 {
		labels[framework.LabelZone] = rapid.SampledFrom(Zones).Draw(t, "zone")
	}
	if rapid.Bool().Draw(t, "disk") {
		labels["disk"] = rapid.SampledFrom(Values).Draw(t, "disk value")
	}
	n := &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: name, Labels: labels}, Spec: &corev1.NodeSpec{},
		Status: &corev1.NodeStatus{Allocatable: map[string]string{"cpu": "4", "memory": "8Gi", "pods": "110"}},
	}
	if rapid.IntRange(0, 3).Draw(t, "tainted") == 0 {
		n.Spec.Taints = []*corev1.Taint{{Key: "reserved", Effect: framework.TaintNoSchedule}}
	}
	return n
}

// Pod draws a pod with a namespace and labels; change, if not nil, gives it what the test is about.
func Pod(t *rapid.T, name string, change func(*corev1.Pod)) *framework.PodInfo {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{
			Namespace: rapid.SampledFrom([]string{"one", "two"}).Draw(t, "namespace"), Name: name, Uid: name,
			Labels: map[string]string{},
		},
		Spec: &corev1.PodSpec{},
	}
	for _, k := range []string{"app", "tier"} {
		if v := rapid.SampledFrom(append([]string{""}, Values...)).Draw(t, k); v != "" {
			p.Metadata.Labels[k] = v
		}
	}
	if rapid.IntRange(0, 5).Draw(t, "terminating") == 0 {
		p.Metadata.DeletionTimestamp = &timestamppb.Timestamp{Seconds: 1}
	}
	if change != nil {
		change(p)
	}
	info, err := framework.NewPodInfo(p)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// Selector draws a label selector: of nothing, of everything, or by labels.
func Selector(t *rapid.T) *metav1.LabelSelector {
	switch rapid.IntRange(0, 7).Draw(t, "selector") {
	case 0:
		return nil
	case 1:
		return &metav1.LabelSelector{}
	case 2:
		return &metav1.LabelSelector{MatchExpressions: []*metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Exists"}}}
	case 3:
		return &metav1.LabelSelector{MatchExpressions: []*metav1.LabelSelectorRequirement{{Key: "app", Operator: "NotIn", Values: []string{"x"}}}}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{
		rapid.SampledFrom([]string{"app", "tier"}).Draw(t, "key"): rapid.SampledFrom(Values).Draw(t, "value"),
	}}
}

// Cluster draws nodes, and pods on them.
func Cluster(t *rapid.T, change func(*corev1.Pod)) ([]*corev1.Node, []*framework.PodInfo) {
	var (
		nodes []*corev1.Node
		pods  []*framework.PodInfo
	)
	for i := range rapid.IntRange(1, 7).Draw(t, "nodes") {
		nodes = append(nodes, Node(t, i))
	}
	for i := range rapid.IntRange(0, 12).Draw(t, "pods") {
		on := rapid.SampledFrom(nodes).Draw(t, "node").GetMetadata().GetName()
		pods = append(pods, Pod(t, fmt.Sprintf("p%d", i), func(p *corev1.Pod) {
			p.Spec.NodeName = proto.String(on)
			if change != nil {
				change(p)
			}
		}))
	}
	return nodes, pods
}

// Snapshot of a cluster, with namespaces one and two, whose label team is their name.
func Snapshot(t *rapid.T, nodes []*corev1.Node, pods []*framework.PodInfo) *framework.Snapshot {
	s, err := framework.NewSnapshot(nodes, pods)
	if err != nil {
		t.Fatal(err)
	}
	s.SetNamespaces(map[string]map[string]string{"one": {"team": "one"}, "two": {"team": "two"}})
	return s
}

// Filter judges all nodes in both ways, fails the test where they differ, and returns the verdicts by name of node; nil
// where PreFilter skips the plugin.
func Filter(t *rapid.T, p framework.FilterPassPlugin, state *framework.CycleState, pod *framework.PodInfo, s *framework.Snapshot) map[string]*framework.Status {
	if pre, ok := p.(framework.PreFilterPlugin); ok {
		_, st := pre.PreFilter(state, pod, s)
		if st.IsSkip() {
			return nil
		}
		if !st.IsSuccess() {
			t.Fatal(st)
		}
	}
	return Judge(t, p, state, pod, s)
}

// Judge is Filter with a state that PreFilter has written.
func Judge(t *rapid.T, p framework.FilterPassPlugin, state *framework.CycleState, pod *framework.PodInfo, s *framework.Snapshot) map[string]*framework.Status {
	var v framework.Verdicts
	v.Reset(s.Nodes())
	v.From(p.Name())
	if st := p.FilterPass(state, pod, s.Columns(), s.Positions(), &v); !st.IsSuccess() {
		t.Fatal(st)
	}
	out := map[string]*framework.Status{}
	for _, n := range s.Nodes() {
		st := p.Filter(state, pod, n).WithPlugin(p.Name())
		if pass := v.Status(n.Index); !st.Equal(pass) {
			t.Fatalf("node %s: Filter says %v, FilterPass says %v", n.Name(), st, pass)
		}
		out[n.Name()] = st
	}
	return out
}

// Score scores the nodes at the positions in both ways, fails the test where they differ, and returns the scores raw and
// normalised; nil where PreScore skips the plugin.
func Score(t *rapid.T, p interface {
	framework.PreScorePlugin
	framework.ScorePassPlugin
	framework.NormalizeScorePlugin
}, state *framework.CycleState, pod *framework.PodInfo, s *framework.Snapshot, feasible []int32) (raw, normal []int64) {
	st := p.PreScore(state, pod, s.Columns(), feasible)
	if st.IsSkip() {
		return nil, nil
	}
	if !st.IsSuccess() {
		t.Fatal(st)
	}
	raw = make([]int64, len(feasible))
	if st := p.ScorePass(state, pod, s.Columns(), feasible, raw); !st.IsSuccess() {
		t.Fatal(st)
	}
	for k, i := range feasible {
		one, st := p.Score(state, pod, s.Nodes()[i])
		if !st.IsSuccess() || one != raw[k] {
			t.Fatalf("node %s: Score says %d (%v), ScorePass says %d", s.Nodes()[i].Name(), one, st, raw[k])
		}
	}
	normal = slices.Clone(raw)
	if st := p.NormalizeScore(state, pod, s.Columns(), feasible, normal); !st.IsSuccess() {
		t.Fatal(st)
	}
	for k, n := range normal {
		if n < framework.MinScore || n > framework.MaxScore {
			t.Fatalf("normalised score %d of %s", n, s.Nodes()[feasible[k]].Name())
		}
	}
	return raw, normal
}
