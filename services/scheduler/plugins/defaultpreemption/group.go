package defaultpreemption

import (
	"context"
	"slices"

	"trireme.dev/services/scheduler/framework"
)

// PodGroupPostFilter implements framework.PodGroupPostFilterPlugin: it makes room for a whole group in the placement in which
// that costs least.
func (p *Plugin) PodGroupPostFilter(ctx context.Context, _ *framework.CycleState, group *framework.Queued, nodes *framework.Snapshot, attempt framework.GroupAttempt) (*framework.PodGroupPostFilterResult, *framework.Status) {
	if why := p.ineligibleGroup(group, nodes); why != "" {
		return nil, framework.NewStatus(framework.Unschedulable, "preemption: not eligible due to "+why)
	}
	s := newGroupSearch(p, group, nodes, attempt)
	if len(s.units.all) == 0 {
		return &framework.PodGroupPostFilterResult{}, framework.NewStatus(framework.Unschedulable)
	}
	best, err := s.run()
	if err != nil {
		return nil, framework.AsStatus(err)
	}
	if best == nil {
		return &framework.PodGroupPostFilterResult{}, framework.NewStatus(framework.Unschedulable,
			"preemption: it would not fit even without the pods of lower priority")
	}
	result := &framework.PodGroupPostFilterResult{Placement: best.placement, Nominated: best.assignments}
	for _, u := range best.victims {
		result.Victims = append(result.Victims, u.pods...)
	}
	p.makeRoomFor(ctx, group, result)
	return result, nil
}

// ineligibleGroup says why a group may not preempt; empty where it may.
func (p *Plugin) ineligibleGroup(group *framework.Queued, nodes *framework.Snapshot) string {
	for _, pod := range group.Pods {
		if pod.Pod.GetSpec().GetPreemptionPolicy() == "Never" {
			return "preemptionPolicy=Never."
		}
		node := nodes.Node(p.nominatedNode(pod))
		if node == nil {
			continue
		}
		for _, other := range node.Pods {
			if other.Priority() < group.Priority() && other.Preempted() {
				return "terminating pods on the nominated nodes."
			}
		}
	}
	return ""
}

// makeRoomFor takes the victims away as makeRoom does. Where there are none, the group can go to the nodes at once.
func (p *Plugin) makeRoomFor(ctx context.Context, group *framework.Queued, room *framework.PodGroupPostFilterResult) {
	for _, a := range room.Nominated {
		p.clearNominations(a.Node, a.Pod)
	}
	if len(room.Victims) == 0 {
		p.handle.Activate(group.Pods...)
		return
	}
	p.takeAway(ctx, preemptor{
		id: idOf(group.GroupKey), pods: slices.Clone(group.Pods), what: "pod group " + group.GroupKey.String(),
	}, room.Victims)
}

var makingForGroup = framework.NewStatus(framework.UnschedulableAndUnresolvable, "waiting for the preemption for this pod group to be finished")

// PreEnqueueGroup implements framework.PreEnqueueGroupPlugin.
func (p *Plugin) PreEnqueueGroup(group *framework.Queued) *framework.Status {
	if p.isMaking(idOf(group.GroupKey)) {
		return makingForGroup
	}
	return nil
}

// idOf is the id of a group in making, which no uid is.
func idOf(key framework.GroupKey) string { return "group " + key.String() }
