package interpodaffinity

import (
	"math"

	"trireme.dev/services/scheduler/framework"
)

const scoreKey = Name + "/score"

// wishes are the weights that pods give to the domains of one label.
type wishes struct {
	column *framework.LabelColumn
	sums   []int64 // by domain
}

// scoreState is what the pod's wishes and those of its peers make of each domain, by label.
type scoreState []wishes

// Clone implements framework.StateData; it is never changed.
func (s scoreState) Clone() framework.StateData { return s }

// PreScore implements framework.PreScorePlugin.
func (p *Plugin) PreScore(state *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, _ []int32) *framework.Status {
	var (
		s        scoreState
		snapshot = p.handle.Snapshot()
	)
	wished := pod.Affinity != nil && len(pod.Affinity.Preferred)+len(pod.Affinity.AntiPreferred) > 0
	if wished {
		for _, t := range pod.Affinity.Preferred {
			s.add(nodes, t.TopologyKey, snapshot.Matching(t.PodSelector), int64(t.Weight))
		}
		for _, t := range pod.Affinity.AntiPreferred {
			s.add(nodes, t.TopologyKey, snapshot.Matching(t.PodSelector), -int64(t.Weight))
		}
	}
	if p.args.HardPodAffinityWeight > 0 {
		for _, h := range snapshot.Held(framework.HeldRequired, pod) {
			s.add(nodes, h.TopologyKey, &h.Counter, int64(p.args.HardPodAffinityWeight))
		}
	}
	if wished || !p.args.IgnorePreferredTermsOfExistingPods {
		for _, h := range snapshot.Held(framework.HeldPreferred, pod) {
			s.add(nodes, h.TopologyKey, &h.Counter, int64(h.Weight))
		}
		for _, h := range snapshot.Held(framework.HeldAntiPreferred, pod) {
			s.add(nodes, h.TopologyKey, &h.Counter, -int64(h.Weight))
		}
	}
	if len(s) == 0 {
		return framework.NewStatus(framework.Skip)
	}
	state.Write(scoreKey, s)
	return nil
}

// add weighs each pod that is counted.
func (s *scoreState) add(nodes *framework.Columns, key string, c *framework.Counter, weight int64) {
	if c.Total == 0 {
		return
	}
	label := nodes.Label(key)
	counts := c.By(label)
	var to *wishes
	for i := range *s {
		if (*s)[i].column == label {
			to = &(*s)[i]
		}
	}
	if to == nil {
		*s = append(*s, wishes{column: label, sums: make([]int64, label.Count())})
		to = &(*s)[len(*s)-1]
	}
	for d, n := range counts.Sums() {
		if d > 0 {
			to.sums[d] += int64(n) * weight
		}
	}
}

func (s scoreState) score(position int32) int64 {
	var sum int64
	for k := range s {
		sum += s[k].sums[s[k].column.Values[position]]
	}
	return sum
}

// Score implements framework.ScorePlugin: the sum of what the node's domains are worth.
func (p *Plugin) Score(state *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	s, _ := state.Read(scoreKey).(scoreState)
	return s.score(node.Index), nil
}

// ScorePass implements framework.ScorePassPlugin.
func (p *Plugin) ScorePass(state *framework.CycleState, _ *framework.PodInfo, _ *framework.Columns, feasible []int32, scores []int64) *framework.Status {
	s, _ := state.Read(scoreKey).(scoreState)
	for k, i := range feasible {
		scores[k] = s.score(i)
	}
	return nil
}

// NormalizeScore implements framework.NormalizeScorePlugin: the worst node gets 0 and the best MaxScore; all 0 where they
// are equal.
func (p *Plugin) NormalizeScore(_ *framework.CycleState, _ *framework.PodInfo, _ *framework.Columns, _ []int32, scores []int64) *framework.Status {
	var lowest, highest int64 = math.MaxInt64, math.MinInt64
	for _, n := range scores {
		lowest, highest = min(lowest, n), max(highest, n)
	}
	for k, n := range scores {
		scores[k] = 0
		if highest > lowest {
			scores[k] = int64(float64(framework.MaxScore) * (float64(n-lowest) / float64(highest-lowest)))
		}
	}
	return nil
}
