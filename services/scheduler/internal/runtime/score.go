package runtime

import (
	"context"
	"fmt"

	"trireme.dev/services/scheduler/framework"
)

// MakesRoom reports whether there is a plugin that RunPostFilter asks.
func (f *Framework) MakesRoom() bool { return len(f.postFilter) > 0 }

// RunPostFilter asks plugins to make room until one succeeds, or says that nothing helps. Reasons add up.
func (f *Framework) RunPostFilter(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, rejected *framework.Verdicts) (*framework.PostFilterResult, *framework.Status) {
	var (
		kept    *framework.PostFilterResult
		reasons []string
		last    string
	)
	for at, p := range f.postFilter {
		f.running.site.Store(f.running.postFilter[at])
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
func (f *Framework) RunPreScore(state *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, feasible []int32) *framework.Status {
	for at, p := range f.preScore {
		f.running.site.Store(f.running.preScore[at])
		begun := state.Begin()
		st := p.PreScore(state, pod, nodes, feasible)
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

// RunScore adds up the weighted scores of the nodes at the positions feasible, in their order, in the memory of total.
// RunPreScore comes before it.
func (f *Framework) RunScore(state *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, feasible []int32, total []int64) ([]int64, *framework.Status) {
	n := len(feasible)
	total = append(total[:0], make([]int64, n)...)
	if cap(f.scores) < n {
		f.scores = make([]int64, n)
	}
	scores := f.scores[:n]
	for at, p := range f.score {
		if state.ScoreSkipped(p.Name()) {
			continue
		}
		f.running.site.Store(f.running.score[at])
		begun := state.Begin()
		if st := scoreRaw(p.ScorePlugin, state, pod, nodes, feasible, scores); !st.IsSuccess() {
			return nil, st
		}
		if x, ok := p.ScorePlugin.(framework.NormalizeScorePlugin); ok {
			if st := x.NormalizeScore(state, pod, nodes, feasible, scores); !st.IsSuccess() {
				return nil, asError("NormalizeScore", st.WithPlugin(p.Name()))
			}
		}
		for k, s := range scores {
			if s < framework.MinScore || s > framework.MaxScore {
				return nil, outOfRange(p, nodes.Nodes[feasible[k]], s)
			}
			total[k] += s * p.weight
		}
		state.End(Score, p.Name(), begun, n, nil)
	}
	return total, nil
}

// scoreRaw runs Score of one plugin, without NormalizeScore.
func scoreRaw(p framework.ScorePlugin, state *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, feasible []int32, scores []int64) *framework.Status {
	if x, ok := p.(framework.ScorePassPlugin); ok {
		if st := x.ScorePass(state, pod, nodes, feasible, scores); !st.IsSuccess() {
			return asError("Score", st.WithPlugin(p.Name()))
		}
		return nil
	}
	for k, i := range feasible {
		s, st := p.Score(state, pod, nodes.Nodes[i])
		if !st.IsSuccess() {
			return asError("Score", st.WithPlugin(p.Name()))
		}
		scores[k] = s
	}
	return nil
}

func outOfRange(p framework.Plugin, node *framework.NodeInfo, score int64) *framework.Status {
	return framework.AsStatus(fmt.Errorf("plugin %s scores node %s %d, want %d to %d",
		p.Name(), node.Name(), score, framework.MinScore, framework.MaxScore)).WithPlugin(p.Name())
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
