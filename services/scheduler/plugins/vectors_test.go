package plugins_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/imagelocality"
	"trireme.dev/services/scheduler/plugins/nodeaffinity"
	"trireme.dev/services/scheduler/plugins/nodename"
	"trireme.dev/services/scheduler/plugins/nodeports"
	"trireme.dev/services/scheduler/plugins/nodeunschedulable"
	"trireme.dev/services/scheduler/plugins/plugintest"
	"trireme.dev/services/scheduler/plugins/tainttoleration"
)

// vectorNode is a node with what a vector is about.
func vectorNode(name string, change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{}}, Spec: &corev1.NodeSpec{},
		Status: &corev1.NodeStatus{Allocatable: map[string]string{"cpu": "4", "memory": "8Gi", "pods": "110"}},
	}
	if change != nil {
		change(n)
	}
	return n
}

func vectorPod(t *testing.T, name string, spec *corev1.PodSpec) *framework.PodInfo {
	t.Helper()
	info, err := framework.NewPodInfo(&corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: name}, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func vectorSnapshot(t *testing.T, nodes []*corev1.Node, pods ...*framework.PodInfo) *framework.Snapshot {
	t.Helper()
	s, err := framework.NewSnapshot(nodes, pods)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tainted(taints ...*corev1.Taint) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = taints }
}

func labelled(labels map[string]string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Metadata.Labels = labels }
}

func images(sizes map[string]int64) func(*corev1.Node) {
	return func(n *corev1.Node) {
		for name, mib := range sizes {
			n.Status.Images = append(n.Status.Images, &corev1.ContainerImage{Names: []string{name}, SizeBytes: mib << 20})
		}
	}
}

func containers(names ...string) *corev1.PodSpec {
	spec := &corev1.PodSpec{}
	for _, name := range names {
		spec.Containers = append(spec.Containers, &corev1.Container{Name: name, Image: name})
	}
	return spec
}

func preference(key, value string, weight int32) *corev1.PreferredSchedulingTerm {
	return &corev1.PreferredSchedulingTerm{Weight: weight, Preference: &corev1.NodeSelectorTerm{
		MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: key, Operator: "In", Values: []string{value}}},
	}}
}

// TestScoreVectors: the scores of those plugins whose formulas are a line each, as they are after normalising.
func TestScoreVectors(t *testing.T) {
	soft := func(key string) *corev1.Taint {
		return &corev1.Taint{Key: key, Value: proto.String("v"), Effect: framework.TaintPreferNoSchedule}
	}
	tolerates := func(key, effect string) *corev1.PodSpec {
		return &corev1.PodSpec{Tolerations: []*corev1.Toleration{{Key: proto.String(key), Operator: proto.String("Equal"), Value: proto.String("v"), Effect: proto.String(effect)}}}
	}
	zones := &corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []*corev1.PreferredSchedulingTerm{
			preference("zone", "a", 2), preference("zone", "b", 4), preference("disk", "ssd", 7),
		},
	}}}
	taints, affinity := tainttoleration.Plugin{}, nodeaffinity.New(&nodeaffinity.Args{})
	for name, c := range map[string]struct {
		plugin framework.ScorePlugin // nil for ImageLocality, which looks at all nodes
		spec   *corev1.PodSpec
		nodes  []func(*corev1.Node)
		want   []int64
	}{
		"no soft taint anywhere":           {taints, &corev1.PodSpec{}, []func(*corev1.Node){nil, nil}, []int64{100, 100}},
		"fewer soft taints are better":     {taints, &corev1.PodSpec{}, []func(*corev1.Node){nil, tainted(soft("x")), tainted(soft("x"), soft("y"))}, []int64{100, 50, 0}},
		"a tolerated soft taint is none":   {taints, tolerates("x", "PreferNoSchedule"), []func(*corev1.Node){tainted(soft("x")), tainted(soft("y"))}, []int64{100, 0}},
		"another effect does not tolerate": {taints, tolerates("x", "NoSchedule"), []func(*corev1.Node){tainted(soft("x")), nil}, []int64{0, 100}},
		"hard taints do not count":         {taints, &corev1.PodSpec{}, []func(*corev1.Node){tainted(&corev1.Taint{Key: "x", Effect: "NoSchedule"}), tainted(soft("y"))}, []int64{100, 0}},

		"weights of preferences add up": {affinity, zones, []func(*corev1.Node){
			labelled(map[string]string{"zone": "a"}), labelled(map[string]string{"zone": "c"}), labelled(map[string]string{"zone": "b", "disk": "ssd"}),
		}, []int64{18, 0, 100}},
		"no preference met": {affinity, zones, []func(*corev1.Node){nil, nil}, []int64{0, 0}},

		// Half of the nodes have each image, so it counts half: (125 - 23) / (2000 - 23).
		"the larger image": {nil, containers("small", "large"), []func(*corev1.Node){
			images(map[string]int64{"small:latest": 40}), images(map[string]int64{"large:latest": 250}),
		}, []int64{0, 5}},
		"both images on one node": {nil, containers("small", "large"), []func(*corev1.Node){
			images(map[string]int64{"small:latest": 40, "large:latest": 300}), nil,
		}, []int64{7, 0}},
		"what takes less than 23 MiB is nothing": {nil, containers("tiny"), []func(*corev1.Node){images(map[string]int64{"tiny:latest": 45}), nil}, []int64{0, 0}},
		"1000 MiB for each container is most":    {nil, containers("huge:1"), []func(*corev1.Node){images(map[string]int64{"huge:1": 9000}), nil}, []int64{100, 0}},
		"everywhere counts in full":              {nil, containers("app:1"), []func(*corev1.Node){images(map[string]int64{"app:1": 512}), images(map[string]int64{"app:1": 512})}, []int64{50, 50}},
		"another tag is another image":           {nil, containers("app:2"), []func(*corev1.Node){images(map[string]int64{"app:1": 512}), nil}, []int64{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []*corev1.Node
			for i, change := range c.nodes {
				nodes = append(nodes, vectorNode(string(rune('a'+i)), change))
			}
			s := vectorSnapshot(t, nodes)
			plugin := c.plugin
			if plugin == nil {
				plugin = imagelocality.New(&plugintest.Handle{State: s})
			}
			pod, state := vectorPod(t, "p", c.spec), framework.NewCycleState()
			if p, ok := plugin.(framework.PreScorePlugin); ok {
				if st := p.PreScore(state, pod, s.Columns(), s.Positions()); !st.IsSuccess() {
					t.Fatal(st)
				}
			}
			var got []int64
			for _, n := range nodes {
				score, st := plugin.Score(state, pod, s.Node(n.GetMetadata().GetName()))
				if !st.IsSuccess() {
					t.Fatal(st)
				}
				got = append(got, score)
			}
			if p, ok := plugin.(framework.NormalizeScorePlugin); ok {
				if st := p.NormalizeScore(state, pod, s.Columns(), s.Positions(), got); !st.IsSuccess() {
					t.Fatal(st)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("scores %v, want %v", got, c.want)
			}
		})
	}
}

// TestFilterVectors: what the plugins that look at one field refuse, and whether pods that went away would help.
func TestFilterVectors(t *testing.T) {
	const never, maybe = framework.UnschedulableAndUnresolvable, framework.Unschedulable
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = proto.Bool(true) }
	port := func(host string, number int32, protocol string) *corev1.PodSpec {
		return &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "i", Ports: []*corev1.ContainerPort{{
			ContainerPort: number, HostPort: proto.Int32(number), HostIp: proto.String(host), Protocol: proto.String(protocol),
		}}}}}
	}
	for name, c := range map[string]struct {
		plugin framework.FilterPlugin
		spec   *corev1.PodSpec
		node   func(*corev1.Node)
		there  *corev1.PodSpec // of a pod on the node
		want   framework.Code
	}{
		"no name":       {nodename.Plugin{}, &corev1.PodSpec{}, nil, nil, framework.Success},
		"its name":      {nodename.Plugin{}, &corev1.PodSpec{NodeName: proto.String("n")}, nil, nil, framework.Success},
		"another name":  {nodename.Plugin{}, &corev1.PodSpec{NodeName: proto.String("m")}, nil, nil, never},
		"cordoned":      {nodeunschedulable.Plugin{}, &corev1.PodSpec{}, cordoned, nil, never},
		"not cordoned":  {nodeunschedulable.Plugin{}, &corev1.PodSpec{}, nil, nil, framework.Success},
		"it bears that": {nodeunschedulable.Plugin{}, &corev1.PodSpec{Tolerations: []*corev1.Toleration{{Key: proto.String("node.kubernetes.io/unschedulable"), Operator: proto.String("Exists"), Effect: proto.String("NoSchedule")}}}, cordoned, nil, framework.Success},
		"NoSchedule":    {tainttoleration.Plugin{}, &corev1.PodSpec{}, tainted(&corev1.Taint{Key: "x", Effect: "NoSchedule"}), nil, never},
		"NoExecute":     {tainttoleration.Plugin{}, &corev1.PodSpec{}, tainted(&corev1.Taint{Key: "x", Effect: "NoExecute"}), nil, never},
		"PreferNoSchedule": {
			tainttoleration.Plugin{}, &corev1.PodSpec{}, tainted(&corev1.Taint{Key: "x", Effect: "PreferNoSchedule"}), nil, framework.Success,
		},
		"port taken":          {nodeports.Plugin{}, port("", 80, "TCP"), nil, port("", 80, "TCP"), maybe},
		"other port":          {nodeports.Plugin{}, port("", 80, "TCP"), nil, port("", 81, "TCP"), framework.Success},
		"other protocol":      {nodeports.Plugin{}, port("", 80, "TCP"), nil, port("", 80, "UDP"), framework.Success},
		"other address":       {nodeports.Plugin{}, port("10.0.0.1", 80, "TCP"), nil, port("10.0.0.2", 80, "TCP"), framework.Success},
		"all addresses taken": {nodeports.Plugin{}, port("10.0.0.1", 80, "TCP"), nil, port("0.0.0.0", 80, "TCP"), maybe},
	} {
		t.Run(name, func(t *testing.T) {
			var there []*framework.PodInfo
			if c.there != nil {
				spec := proto.CloneOf(c.there)
				spec.NodeName = proto.String("n")
				there = append(there, vectorPod(t, "there", spec))
			}
			s := vectorSnapshot(t, []*corev1.Node{vectorNode("n", c.node)}, there...)
			pod, state := vectorPod(t, "p", c.spec), framework.NewCycleState()
			if p, ok := c.plugin.(framework.PreFilterPlugin); ok {
				if _, st := p.PreFilter(state, pod, s); !st.IsSuccess() && !st.IsSkip() {
					t.Fatal(st)
				}
			}
			if st := c.plugin.Filter(state, pod, s.Node("n")); st.Code() != c.want {
				t.Errorf("%v (%s), want %v", st.Code(), st.Message(), c.want)
			}
		})
	}
}
