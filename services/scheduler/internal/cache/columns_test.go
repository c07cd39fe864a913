package cache

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
)

// drawNode draws a node with all that columns hold.
func drawNode(t *rapid.T, name string) *corev1.Node {
	n := node(name, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"))
	n.Spec = &corev1.NodeSpec{Unschedulable: proto.Bool(rapid.Bool().Draw(t, "cordon"))}
	n.Status = &corev1.NodeStatus{Allocatable: map[string]string{"cpu": "4", "pods": "10"}}
	if rapid.Bool().Draw(t, "rack") {
		n.Metadata.Labels["rack"] = rapid.SampledFrom([]string{"1", "2"}).Draw(t, "rack name")
	}
	if rapid.Bool().Draw(t, "taint") {
		n.Spec.Taints = []*corev1.Taint{{Key: "k", Effect: rapid.SampledFrom([]string{"NoSchedule", "NoExecute"}).Draw(t, "effect")}}
	}
	if rapid.Bool().Draw(t, "gpu") {
		n.Status.Allocatable["x.io/y"] = "3"
	}
	if rapid.Bool().Draw(t, "image") {
		n.Status.Images = []*corev1.ContainerImage{{Names: []string{"i"}, SizeBytes: rapid.Int64Range(1, 2).Draw(t, "size")}}
	}
	return n
}

// drawPod draws a pod with all that counters look at.
func drawPod(t *rapid.T, uid, on string) *framework.PodInfo {
	app := rapid.SampledFrom([]string{"web", "db"})
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{
			Namespace: rapid.SampledFrom([]string{"one", "two"}).Draw(t, "namespace"), Name: uid, Uid: uid,
			Labels: map[string]string{"app": app.Draw(t, "app")},
		},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{{
			Resources: &corev1.ResourceRequirements{Requests: map[string]string{"cpu": "1"}},
		}}},
	}
	if rapid.Bool().Draw(t, "gpu") {
		p.Spec.Containers[0].Resources.Requests["x.io/y"] = "1"
	}
	if rapid.Bool().Draw(t, "port") {
		p.Spec.Containers[0].Ports = []*corev1.ContainerPort{{HostPort: proto.Int32(80)}}
	}
	if rapid.Bool().Draw(t, "deleted") {
		p.Metadata.DeletionTimestamp = timestamppb.Now()
	}
	if rapid.Bool().Draw(t, "anti") {
		term := &corev1.PodAffinityTerm{
			TopologyKey:   "rack",
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app.Draw(t, "anti app")}},
		}
		if rapid.Bool().Draw(t, "everywhere") {
			term.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
		}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []*corev1.PodAffinityTerm{term},
			PreferredDuringSchedulingIgnoredDuringExecution: []*corev1.WeightedPodAffinityTerm{
				{Weight: rapid.Int32Range(1, 2).Draw(t, "weight"), PodAffinityTerm: term},
			},
		}}
	}
	if on != "" {
		p.Spec.NodeName = proto.String(on)
	}
	info, err := framework.NewPodInfo(p)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func selectors(t *rapid.T) []*framework.PodSelector {
	var out []*framework.PodSelector
	for _, c := range []framework.PodSelectorConfig{
		{Namespaces: []string{"one"}, Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, SkipTerminating: true},
		{Namespaces: []string{"one", "two"}, Labels: &metav1.LabelSelector{}},
		{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}, Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}},
		{NamespaceSelector: &metav1.LabelSelector{}, Labels: nil},
	} {
		s, err := framework.NewPodSelector(c)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// TestColumnsAndCounters compares what a snapshot keeps up over a random history, pods that are assumed in it alone
// included, with what counting anew gives.
func TestColumnsAndCounters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCache()
		var s Snapshot
		sel := selectors(t)
		name := rapid.SampledFrom([]string{"n1", "n2", "n3", "n4"})
		uid := rapid.SampledFrom([]string{"p", "q", "r", "s", "t"})
		version, known := s.Version(), map[string]int64{}
		t.Repeat(map[string]func(*rapid.T){
			"set node": func(t *rapid.T) {
				c.SetNode(drawNode(t, name.Draw(t, "node")))
			},
			"remove node": func(t *rapid.T) { c.RemoveNode(name.Draw(t, "node")) },
			"assume":      func(t *rapid.T) { _ = c.Assume(drawPod(t, uid.Draw(t, "pod"), ""), name.Draw(t, "node")) },
			"forget":      func(t *rapid.T) { c.Forget(pod(uid.Draw(t, "pod"), "", "")) },
			"add pod":     func(t *rapid.T) { c.AddPod(drawPod(t, uid.Draw(t, "pod"), name.Draw(t, "node"))) },
			"remove pod":  func(t *rapid.T) { c.RemovePod(uid.Draw(t, "pod")) },
			"namespace": func(t *rapid.T) {
				c.SetNamespace(rapid.SampledFrom([]string{"one", "two"}).Draw(t, "namespace"),
					map[string]string{"team": rapid.SampledFrom([]string{"x", "y"}).Draw(t, "team")})
			},
			"update": func(t *rapid.T) {
				if err := c.Update(&s); err != nil {
					t.Fatal(err)
				}
				check(t, &s, sel)
				// Pods of a gang, one after the other, and back.
				var on []string
				var pods []*framework.PodInfo
				for i := range rapid.IntRange(0, 3).Draw(t, "gang") {
					if len(s.Nodes()) == 0 {
						break
					}
					p := drawPod(t, fmt.Sprint("g", i), "")
					n := rapid.SampledFrom(s.Nodes()).Draw(t, "on").Name()
					s.Assume(p, n)
					pods, on = append(pods, p), append(on, n)
					check(t, &s, sel)
				}
				for i, p := range slices.Backward(pods) {
					if err := s.Forget(p, on[i]); err != nil {
						t.Fatal(err)
					}
				}
				check(t, &s, sel)

				changed, ok := s.ChangedSince(version, nil)
				for i, n := range s.Nodes() {
					if ok && known[n.Name()] != n.Generation && !slices.Contains(changed, int32(i)) {
						t.Fatalf("node %s changed and is not among %v", n.Name(), changed)
					}
				}
				version = s.Version()
				clear(known)
				for _, n := range s.Nodes() {
					known[n.Name()] = n.Generation
				}
			},
		})
	})
}

func check(t *rapid.T, s *Snapshot, sel []*framework.PodSelector) {
	c := s.Columns()
	rack := c.Label("rack")
	gpu, counted := c.Resource("x.io/y")
	images := 0
	for i, n := range s.Nodes() {
		if n.Index != int32(i) || s.Positions()[i] != int32(i) {
			t.Fatalf("node %s at %d says %d", n.Name(), i, n.Index)
		}
		got := fmt.Sprint(c.Allocatable[framework.CPU][i], c.Requested[framework.CPU][i], c.ScoredMemory[i], c.Pods[i], c.AllowedPods[i],
			c.PortsInUse[i], c.Unschedulable[i], c.Taints(c.TaintSet[i]), rack.Name(rack.Values[i]))
		want := fmt.Sprint(n.Allocatable.MilliCPU, n.Requested.MilliCPU, n.Scored.Memory, len(n.Pods), n.Allocatable.AllowedPods,
			len(n.Ports), n.Node.GetSpec().GetUnschedulable(), n.Taints(), n.Labels()["rack"])
		if got != want {
			t.Fatalf("columns of %s: %s, want %s", n.Name(), got, want)
		}
		if !counted && (n.Allocatable.Scalar["x.io/y"] != 0 || n.Requested.Scalar["x.io/y"] != 0) {
			t.Fatalf("node %s has a resource without a column", n.Name())
		}
		if counted && (c.Allocatable[gpu][i] != n.Allocatable.Scalar["x.io/y"] || c.Requested[gpu][i] != n.Requested.Scalar["x.io/y"]) {
			t.Fatalf("node %s: %d of %d, want %v of %v", n.Name(), c.Requested[gpu][i], c.Allocatable[gpu][i], n.Requested.Scalar, n.Allocatable.Scalar)
		}
		if c.Image("i").Sizes[i] != n.Images["i"] {
			t.Fatalf("image on %s: %d, want %d", n.Name(), c.Image("i").Sizes[i], n.Images["i"])
		}
		if _, ok := n.Images["i"]; ok {
			images++
		}
	}
	if c.Image("i").Nodes != images {
		t.Fatalf("image on %d nodes, want %d", c.Image("i").Nodes, images)
	}

	for k, p := range sel {
		counter := s.Matching(p)
		compare(t, fmt.Sprint("selector ", k), s, counter, func(pod *framework.PodInfo) int { return btoi(p.Matches(pod, s.NamespaceLabels)) })
	}
	both := s.Matching(sel[0], sel[1])
	compare(t, "both", s, both, func(pod *framework.PodInfo) int {
		return btoi(sel[0].Matches(pod, s.NamespaceLabels) && sel[1].Matches(pod, s.NamespaceLabels))
	})
	asks := drawPod(t, "asks", "")
	var sum int
	for _, h := range s.Held(framework.HeldAntiRequired, asks) {
		sum += h.Total
		h.By(rack)
	}
	want := 0
	for _, n := range s.Nodes() {
		for _, pod := range n.Pods {
			if a := pod.Affinity; a != nil && a.AntiRequired[0].Matches(asks, s.NamespaceLabels) {
				want++
			}
		}
	}
	if !asks.Terminating() && sum != want {
		t.Fatalf("%d pods hold a term against %v, want %d", sum, asks.Labels(), want)
	}
}

func compare(t *rapid.T, what string, s *Snapshot, c *framework.Counter, count func(*framework.PodInfo) int) {
	rack := s.Columns().Label("rack")
	domains, total := map[string]int32{}, 0
	for i, n := range s.Nodes() {
		want := 0
		for _, pod := range n.Pods {
			want += count(pod)
		}
		if c.PerNode[i] != int32(want) {
			t.Fatalf("%s: %d on %s, want %d", what, c.PerNode[i], n.Name(), want)
		}
		total += want
		domains[n.Labels()["rack"]] += int32(want)
	}
	by, got := c.By(rack), map[string]int32{}
	for id, n := range by.Sums() {
		if n != 0 {
			got[rack.Name(int32(id))] = n
		}
	}
	maps.DeleteFunc(domains, func(_ string, n int32) bool { return n == 0 })
	if c.Total != total || !maps.Equal(got, domains) {
		t.Fatalf("%s: %d by rack %v, want %d %v", what, c.Total, got, total, domains)
	}
	if len(s.Nodes()) == 0 {
		return
	}
	clone := by.Clone()
	clone.Add(0, 2)
	if clone.Of(0) != by.Of(0)+2 || clone.Sums()[rack.Values[0]] != by.Of(0)+2 {
		t.Fatalf("%s: a pod in thought gives %d, want 2 more than %d", what, clone.Of(0), by.Of(0))
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
