package explain

import (
	"cmp"
	"slices"
	"strings"

	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cycle"
)

// Plugins whose rejections mean something of their own here.
const (
	fitPlugin      = "NodeResourcesFit"
	affinityPlugin = "NodeAffinity"
	namePlugin     = "NodeName"
)

// judgement is what would come of one pod now.
type judgement struct {
	// nodes are how many were looked at.
	nodes int
	// fits are the nodes that would do, the best first.
	fits []*schedulingv1.NodeVerdict
	// refused are the others, in their order.
	refused []*schedulingv1.NodeVerdict
	// causes are why: first the one whose end would help most, then by the number of nodes.
	causes []cause
	// shortage is of what the pod lacks room for; nil where room is not what it lacks.
	shortage *shortage
	// unmatched is what the pod wants of a node's labels and no node has; nil where there is no such thing.
	unmatched *unmatched
	// victims would give way on the node called room.
	victims []string
	room    string

	state    *framework.CycleState
	verdicts framework.Verdicts
}

// cause is a reason for which nodes are rejected.
type cause struct {
	plugin     string
	reasons    []string
	count      int
	resolvable bool
	// nodes that it holds for: the first few.
	nodes []string
	// whole: the pod was rejected as such, before any node was looked at.
	whole bool
}

func causeOf(st *framework.Status) cause {
	return cause{plugin: st.Plugin(), reasons: st.Reasons(), resolvable: st.Code() == framework.Unschedulable}
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
		c := causeOf(st)
		c.count, c.whole = len(positions), true
		j.causes = []cause{c}
		return j, nil
	case !st.IsSuccess():
		return nil, st.Err()
	}
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

// refusal is all that filters have against one node. The first counts: that the pod does not want the node, or else the first
// in the order of the filters.
type refusal struct {
	node *framework.NodeInfo
	by   []*framework.Status
	// unwanted: by its labels or its name the node is none that the pod asks for.
	unwanted bool
}

// refusals looks again at the nodes that are out, now with all filters.
func (t *trial) refusals(j *judgement, pod *framework.PodInfo) []refusal {
	var out []refusal
	j.verdicts.Each(func(node *framework.NodeInfo, first *framework.Status) {
		r := refusal{node: node, by: t.fw.Rejections(j.state, pod, node)}
		if !slices.ContainsFunc(r.by, func(st *framework.Status) bool { return st.Plugin() == first.Plugin() }) {
			r.by = slices.Insert(r.by, 0, first) // PreFilter's, or for the sake of pods that are nominated there
		}
		unwanted := slices.IndexFunc(r.by, func(st *framework.Status) bool { return st.Plugin() == affinityPlugin || st.Plugin() == namePlugin })
		if unwanted >= 0 {
			first := r.by[unwanted]
			r.unwanted, r.by = true, slices.Insert(slices.Delete(r.by, unwanted, unwanted+1), 0, first)
		}
		out = append(out, r)
	})
	return out
}

// nearer orders nodes by how much is against them: those first that the pod wants.
func nearer(a, b refusal) int {
	switch {
	case a.unwanted && !b.unwanted:
		return 1
	case b.unwanted && !a.unwanted:
		return -1
	}
	return cmp.Compare(len(a.by), len(b.by))
}

// account sums up why nodes would not do.
func (t *trial) account(j *judgement, pod *framework.PodInfo) {
	all := t.refusals(j, pod)
	at := map[string]int{} // causes by plugin and message
	causes := make([]int, len(all))
	for k, r := range all {
		v := &schedulingv1.NodeVerdict{NodeName: r.node.Name(), Plugin: r.by[0].Plugin(), Reasons: r.by[0].Reasons()}
		for _, st := range r.by[1:] {
			v.Further = append(v.Further, &schedulingv1.Rejection{Plugin: st.Plugin(), Reasons: st.Reasons()})
		}
		j.refused = append(j.refused, v)
		key := r.by[0].Plugin() + ": " + r.by[0].Message()
		i, ok := at[key]
		if !ok {
			i = len(j.causes)
			at[key] = i
			j.causes = append(j.causes, causeOf(r.by[0]))
		}
		c := &j.causes[i]
		causes[k] = i
		c.count++
		if len(c.nodes) < maxCauseNodes {
			c.nodes = append(c.nodes, r.node.Name())
		}
	}
	if len(all) == 0 {
		return
	}

	nearest := slices.MinFunc(all, nearer)
	helps := make([]int, len(j.causes))
	var lacking []room
	for k := range all {
		r := &all[k]
		if nearer(*r, nearest) > 0 {
			continue
		}
		helps[causes[k]]++
		if r.by[0].Plugin() == fitPlugin {
			lacking = append(lacking, room{r.node.Name(), &r.node.Allocatable, &r.node.Requested, len(r.node.Pods)})
		}
	}
	first := 0
	for i := range j.causes {
		if cmp.Or(cmp.Compare(helps[i], helps[first]), before(&j.causes[first], &j.causes[i])) > 0 {
			first = i
		}
	}
	c := j.causes[first]
	rest := slices.Delete(j.causes, first, first+1)
	slices.SortStableFunc(rest, func(a, b cause) int { return before(&a, &b) })
	j.causes = slices.Insert(rest, 0, c)
	j.shortage = shortageOf(&pod.Request, lacking)
	if len(j.fits) == 0 && c.plugin == affinityPlugin {
		j.unmatched = unmatchedOf(t.snapshot.Nodes(), pod.Pod.GetSpec())
	}
}

// before orders causes by how many nodes they hold for; room goes before others.
func before(a, b *cause) int {
	rank := func(c *cause) int {
		if c.plugin == fitPlugin {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(rank(b), rank(a)), strings.Compare(a.plugin, b.plugin))
}

// counts are the causes as they go over the wire.
func (j *judgement) counts() []*schedulingv1.ReasonCount { return reasonCounts(j.causes) }

// causesOf are those of an attempt, the most frequent first.
func causesOf(rejections []cycle.Rejection) []cause {
	var out []cause
	for _, r := range rejections {
		c := causeOf(r.Status)
		c.count = r.Nodes
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b cause) int { return before(&a, &b) })
	return out
}

// reasonCounts counts nodes by each reason by itself, the most frequent first.
func reasonCounts(causes []cause) []*schedulingv1.ReasonCount {
	type key struct{ plugin, reason string }
	at := map[key]*schedulingv1.ReasonCount{}
	var out []*schedulingv1.ReasonCount
	for _, c := range causes {
		for _, reason := range c.reasons {
			k := key{c.plugin, reason}
			if at[k] == nil {
				at[k] = &schedulingv1.ReasonCount{Plugin: c.plugin, Reason: reason}
				out = append(out, at[k])
			}
			at[k].Count += int32(c.count)
			at[k].Resolvable = at[k].GetResolvable() || c.resolvable
		}
	}
	slices.SortStableFunc(out, func(a, b *schedulingv1.ReasonCount) int {
		return cmp.Or(cmp.Compare(b.GetCount(), a.GetCount()), strings.Compare(a.GetPlugin(), b.GetPlugin()), strings.Compare(a.GetReason(), b.GetReason()))
	})
	return out
}

// defaultNodes are listed where nobody says how many.
const defaultNodes = 100

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
