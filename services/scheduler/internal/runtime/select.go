package runtime

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"trireme.dev/services/scheduler/framework"
)

// Narrowed is what PreFilter left of the nodes.
type Narrowed struct {
	// Names that remain; nil for all.
	Names map[string]struct{}
	// Plugins that narrowed.
	Plugins []string
}

// Message says why a node that is not among Names was left out.
func (n *Narrowed) Message() string {
	return fmt.Sprintf("node(s) didn't satisfy plugin(s) [%s]", strings.Join(n.Plugins, " "))
}

// RunPreFilter runs PreFilter of all plugins and intersects their nodes. An Unschedulable does not stop it, so that later
// plugins leave their state for preemption; everything worse does.
func (f *Framework) RunPreFilter(state *framework.CycleState, pod *framework.PodInfo, nodes framework.Snapshot) (Narrowed, *framework.Status) {
	var (
		out      Narrowed
		rejected *framework.Status
	)
	for _, p := range f.preFilter {
		begun := state.Begin()
		result, st := p.PreFilter(state, pod, nodes)
		state.End(PreFilter, p.Name(), begun, 1, st)
		st = st.WithPlugin(p.Name())
		switch {
		case st.IsSkip():
			state.SkipFilter(p.Name())
			continue
		case st.Code() == framework.Unschedulable, st.Code() == framework.Pending:
			rejected = st
			continue
		case st.Code() == framework.UnschedulableAndUnresolvable:
			return out, st
		case !st.IsSuccess():
			return out, asError("PreFilter", st)
		}
		if result == nil || result.NodeNames == nil {
			continue
		}
		out.Plugins = append(out.Plugins, p.Name())
		names := make(map[string]struct{})
		for n := range result.NodeNames {
			if _, ok := out.Names[n]; ok || out.Names == nil {
				names[n] = struct{}{}
			}
		}
		out.Names = names
		if len(names) == 0 {
			slices.Sort(out.Plugins)
			message := fmt.Sprintf("node(s) didn't satisfy plugin(s) %v simultaneously", out.Plugins)
			if len(out.Plugins) == 1 {
				message = "node(s) didn't satisfy plugin " + out.Plugins[0]
			}
			return out, framework.NewStatus(framework.UnschedulableAndUnresolvable, message).WithPlugin(p.Name())
		}
	}
	slices.Sort(out.Plugins)
	return out, rejected
}

// Filters returns the filters that are not skipped in this cycle.
func (f *Framework) Filters(state *framework.CycleState) []framework.FilterPlugin {
	active := make([]framework.FilterPlugin, 0, len(f.filter))
	for _, p := range f.filter {
		if !state.FilterSkipped(p.Name()) {
			active = append(active, p)
		}
	}
	return active
}

// RunFilters stops at the first of the filters that rejects the node. What is neither success nor a rejection becomes
// an Error.
func RunFilters(filters []framework.FilterPlugin, state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	return runFilters(filters, state, pod, node, false)
}

// TimeFilters is RunFilters that has the state note what each filter took. It is for one node in many: looking at the
// clock costs as much as many a filter.
func TimeFilters(filters []framework.FilterPlugin, state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	return runFilters(filters, state, pod, node, true)
}

func runFilters(filters []framework.FilterPlugin, state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo, timed bool) *framework.Status {
	for _, p := range filters {
		var begun time.Time
		if timed {
			begun = state.Begin()
		}
		st := p.Filter(state, pod, node)
		if timed {
			state.End(Filter, p.Name(), begun, 1, st)
		}
		if st.IsSuccess() {
			continue
		}
		st = st.WithPlugin(p.Name())
		if !st.IsRejected() {
			return asError("Filter", st)
		}
		return st
	}
	return nil
}

// RunAddPod and RunRemovePod keep the plugins' cycle state right while pods are moved in thought.
func (f *Framework) RunAddPod(state *framework.CycleState, pod, added *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	return f.runExtensions(state, func(x framework.PreFilterExtensions) *framework.Status { return x.AddPod(state, pod, added, node) })
}

// RunRemovePod is the opposite of RunAddPod.
func (f *Framework) RunRemovePod(state *framework.CycleState, pod, removed *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	return f.runExtensions(state, func(x framework.PreFilterExtensions) *framework.Status { return x.RemovePod(state, pod, removed, node) })
}

func (f *Framework) runExtensions(state *framework.CycleState, call func(framework.PreFilterExtensions) *framework.Status) *framework.Status {
	for _, p := range f.preFilter {
		x := p.PreFilterExtensions()
		if x == nil || state.FilterSkipped(p.Name()) {
			continue
		}
		if st := call(x); !st.IsSuccess() {
			return asError("PreFilterExtensions", st.WithPlugin(p.Name()))
		}
	}
	return nil
}

// RunPostFilter asks plugins to make room until one succeeds, or says that nothing helps. Reasons add up.
func (f *Framework) RunPostFilter(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, rejected framework.NodeStatuses) (*framework.PostFilterResult, *framework.Status) {
	var (
		kept    *framework.PostFilterResult
		reasons []string
		last    string
	)
	for _, p := range f.postFilter {
		result, st := p.PostFilter(ctx, state, pod, rejected)
		st = st.WithPlugin(p.Name())
		switch {
		case st.IsSuccess(), st.Code() == framework.UnschedulableAndUnresolvable:
			return result, st
		case !st.IsRejected():
			return nil, asError("PostFilter", st)
		}
		if result != nil {
			kept = result
		}
		reasons, last = append(reasons, st.Reasons()...), p.Name()
	}
	return kept, framework.NewStatus(framework.Unschedulable, reasons...).WithPlugin(last)
}

// RunPreScore has plugins look at the nodes that are to be scored, and sit out if they have no opinion.
func (f *Framework) RunPreScore(state *framework.CycleState, pod *framework.PodInfo, nodes []*framework.NodeInfo) *framework.Status {
	for _, p := range f.preScore {
		begun := state.Begin()
		st := p.PreScore(state, pod, nodes)
		state.End(PreScore, p.Name(), begun, 1, st)
		switch {
		case st.IsSkip():
			state.SkipScore(p.Name())
		case !st.IsSuccess():
			return asError("PreScore", st.WithPlugin(p.Name()))
		}
	}
	return nil
}

// RunScore adds up the weighted scores of the nodes, in their order. RunPreScore comes before it.
func (f *Framework) RunScore(state *framework.CycleState, pod *framework.PodInfo, nodes []*framework.NodeInfo) ([]int64, *framework.Status) {
	total := make([]int64, len(nodes))
	scores := make([]int64, len(nodes))
	for _, p := range f.score {
		if state.ScoreSkipped(p.Name()) {
			continue
		}
		begun := state.Begin()
		for i, n := range nodes {
			s, st := p.Score(state, pod, n)
			if !st.IsSuccess() {
				return nil, asError("Score", st.WithPlugin(p.Name()))
			}
			scores[i] = s
		}
		if x, ok := p.ScorePlugin.(framework.NormalizeScorePlugin); ok {
			if st := x.NormalizeScore(state, pod, scores); !st.IsSuccess() {
				return nil, asError("NormalizeScore", st.WithPlugin(p.Name()))
			}
		}
		for i, s := range scores {
			if s < framework.MinScore || s > framework.MaxScore {
				return nil, framework.AsStatus(fmt.Errorf("plugin %s scores node %s %d, want %d to %d",
					p.Name(), nodes[i].Name(), s, framework.MinScore, framework.MaxScore)).WithPlugin(p.Name())
			}
			total[i] += s * p.weight
		}
		state.End(Score, p.Name(), begun, len(nodes), nil)
	}
	return total, nil
}

// asError turns whatever is not allowed at a point into an Error that names the point.
func asError(point string, st *framework.Status) *framework.Status {
	return framework.AsStatus(fmt.Errorf("%s of plugin %s: %w", point, st.Plugin(), errOf(st))).WithPlugin(st.Plugin())
}

func errOf(st *framework.Status) error {
	if err := st.Err(); err != nil {
		return err
	}
	return fmt.Errorf("status %s is not allowed here", st.Code())
}
