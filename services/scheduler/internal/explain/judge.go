package explain

import (
	"cmp"
	"slices"
	"strings"

	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
)

// judgement is what would come of one pod now.
type judgement struct {
	nodes int
	// fits are the nodes that would do, the best first.
	fits []*schedulingv1.NodeVerdict
	// refused are the others, in their order.
	refused []*schedulingv1.NodeVerdict
	// causes are why, the most frequent first.
	causes []cause
	// shortage is of what the pod lacks room for; nil where room is not what it lacks.
	shortage *shortage

	state    *framework.CycleState
	verdicts framework.Verdicts
}

// cause is a reason for which nodes were rejected.
type cause struct {
	plugin     string
	reasons    []string
	count      int
	resolvable bool
	// nodes that it holds for: the first few.
	nodes []string
}

// maxCauseNodes are named of a cause.
const maxCauseNodes = 3

// judge looks at all nodes for a pod by itself.
func (t *trial) judge(pod *framework.PodInfo) (*judgement, error) {
	nodes, positions := t.snapshot.Columns(), t.snapshot.Positions()
	j := &judgement{nodes: len(positions), state: framework.NewCycleState()}
	j.verdicts.Reset(nodes.Nodes)
	if len(positions) == 0 {
		return j, nil
	}
	open := slices.Clone(positions)
	reject := func(st *framework.Status, which func(*framework.NodeInfo) bool) {
		j.verdicts.From(st.Plugin())
		r := j.verdicts.Reason(st)
		left := open[:0]
		for _, i := range open {
			if which(nodes.Nodes[i]) {
				j.verdicts.Reject(i, r)
			} else {
				left = append(left, i)
			}
		}
		open = left
	}
	narrowed, st := t.fw.RunPreFilter(j.state, pod, &t.snapshot.Snapshot)
	switch {
	case st.IsRejected():
		reject(st, func(*framework.NodeInfo) bool { return true })
	case !st.IsSuccess():
		return nil, st.Err()
	default:
		if narrowed.Names != nil {
			left := framework.NewStatus(framework.UnschedulableAndUnresolvable, narrowed.Message())
			if len(narrowed.Plugins) == 1 {
				left = left.WithPlugin(narrowed.Plugins[0])
			}
			reject(left, func(n *framework.NodeInfo) bool { return !narrowed.Has(n.Name()) })
		}
		if open, st = t.fw.RunFilterPass(j.state, pod, nodes, open, &j.verdicts); !st.IsSuccess() {
			return nil, st.Err()
		}
		for _, i := range slices.Clone(open) {
			if st := t.fw.RunFiltersAhead(j.state, pod, nodes.Nodes[i]); st.IsRejected() {
				reject(st, func(n *framework.NodeInfo) bool { return n.Index == i })
			} else if !st.IsSuccess() {
				return nil, st.Err()
			}
		}
	}
	if err := t.rank(j, pod, open); err != nil {
		return nil, err
	}
	t.account(j, pod)
	return j, nil
}

// rank scores the nodes that would do.
func (t *trial) rank(j *judgement, pod *framework.PodInfo, feasible []int32) error {
	if len(feasible) == 0 {
		return nil
	}
	nodes := t.snapshot.Columns()
	if st := t.fw.RunPreScore(j.state, pod, nodes, feasible); !st.IsSuccess() {
		return st.Err()
	}
	weighed, st := t.fw.Weigh(j.state, pod, nodes, feasible)
	if !st.IsSuccess() {
		return st.Err()
	}
	for k, i := range feasible {
		v := &schedulingv1.NodeVerdict{NodeName: nodes.Nodes[i].Name(), Scores: map[string]int64{}}
		for _, w := range weighed {
			v.Scores[w.Plugin] = w.Scores[k]
			v.Score += w.Scores[k]
		}
		j.fits = append(j.fits, v)
	}
	slices.SortStableFunc(j.fits, func(a, b *schedulingv1.NodeVerdict) int { return cmp.Compare(b.GetScore(), a.GetScore()) })
	return nil
}

// account sums up why the others would not do.
func (t *trial) account(j *judgement, pod *framework.PodInfo) {
	at := map[*framework.Status]int{}
	j.verdicts.Histogram(func(st *framework.Status, count int) {
		at[st] = len(j.causes)
		j.causes = append(j.causes, cause{
			plugin: st.Plugin(), reasons: st.Reasons(), count: count, resolvable: st.Code() == framework.Unschedulable,
		})
	})
	var lacking []room
	j.verdicts.Each(func(node *framework.NodeInfo, st *framework.Status) {
		j.refused = append(j.refused, &schedulingv1.NodeVerdict{NodeName: node.Name(), Plugin: st.Plugin(), Reasons: st.Reasons()})
		if c := &j.causes[at[st]]; len(c.nodes) < maxCauseNodes {
			c.nodes = append(c.nodes, node.Name())
		}
		if st.Plugin() == fitPlugin {
			lacking = append(lacking, room{node.Name(), &node.Allocatable, &node.Requested, len(node.Pods)})
		}
	})
	slices.SortStableFunc(j.causes, func(a, b cause) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(rank(b.plugin), rank(a.plugin)), strings.Compare(a.plugin, b.plugin))
	})
	j.shortage = shortageOf(&pod.Request, lacking)
}

// rank puts room before other causes where as many nodes lack it.
func rank(plugin string) int {
	if plugin == fitPlugin {
		return 1
	}
	return 0
}

// counts are the causes as they go over the wire, each reason by itself.
func (j *judgement) counts() []*schedulingv1.ReasonCount {
	var out []*schedulingv1.ReasonCount
	for _, c := range j.causes {
		for _, r := range c.reasons {
			out = append(out, &schedulingv1.ReasonCount{Count: int32(c.count), Plugin: c.plugin, Reason: r, Resolvable: c.resolvable})
		}
	}
	return merged(out)
}

// merged adds up the counts of equal reasons, and puts the most frequent first.
func merged(counts []*schedulingv1.ReasonCount) []*schedulingv1.ReasonCount {
	type key struct{ plugin, reason string }
	at := map[key]int{}
	var out []*schedulingv1.ReasonCount
	for _, c := range counts {
		k := key{c.GetPlugin(), c.GetReason()}
		if i, ok := at[k]; ok {
			out[i].Count += c.GetCount()
			out[i].Resolvable = out[i].GetResolvable() || c.GetResolvable()
			continue
		}
		at[k] = len(out)
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b *schedulingv1.ReasonCount) int {
		return cmp.Or(cmp.Compare(b.GetCount(), a.GetCount()), strings.Compare(a.GetPlugin(), b.GetPlugin()), strings.Compare(a.GetReason(), b.GetReason()))
	})
	return out
}

// clip leaves as many verdicts as were asked for.
func (j *judgement) clip(most int32) []*schedulingv1.NodeVerdict {
	all := slices.Concat(j.fits, j.refused)
	if most == 0 {
		most = defaultNodes
	}
	if most > 0 && len(all) > int(most) {
		all = all[:most]
	}
	return all
}

// defaultNodes are listed where nobody says how many.
const defaultNodes = 100
