package podtopologyspread

import (
	"math"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"trireme.dev/client/selector"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/nodeaffinity"
	"trireme.dev/services/scheduler/plugins/plugintest"
)

func newPlugin(t interface{ Fatal(...any) }, h framework.Handle) *Plugin {
	p, err := New(h, DefaultArgs())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// drawConstraints gives a pod constraints of all sorts.
func drawConstraints(t *rapid.T, when string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Metadata.DeletionTimestamp = nil
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{framework.LabelHostname, framework.LabelZone, "disk"}), 1, 2, rapid.ID).Draw(t, "keys") {
			c := &corev1.TopologySpreadConstraint{
				MaxSkew: int32(rapid.IntRange(1, 2).Draw(t, "maxSkew")), TopologyKey: key, WhenUnsatisfiable: when,
				LabelSelector: plugintest.Selector(t),
			}
			if when == doNotSchedule && rapid.Bool().Draw(t, "has minDomains") {
				c.MinDomains = proto.Int32(int32(rapid.IntRange(1, 4).Draw(t, "minDomains")))
			}
			if rapid.Bool().Draw(t, "ignores affinity") {
				c.NodeAffinityPolicy = proto.String("Ignore")
			}
			if rapid.Bool().Draw(t, "honors taints") {
				c.NodeTaintsPolicy = proto.String("Honor")
			}
			if rapid.Bool().Draw(t, "matches tier") {
				c.MatchLabelKeys = []string{"tier"}
			}
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
		}
		if rapid.IntRange(0, 2).Draw(t, "selects nodes") == 0 {
			p.Spec.NodeSelector = map[string]string{"disk": "x"}
		}
	}
}

// reference is the plugin as Kubernetes describes it: every question is answered by looking at all nodes and pods.
type reference struct {
	pod   *framework.PodInfo
	nodes []*framework.NodeInfo
}

func (r *reference) selects(c *corev1.TopologySpreadConstraint, p *framework.PodInfo) bool {
	labels := c.GetLabelSelector()
	if labels == nil {
		return false
	}
	labels = proto.CloneOf(labels)
	for _, k := range c.GetMatchLabelKeys() {
		if v, ok := r.pod.Labels()[k]; ok {
			labels.MatchExpressions = append(labels.MatchExpressions, &metav1.LabelSelectorRequirement{Key: k, Operator: "In", Values: []string{v}})
		}
	}
	s, err := selector.FromLabelSelector(labels)
	return err == nil && p.Namespace() == r.pod.Namespace() && !p.Terminating() && s.Matches(p.Labels())
}

func (r *reference) counts(n *framework.NodeInfo, c *corev1.TopologySpreadConstraint, keys []string) bool {
	for _, k := range keys {
		if _, ok := n.Labels()[k]; !ok {
			return false
		}
	}
	if c.GetNodeAffinityPolicy() != "Ignore" && !nodeaffinity.Matches(r.pod.Pod, n.Node) {
		return false
	}
	return c.GetNodeTaintsPolicy() != "Honor" || len(n.Taints()) == 0
}

func (r *reference) keys() (keys []string) {
	for _, c := range r.pod.Pod.GetSpec().GetTopologySpreadConstraints() {
		keys = append(keys, c.GetTopologyKey())
	}
	return keys
}

func (r *reference) filter(n *framework.NodeInfo) *framework.Status {
	for _, c := range r.pod.Pod.GetSpec().GetTopologySpreadConstraints() {
		here, ok := n.Labels()[c.GetTopologyKey()]
		if !ok {
			return missingLabel
		}
		domains := map[string]int32{}
		for _, o := range r.nodes {
			if !r.counts(o, c, r.keys()) {
				continue
			}
			d := o.Labels()[c.GetTopologyKey()]
			domains[d] += 0
			for _, p := range o.Pods {
				if r.selects(c, p) {
					domains[d]++
				}
			}
		}
		least := int32(0)
		if len(domains) >= int(max(1, c.GetMinDomains())) {
			least = math.MaxInt32
			for _, n := range domains {
				least = min(least, n)
			}
		}
		self := int32(0)
		if r.selects(c, r.pod) {
			self = 1
		}
		if domains[here]+self-least > c.GetMaxSkew() {
			return tooSkewed
		}
	}
	return nil
}

func (r *reference) scores(feasible []*framework.NodeInfo) (raw []int64, ignored []bool) {
	var ranked []*framework.NodeInfo
	for _, n := range feasible {
		skip := false
		for _, k := range r.keys() {
			if _, ok := n.Labels()[k]; !ok {
				skip = true
			}
		}
		ignored = append(ignored, skip)
		if !skip {
			ranked = append(ranked, n)
		}
	}
	for k, n := range feasible {
		if ignored[k] {
			raw = append(raw, 0)
			continue
		}
		var sum float64
		for _, c := range r.pod.Pod.GetSpec().GetTopologySpreadConstraints() {
			domains := map[string]bool{}
			for _, o := range ranked {
				domains[o.Labels()[c.GetTopologyKey()]] = true
			}
			size, count := len(domains), 0
			host := c.GetTopologyKey() == framework.LabelHostname
			if host {
				size = len(ranked)
			}
			for _, o := range r.nodes {
				if o.Labels()[c.GetTopologyKey()] != n.Labels()[c.GetTopologyKey()] || !host && !r.counts(o, c, r.keys()) {
					continue
				}
				for _, p := range o.Pods {
					if r.selects(c, p) {
						count++
					}
				}
			}
			sum += float64(count)*math.Log(float64(size+2)) + float64(c.GetMaxSkew()-1)
		}
		raw = append(raw, int64(math.Round(sum)))
	}
	return raw, ignored
}

func TestFilterEqualsScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, pods := plugintest.Cluster(t, nil)
		pod := plugintest.Pod(t, "new", drawConstraints(t, doNotSchedule))
		h := &plugintest.Handle{State: plugintest.Snapshot(t, nodes, pods)}
		p := newPlugin(t, h)
		state := framework.NewCycleState()
		got := plugintest.Filter(t, p, state, pod, h.State)
		r := reference{pod, h.State.Nodes()}
		for _, n := range h.State.Nodes() {
			if want := r.filter(n).WithPlugin(Name); !want.Equal(got[n.Name()]) {
				t.Fatalf("node %s: got %v, want %v", n.Name(), got[n.Name()], want)
			}
		}

		// A pod more, and one less, in thought and in the snapshot itself.
		clone := state.Clone()
		before := got
		extra := plugintest.Pod(t, "extra", nil)
		target := rapid.SampledFrom(h.State.Nodes()).Draw(t, "target")
		p.AddPod(clone, pod, extra, target)
		thought := plugintest.Judge(t, p, clone, pod, h.State)
		h.State.Assume(extra, target.Name())
		for _, n := range h.State.Nodes() {
			if want := r.filter(n).WithPlugin(Name); !want.Equal(thought[n.Name()]) {
				t.Fatalf("node %s with one more on %s: got %v, want %v", n.Name(), target.Name(), thought[n.Name()], want)
			}
		}
		p.RemovePod(clone, pod, extra, target)
		for name, st := range plugintest.Judge(t, p, clone, pod, h.State) {
			if !st.Equal(before[name]) {
				t.Fatalf("node %s after coming and going: got %v, want %v", name, st, before[name])
			}
		}
	})
}

func TestScoreEqualsScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, pods := plugintest.Cluster(t, nil)
		pod := plugintest.Pod(t, "new", drawConstraints(t, scheduleAnyway))
		h := &plugintest.Handle{State: plugintest.Snapshot(t, nodes, pods)}
		p := newPlugin(t, h)
		state := framework.NewCycleState()
		if _, st := p.PreFilter(state, pod, h.State); !st.IsSkip() {
			t.Fatalf("PreFilter of wishes: %v", st)
		}
		var feasible []int32
		var infos []*framework.NodeInfo
		for _, n := range h.State.Nodes() {
			if nodeaffinity.Matches(pod.Pod, n.Node) && rapid.IntRange(0, 3).Draw(t, "feasible") > 0 {
				feasible, infos = append(feasible, n.Index), append(infos, n)
			}
		}
		if len(feasible) == 0 {
			t.Skip("no node to score")
		}
		raw, normal := plugintest.Score(t, p, state, pod, h.State, feasible)
		r := reference{pod, h.State.Nodes()}
		want, ignored := r.scores(infos)
		var lowest, highest int64 = math.MaxInt64, 0
		for k := range want {
			if raw[k] != want[k] {
				t.Fatalf("node %s: got %d, want %d", infos[k].Name(), raw[k], want[k])
			}
			if !ignored[k] {
				lowest, highest = min(lowest, want[k]), max(highest, want[k])
			}
		}
		for k := range want {
			n := int64(100)
			if ignored[k] {
				n = 0
			} else if highest > 0 {
				n = 100 * (highest + lowest - want[k]) / highest
			}
			if normal[k] != n {
				t.Fatalf("node %s: normalised %d, want %d", infos[k].Name(), normal[k], n)
			}
		}
	})
}

// TestPlacementBounds: within a placement the domains outside of it do not count as empty.
func TestPlacementBounds(t *testing.T) {
	node := func(name, rack string) *corev1.Node {
		return &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{framework.LabelHostname: name, "rack": rack}}}
	}
	pod := func(name, on string) *framework.PodInfo {
		info, err := framework.NewPodInfo(&corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "one", Name: name, Uid: name, Labels: map[string]string{"app": "x"}},
			Spec: &corev1.PodSpec{NodeName: proto.String(on), TopologySpreadConstraints: []*corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: framework.LabelHostname, WhenUnsatisfiable: doNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	s, err := framework.NewSnapshot(
		[]*corev1.Node{node("a1", "a"), node("a2", "a"), node("b1", "b")}, []*framework.PodInfo{pod("p1", "a1"), pod("p2", "a2")})
	if err != nil {
		t.Fatal(err)
	}
	p := newPlugin(t, &plugintest.Handle{State: s})
	fits := func() (names []string) {
		state := framework.NewCycleState()
		if _, st := p.PreFilter(state, pod("new", ""), s); !st.IsSuccess() {
			t.Fatal(st)
		}
		for _, i := range s.Positions() {
			if p.Filter(state, nil, s.Nodes()[i]).IsSuccess() {
				names = append(names, s.Nodes()[i].Name())
			}
		}
		return names
	}
	if got := fits(); len(got) != 1 || got[0] != "b1" {
		t.Errorf("in the whole cluster: %v, want b1 alone", got)
	}
	s.Within(&framework.Placement{Name: "a", Positions: []int32{s.Node("a1").Index, s.Node("a2").Index}})
	if got := fits(); len(got) != 2 {
		t.Errorf("within rack a: %v, want both of its nodes", got)
	}
}

// TestDefaults: pods of a Service or ReplicaSet are spread softly, others not, and only those can be batched.
func TestDefaults(t *testing.T) {
	meta := func(name string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Namespace: "one", Name: name, Uid: name}
	}
	s, err := framework.NewSnapshot([]*corev1.Node{{Metadata: &metav1.ObjectMeta{Name: "n", Labels: map[string]string{framework.LabelHostname: "n"}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := newPlugin(t, &plugintest.Handle{State: s, Listers: map[string]any{
		"Service": plugintest.List[*corev1.Service]{
			{Metadata: meta("web"), Spec: &corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}},
			{Metadata: meta("headless"), Spec: &corev1.ServiceSpec{}},
		},
		"ReplicaSet": plugintest.List[*appsv1.ReplicaSet]{
			{Metadata: meta("rs"), Spec: &appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rs"}}}},
		},
	}})
	for _, tc := range []struct {
		name, app, owner string
		spread           bool
	}{
		{"alone", "solo", "", false},
		{"of a service", "web", "", true},
		{"of a replica set", "rs", "rs", true},
		{"of a replica set that is gone", "rs", "other", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := meta("p")
			m.Labels = map[string]string{"app": tc.app}
			if tc.owner != "" {
				m.OwnerReferences = []*metav1.OwnerReference{{Kind: "ReplicaSet", Name: tc.owner, Uid: tc.owner, Controller: proto.Bool(true)}}
			}
			pod, err := framework.NewPodInfo(&corev1.Pod{Metadata: m, Spec: &corev1.PodSpec{}})
			if err != nil {
				t.Fatal(err)
			}
			state := framework.NewCycleState()
			if _, st := p.PreFilter(state, pod, s); !st.IsSkip() {
				t.Errorf("PreFilter: %v, want Skip", st)
			}
			if got := !p.PreScore(state, pod, s.Columns(), s.Positions()).IsSkip(); got != tc.spread {
				t.Errorf("is spread: %v, want %v", got, tc.spread)
			}
			if got := p.Sign(pod, &framework.Signature{}); got == tc.spread {
				t.Errorf("can be batched: %v, want %v", got, !tc.spread)
			}
		})
	}
}

func TestArgs(t *testing.T) {
	soft := DefaultConstraint{MaxSkew: 1, TopologyKey: "rack", WhenUnsatisfiable: scheduleAnyway}
	for _, tc := range []struct {
		name string
		args Args
		want string
	}{
		{"system", Args{DefaultingType: SystemDefaulting}, ""},
		{"empty list", Args{DefaultingType: ListDefaulting}, ""},
		{"list", Args{DefaultingType: ListDefaulting, DefaultConstraints: []DefaultConstraint{soft}}, ""},
		{"system with a list", Args{DefaultingType: SystemDefaulting, DefaultConstraints: []DefaultConstraint{soft}}, "defaultConstraints: must be empty when defaultingType is System"},
		{"unknown type", Args{DefaultingType: "Cluster"}, `defaultingType: "Cluster" is neither System nor List`},
		{"no skew", Args{DefaultingType: ListDefaulting, DefaultConstraints: []DefaultConstraint{{TopologyKey: "rack", WhenUnsatisfiable: doNotSchedule}}}, "defaultConstraints[0].maxSkew: 0 is not positive"},
		{"twice", Args{DefaultingType: ListDefaulting, DefaultConstraints: []DefaultConstraint{soft, soft}}, "defaultConstraints[1]: another constraint has the same topologyKey and whenUnsatisfiable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := tc.args.Validate(); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
