package podtopologyspread

import (
	"math"

	"trireme.dev/services/scheduler/framework"
)

const (
	scoreKey = Name + "/constraints"
	ranksKey = Name + "/score"
)

// softConstraints is what PreFilter found out, for PreScore to go on with.
type softConstraints struct {
	byDefault bool
	list      []constraint
}

// Clone implements framework.StateData; it is never changed.
func (s *softConstraints) Clone() framework.StateData { return s }

// rank is what a soft constraint makes of each domain.
type rank struct {
	column *framework.LabelColumn
	scores []float64 // by domain; 0 at 0
}

// ranks are the soft constraints of a pod with the nodes that are not ranked.
type ranks struct {
	list    []rank
	ignored []bool // by position; nil for none
}

// Clone implements framework.StateData; it is never changed.
func (r *ranks) Clone() framework.StateData { return r }

// PreScore implements framework.PreScorePlugin.
func (p *Plugin) PreScore(state *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, feasible []int32) *framework.Status {
	known, _ := state.Read(scoreKey).(*softConstraints)
	if known == nil {
		return framework.NewStatus(framework.Skip)
	}
	var (
		soft   []*constraint
		labels []*framework.LabelColumn
	)
	for i := range known.list {
		if c := &known.list[i]; !c.hard {
			soft = append(soft, c)
			labels = append(labels, nodes.Label(c.key))
		}
	}
	if len(soft) == 0 {
		return framework.NewStatus(framework.Skip)
	}
	var (
		out   ranks
		asked = labels // the labels without which a node is not ranked
		n     = len(feasible)
	)
	if known.byDefault && p.system {
		asked = nil
	}
	for _, i := range feasible {
		for _, l := range asked {
			if l.Values[i] != 0 {
				continue
			}
			if out.ignored == nil {
				out.ignored = make([]bool, len(nodes.Nodes))
			}
			out.ignored[i] = true
			n--
			break
		}
	}
	snapshot := p.handle.Snapshot()
	for k, c := range soft {
		out.list = append(out.list, c.rank(pod, snapshot, feasible, &out, labels[k], asked, n))
	}
	state.Write(ranksKey, &out)
	return nil
}

// rank sums the pods by domain, as far as a feasible node is in it, and weighs them: the more domains there are, the more
// each pod says.
func (c *constraint) rank(pod *framework.PodInfo, snapshot *framework.Snapshot, feasible []int32, all *ranks, column *framework.LabelColumn, asked []*framework.LabelColumn, ranked int) rank {
	candidate := make([]bool, column.Count())
	domains := 0
	for _, i := range feasible {
		d := column.Values[i]
		if d == 0 || candidate[d] || all.ignored != nil && all.ignored[i] {
			continue
		}
		candidate[d] = true
		domains++
	}
	pods := snapshot.Matching(c.selector).PerNode
	counts := make([]int64, column.Count())
	// A host's pods count even where the policies leave it out: each is its own domain, and it is a candidate.
	var out []bool
	if c.key != framework.LabelHostname {
		out = counted(c, pod, snapshot, asked)
	} else {
		domains = ranked
	}
	for i, d := range column.Values {
		if candidate[d] && (out == nil || out[i]) {
			counts[d] += int64(pods[i])
		}
	}
	weight := math.Log(float64(domains + 2))
	r := rank{column: column, scores: make([]float64, len(counts))}
	for d := 1; d < len(counts); d++ {
		r.scores[d] = float64(counts[d])*weight + float64(c.maxSkew-1)
	}
	return r
}

func (r *ranks) score(position int32) int64 {
	if r.ignored != nil && r.ignored[position] {
		return 0
	}
	var sum float64
	for k := range r.list {
		sum += r.list[k].scores[r.list[k].column.Values[position]]
	}
	return int64(math.Round(sum))
}

// Score implements framework.ScorePlugin: the pods that are there already, so that fewer is better.
func (p *Plugin) Score(state *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	r, _ := state.Read(ranksKey).(*ranks)
	return r.score(node.Index), nil
}

// ScorePass implements framework.ScorePassPlugin.
func (p *Plugin) ScorePass(state *framework.CycleState, _ *framework.PodInfo, _ *framework.Columns, feasible []int32, scores []int64) *framework.Status {
	r, _ := state.Read(ranksKey).(*ranks)
	for k, i := range feasible {
		scores[k] = r.score(i)
	}
	return nil
}

// NormalizeScore implements framework.NormalizeScorePlugin: 100*(max+min-s)/max, and 0 for nodes that are not ranked.
func (p *Plugin) NormalizeScore(state *framework.CycleState, _ *framework.PodInfo, _ *framework.Columns, feasible []int32, scores []int64) *framework.Status {
	r, _ := state.Read(ranksKey).(*ranks)
	var lowest, highest int64 = math.MaxInt64, 0
	for k, i := range feasible {
		if r.ignored == nil || !r.ignored[i] {
			lowest, highest = min(lowest, scores[k]), max(highest, scores[k])
		}
	}
	for k, i := range feasible {
		switch {
		case r.ignored != nil && r.ignored[i]:
			scores[k] = 0
		case highest == 0:
			scores[k] = framework.MaxScore
		default:
			scores[k] = framework.MaxScore * (highest + lowest - scores[k]) / highest
		}
	}
	return nil
}
