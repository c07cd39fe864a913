package plugins_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/clustertest"
	"trireme.dev/services/scheduler/internal/runtime"
	"trireme.dev/services/scheduler/plugins"
	"trireme.dev/services/scheduler/plugins/nodeaffinity"
	"trireme.dev/services/scheduler/plugins/noderesources"
)

// variants are the plugins by default, and those with other arguments that make other passes.
func variants() map[string]framework.Registration {
	out := map[string]framework.Registration{}
	inZone := &corev1.NodeSelectorTerm{MatchExpressions: []*corev1.NodeSelectorRequirement{{Key: framework.LabelZone, Operator: "In", Values: []string{"z1"}}}}
	named := &corev1.NodeSelectorTerm{MatchFields: []*corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"n1", "n3"}}}}
	args := map[string][]any{
		nodeaffinity.Name: {&nodeaffinity.Args{AddedAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution:  &corev1.NodeSelector{NodeSelectorTerms: []*corev1.NodeSelectorTerm{inZone, named}},
			PreferredDuringSchedulingIgnoredDuringExecution: []*corev1.PreferredSchedulingTerm{{Weight: 7, Preference: named}},
		}}},
		noderesources.FitName: {
			&noderesources.FitArgs{IgnoredResourceGroups: []string{"nvidia.com"}, ScoringStrategy: &noderesources.ScoringStrategy{
				Type:      noderesources.MostAllocated,
				Resources: []noderesources.ResourceSpec{{Name: "cpu", Weight: 3}, {Name: "nvidia.com/gpu", Weight: 5}, {Name: "memory"}},
			}},
			&noderesources.FitArgs{ScoringStrategy: &noderesources.ScoringStrategy{
				Type: noderesources.RequestedToCapacityFit, Resources: []noderesources.ResourceSpec{{Name: "cpu"}, {Name: "nvidia.com/gpu", Weight: 2}},
				RequestedToCapacityRatio: &noderesources.RequestedToCapacityRatio{Shape: []noderesources.ShapePoint{{Utilization: 20, Score: 0}, {Utilization: 70, Score: 10}, {Utilization: 100, Score: 3}}},
			}},
		},
		noderesources.BalancedName: {
			&noderesources.BalancedArgs{Resources: []noderesources.ResourceSpec{{Name: "cpu"}, {Name: "memory"}, {Name: "nvidia.com/gpu"}}},
			&noderesources.BalancedArgs{Resources: []noderesources.ResourceSpec{{Name: "nvidia.com/gpu"}}},
		},
	}
	for _, e := range plugins.Registry() {
		out[e.Name] = e.Registration(nil, 0)
		for i, a := range args[e.Name] {
			out[fmt.Sprint(e.Name, " ", i+1)] = e.Registration(a, 0)
		}
	}
	return out
}

// TestPassesAgree: what a plugin says of many nodes in one pass is what it says of each, whichever nodes are asked for.
func TestPassesAgree(t *testing.T) {
	for name, registration := range variants() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				// The handle that plugins get is that of a whole profile.
				handle, err := runtime.New(plugins.Default(clustertest.SchedulerName), runtime.Deps{})
				if err != nil {
					t.Fatal(err)
				}
				plugin, err := registration.New(handle)
				if err != nil {
					t.Fatal(err)
				}
				snapshot := drawSnapshot(t)
				handle.SetSnapshot(snapshot)
				pod := clustertest.Info(t, clustertest.Pod(clustertest.Shape(t), "p", ""))
				positions := rapid.SliceOfNDistinct(rapid.SampledFrom(snapshot.Positions()), 0, -1, rapid.ID).
					Draw(t, "positions")
				compare(t, plugin, snapshot, pod, sorted(positions))
			})
		})
	}
}

func drawSnapshot(t *rapid.T) *framework.Snapshot {
	var (
		nodes []*corev1.Node
		pods  []*framework.PodInfo
	)
	for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
		n := clustertest.Node(t, fmt.Sprint("n", i))
		nodes = append(nodes, n)
		for k := range rapid.IntRange(0, 3).Draw(t, "pods") {
			pods = append(pods, clustertest.Info(t, clustertest.Pod(clustertest.Shape(t), fmt.Sprint(i, "-", k), n.GetMetadata().GetName())))
		}
	}
	s, err := framework.NewSnapshot(nodes, pods)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sorted(in []int32) []int32 {
	var out []int32
	for i := int32(0); len(out) < len(in); i++ {
		for _, p := range in {
			if p == i {
				out = append(out, i)
			}
		}
	}
	return out
}

func compare(t *rapid.T, plugin framework.Plugin, snapshot *framework.Snapshot, pod *framework.PodInfo, positions []int32) {
	state, nodes := framework.NewCycleState(), snapshot.Columns()
	if p, ok := plugin.(framework.PreFilterPlugin); ok {
		_, st := p.PreFilter(state, pod, snapshot)
		switch {
		case st.IsSkip():
			state.SkipFilter(plugin.Name())
		case !st.IsSuccess():
			return
		}
	}
	if p, ok := plugin.(framework.FilterPassPlugin); ok && !state.FilterSkipped(plugin.Name()) {
		var v framework.Verdicts
		v.Reset(nodes.Nodes)
		v.From(plugin.Name())
		if st := p.FilterPass(state, pod, nodes, positions, &v); !st.IsSuccess() {
			t.Fatalf("FilterPass: %v", st)
		}
		asked := map[int32]bool{}
		for _, i := range positions {
			asked[i] = true
			want := p.Filter(state, pod, nodes.Nodes[i]).WithPlugin(plugin.Name())
			if got := v.Status(i); !got.Equal(want) {
				t.Fatalf("node %s: pass says %v, Filter %v", nodes.Nodes[i].Name(), got, want)
			}
		}
		for i := range nodes.Nodes {
			if v.Rejected(int32(i)) && !asked[int32(i)] {
				t.Fatalf("node %d was rejected and not asked for", i)
			}
		}
	}
	if p, ok := plugin.(framework.PreScorePlugin); ok {
		if st := p.PreScore(state, pod, nodes, positions); st.IsSkip() {
			return
		}
	}
	if p, ok := plugin.(framework.ScorePassPlugin); ok {
		scores := make([]int64, len(positions))
		for k := range scores {
			scores[k] = -7 // what is left of another pod
		}
		if st := p.ScorePass(state, pod, nodes, positions, scores); !st.IsSuccess() {
			t.Fatalf("ScorePass: %v", st)
		}
		for k, i := range positions {
			want, st := p.Score(state, pod, nodes.Nodes[i])
			if !st.IsSuccess() || scores[k] != want {
				t.Fatalf("node %s: pass says %d, Score %d (%v)", nodes.Nodes[i].Name(), scores[k], want, st)
			}
		}
	}
}
