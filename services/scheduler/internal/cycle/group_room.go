package cycle

import (
	"context"
	"time"

	"trireme.dev/services/scheduler/framework"
)

// makeRoom gives plugins the chance to make room for a group that fits nowhere, and notes in the decision what they say.
func (g *groupSearch) makeRoom(ctx context.Context, out *Decision) error {
	d := g.d
	if !d.fw.MakesRoomForGroups() {
		return nil
	}
	rotation := d.rotation
	defer func() { d.rotation = rotation }()
	thought := &groupSearch{d: d, q: g.q, state: g.state} // nobody watches it, and nobody scores its placements
	classes := d.classes(g.q.Pods)
	begun := time.Now()
	result, st := d.fw.RunPodGroupPostFilter(ctx, g.state, g.q, d.snapshot, framework.GroupAttempt{
		Placements: g.placements,
		Try: func(p *framework.Placement) (framework.Placed, *framework.Status) {
			d.rotation = rotation
			t, err := d.try(ctx, thought, p, classes)
			switch {
			case err != nil:
				return framework.Placed{}, framework.AsStatus(err)
			case !t.fits(g.q):
				return t.Placed, framework.NewStatus(framework.Unschedulable)
			}
			return t.Placed, nil
		},
		Judge: d.judge,
	})
	g.watch.madeRoom(begun, st.Code())
	if st.Code() == framework.Error {
		return st.Err()
	}
	if why := st.Message(); why != "" {
		out.Message += "; " + why
	}
	if result != nil {
		out.give(result)
	}
	for i := range out.Failed {
		out.Failed[i].Message = out.Message
	}
	return nil
}

// judge judges a pod on one node of a placement.
func (d *Decider) judge(p *framework.Placement, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	d.snapshot.Within(p)
	defer d.snapshot.Within(nil)
	state := framework.NewCycleState()
	narrowed, st := d.fw.RunPreFilter(state, pod, d.snapshot)
	switch {
	case !st.IsSuccess():
		return st
	case !narrowed.Has(node.Name()):
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, narrowed.Message())
	}
	return d.fw.RunFilters(state, pod, node)
}

// give notes for which of the pods that were not placed room is being made, and who makes way.
func (out *Decision) give(result *framework.PodGroupPostFilterResult) {
	nodes := make(map[string]string, len(result.Nominated))
	for _, a := range result.Nominated {
		nodes[a.Pod.UID()] = a.Node
	}
	victims := make(map[string][]framework.Member)
	for _, v := range result.Victims {
		victims[v.Node.Name()] = append(victims[v.Node.Name()], v)
	}
	out.Victims = result.Victims
	for i := range out.Failed {
		f := &out.Failed[i]
		f.NominatedNode = nodes[f.Pod.UID()]
		f.Clear = f.NominatedNode == ""
		f.Victims = victims[f.NominatedNode]
	}
}
