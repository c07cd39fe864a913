package runtime

import (
	"trireme.dev/services/scheduler/framework"
)

// Ranking keeps, for pods of one signature, the score of every feasible node among some, and can bring it up to date after
// a few of them have changed, exactly as scoring all of them anew would: a plugin's normaliser is run over all nodes again
// only where it could give another result for those that did not change. Make it with NewRanking.
type Ranking struct {
	f *Framework
	// positions that are ranked, ascending; k counts them in what follows.
	positions []int32
	state     *framework.CycleState
	ready     bool // PreScore has run
	feasible  []bool
	count     int
	plugins   []*ranked
	// Total by k; -1 where the node is not feasible.
	Total []int64

	list, at []int32 // reused
	scores   []int64
}

// ranked is one plugin's part.
type ranked struct {
	weighted
	kind    normalizer
	reverse bool
	raw     []int64 // by k; of nodes that are feasible
	// highest of the feasible nodes, at least 0, and how many have it; by max only.
	highest int64
	at      int
}

type normalizer int

const (
	asIs normalizer = iota
	byMax
	custom
)

// NewRanking ranks the nodes at these positions, of which none is feasible yet. state is that of a pod's PreFilter; it is kept.
func (f *Framework) NewRanking(state *framework.CycleState, positions []int32) *Ranking {
	r := &Ranking{f: f, positions: positions, state: state, feasible: make([]bool, len(positions)), Total: make([]int64, len(positions))}
	for k := range r.Total {
		r.Total[k] = -1
	}
	return r
}

// State that plugins are given.
func (r *Ranking) State() *framework.CycleState { return r.state }

// Feasible is how many nodes are.
func (r *Ranking) Feasible() int { return r.count }

// prepare runs PreScore, once: for pods with a signature it does not depend on which nodes are feasible.
func (r *Ranking) prepare(pod *framework.PodInfo, nodes *framework.Columns, feasible []int32) *framework.Status {
	if r.ready {
		return nil
	}
	if st := r.f.RunPreScore(r.state, pod, nodes, feasible); !st.IsSuccess() {
		return st
	}
	for _, p := range r.f.score {
		if r.state.ScoreSkipped(p.Name()) {
			continue
		}
		x := &ranked{weighted: p, raw: make([]int64, len(r.positions))}
		switch n := p.ScorePlugin.(type) {
		case framework.MaxNormalizer:
			x.kind, x.reverse = byMax, n.NormalizesByMax()
		case framework.NormalizeScorePlugin:
			x.kind = custom
		}
		r.plugins = append(r.plugins, x)
	}
	r.ready = true
	return nil
}

// Update takes over that of the nodes at the ks, which ascend, those in feasible (positions, ascending) are feasible now and
// the others are not. changed is called for each k whose total is another than before, and all is returned where every
// total may be.
func (r *Ranking) Update(pod *framework.PodInfo, nodes *framework.Columns, ks, feasible []int32, changed func(k int32)) (all bool, st *framework.Status) {
	if len(feasible) > 0 {
		if st := r.prepare(pod, nodes, feasible); !st.IsSuccess() {
			return false, st
		}
	}
	// The ks of the feasible ones, in step with them.
	r.at = r.at[:0]
	next, touched := 0, len(feasible) > 0
	for _, k := range ks {
		is := next < len(feasible) && feasible[next] == r.positions[k]
		if is {
			r.at = append(r.at, k)
			next++
		}
		if was := r.feasible[k]; was {
			for _, p := range r.plugins {
				p.leave(k)
			}
			r.count--
			touched = true
			if !is {
				r.Total[k] = -1
				changed(k)
			}
		}
		r.feasible[k] = is
		if is {
			r.count++
		}
	}
	if cap(r.scores) < len(feasible) {
		r.scores = make([]int64, len(feasible))
	}
	scores := r.scores[:len(feasible)]
	for _, p := range r.plugins {
		highest := p.highest
		if len(feasible) > 0 {
			begun := r.state.Begin()
			if st := scoreRaw(p.ScorePlugin, r.state, pod, nodes, feasible, scores); !st.IsSuccess() {
				return false, st
			}
			r.state.End(Score, p.Name(), begun, len(feasible), nil)
			for j, k := range r.at {
				p.raw[k] = scores[j]
				p.enter(scores[j])
			}
		}
		switch p.kind {
		case byMax:
			if p.at == 0 && p.highest > 0 {
				p.search(r.feasible)
			}
			all = all || p.highest != highest
		case custom:
			all = all || touched
		}
	}
	if all {
		return true, r.totals(pod, nodes)
	}
	for _, k := range r.at {
		total, st := r.total(k, nodes)
		if !st.IsSuccess() {
			return false, st
		}
		if r.Total[k] != total {
			r.Total[k] = total
			changed(k)
		}
	}
	return false, nil
}

func (p *ranked) leave(k int32) {
	if p.kind == byMax && p.raw[k] == p.highest {
		p.at--
	}
}

func (p *ranked) enter(score int64) {
	if p.kind != byMax {
		return
	}
	switch {
	case score > p.highest:
		p.highest, p.at = score, 1
	case score == p.highest:
		p.at++
	}
}

// search finds the highest anew.
func (p *ranked) search(feasible []bool) {
	p.highest, p.at = 0, 0
	for k, is := range feasible {
		if is {
			p.enter(p.raw[k])
		}
	}
}

// total of one node, where normalisers do not need the others.
func (r *Ranking) total(k int32, nodes *framework.Columns) (int64, *framework.Status) {
	var sum int64
	for _, p := range r.plugins {
		s := p.raw[k]
		if p.kind == byMax {
			s = framework.NormalizeOne(s, p.highest, p.reverse)
		}
		if s < framework.MinScore || s > framework.MaxScore {
			return 0, outOfRange(p, nodes.Nodes[r.positions[k]], s)
		}
		sum += s * p.weight
	}
	return sum, nil
}

// totals of all nodes.
func (r *Ranking) totals(pod *framework.PodInfo, nodes *framework.Columns) *framework.Status {
	r.list, r.at = r.list[:0], r.at[:0]
	for k, is := range r.feasible {
		if is {
			r.list = append(r.list, r.positions[k])
			r.at = append(r.at, int32(k))
		}
		r.Total[k] = -1
	}
	if len(r.list) == 0 {
		return nil // plugins never normalise nothing
	}
	if cap(r.scores) < len(r.list) {
		r.scores = make([]int64, len(r.list))
	}
	scores := r.scores[:len(r.list)]
	for n, p := range r.plugins {
		for j, k := range r.at {
			scores[j] = p.raw[k]
		}
		if x, ok := p.ScorePlugin.(framework.NormalizeScorePlugin); ok {
			if st := x.NormalizeScore(r.state, pod, nodes, r.list, scores); !st.IsSuccess() {
				return asError("NormalizeScore", st.WithPlugin(p.Name()))
			}
		}
		for j, k := range r.at {
			s := scores[j]
			if s < framework.MinScore || s > framework.MaxScore {
				return outOfRange(p, nodes.Nodes[r.positions[k]], s)
			}
			if n == 0 {
				r.Total[k] = 0
			}
			r.Total[k] += s * p.weight
		}
	}
	if len(r.plugins) == 0 {
		for _, k := range r.at {
			r.Total[k] = 0
		}
	}
	return nil
}
