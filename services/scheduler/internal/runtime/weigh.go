package runtime

import "trireme.dev/services/scheduler/framework"

// Weighed are the scores of one plugin.
type Weighed struct {
	Plugin string
	// Scores are normalised and weighted, in the order of the nodes that were scored.
	Scores []int64
}

// Weigh is RunScore that tells what each plugin gave. RunPreScore comes before it.
func (f *Framework) Weigh(state *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, feasible []int32) ([]Weighed, *framework.Status) {
	var out []Weighed
	for _, p := range f.score {
		if state.ScoreSkipped(p.Name()) {
			continue
		}
		scores := make([]int64, len(feasible))
		if st := scoreRaw(p.ScorePlugin, state, pod, nodes, feasible, scores); !st.IsSuccess() {
			return nil, st
		}
		if x, ok := p.ScorePlugin.(framework.NormalizeScorePlugin); ok {
			if st := x.NormalizeScore(state, pod, nodes, feasible, scores); !st.IsSuccess() {
				return nil, asError("NormalizeScore", st.WithPlugin(p.Name()))
			}
		}
		for k := range scores {
			scores[k] *= p.weight
		}
		out = append(out, Weighed{p.Name(), scores})
	}
	return out, nil
}
