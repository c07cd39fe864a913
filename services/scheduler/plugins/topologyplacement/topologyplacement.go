// Package topologyplacement places groups as a whole into one domain of a topology, such as one rack: Generator says which
// domains there are, PodsCount prefers the one in which most of the group's pods fit.
package topologyplacement

import (
	"fmt"
	"slices"
	"strings"

	"trireme.dev/services/scheduler/framework"
)

// Names of the plugins.
const (
	GeneratorName = "TopologyPlacementGenerator"
	PodsCountName = "PodGroupPodsCount"
)

// Generator is a PlacementGenerate. The zero value is ready.
type Generator struct{}

// Name implements framework.Plugin.
func (Generator) Name() string { return GeneratorName }

// EventsToRegister implements framework.EnqueueExtensions: a node may bring a domain, and the last member that goes frees
// the group from the one that it was in.
func (Generator) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add | framework.UpdateNodeLabel}},
		{Event: framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete}},
	}
}

// PlacementGenerate implements framework.PlacementGeneratePlugin: one placement for each value of the label that the group's
// topology constraint names, by name. A group without a constraint may go anywhere; one of which pods are on nodes
// already goes where they are.
func (Generator) PlacementGenerate(_ *framework.CycleState, group *framework.Queued, parent *framework.Placement, nodes *framework.Snapshot) ([]*framework.Placement, *framework.Status) {
	constraints := group.Group.GetSpec().GetSchedulingConstraints().GetTopology()
	if len(constraints) == 0 {
		return []*framework.Placement{parent}, nil
	}
	label := nodes.Columns().Label(constraints[0].GetKey())
	taken, st := domainOf(group, nodes, label)
	if st != nil {
		return nil, st
	}
	positions := nodes.Positions()
	if parent != nil && parent.Positions != nil {
		positions = parent.Positions
	}
	belongs := func(d int32) bool { return d != 0 && (taken == 0 || d == taken) }
	counts, all := make([]int, label.Count()), 0
	for _, i := range positions {
		if d := label.Values[i]; belongs(d) {
			counts[d]++
			all++
		}
	}
	// The lists share one piece of memory, in which each has its part.
	byDomain, room := make([][]int32, label.Count()), make([]int32, all)
	for d, n := range counts {
		byDomain[d], room = room[:0:n], room[n:]
	}
	for _, i := range positions {
		if d := label.Values[i]; belongs(d) {
			byDomain[d] = append(byDomain[d], i)
		}
	}
	var out []*framework.Placement
	for d, list := range byDomain {
		if len(list) > 0 {
			out = append(out, &framework.Placement{Name: label.Key + "=" + label.Name(int32(d)), Positions: list})
		}
	}
	slices.SortFunc(out, func(a, b *framework.Placement) int { return strings.Compare(a.Name, b.Name) })
	if len(out) == 0 {
		return nil, framework.NewStatus(framework.UnschedulableAndUnresolvable, fmt.Sprintf("no node has the label %s", label.Key))
	}
	return out, nil
}

// domainOf returns the domain that members of the group are in already; 0 where none is on a node.
func domainOf(group *framework.Queued, nodes *framework.Snapshot, label *framework.LabelColumn) (int32, *framework.Status) {
	if group.Scheduled == 0 {
		return 0, nil
	}
	taken, first := int32(0), ""
	for _, m := range nodes.Members(group.GroupKey) {
		switch d := label.Values[m.Node.Index]; {
		case d == 0:
			return 0, framework.NewStatus(framework.Error, fmt.Sprintf("pod %s of the group is on node %s, which has no label %s", m.Pod.Name(), m.Node.Name(), label.Key))
		case taken == 0:
			taken, first = d, m.Pod.Name()
		case d != taken:
			return 0, framework.NewStatus(framework.Error, fmt.Sprintf("pods of the group are in two domains of %s: %s in %s, %s in %s",
				label.Key, first, label.Name(taken), m.Pod.Name(), label.Name(d)))
		}
	}
	return taken, nil
}

// PodsCount is a PlacementScore. The zero value is ready.
type PodsCount struct{}

// Name implements framework.Plugin.
func (PodsCount) Name() string { return PodsCountName }

// PlacementScore implements framework.PlacementScorePlugin: how many pods of the group are there then.
func (PodsCount) PlacementScore(_ *framework.CycleState, group *framework.Queued, placed *framework.Placed, _ *framework.Snapshot) (int64, *framework.Status) {
	return int64(group.Scheduled + len(placed.Assignments)), nil
}

// PlacementBound implements framework.BoundPlacementScorePlugin.
func (PodsCount) PlacementBound(_ *framework.CycleState, group *framework.Queued, _ *framework.Placement, _ *framework.Snapshot) int64 {
	return int64(group.Scheduled + len(group.Pods))
}

// NormalizePlacementScore implements framework.NormalizePlacementScorePlugin. A group of which nothing would be placed
// anywhere has no business here.
func (PodsCount) NormalizePlacementScore(_ *framework.CycleState, _ *framework.Queued, _ []framework.Placed, scores []int64) *framework.Status {
	if slices.Max(scores) == 0 {
		return framework.NewStatus(framework.Error, "no placement holds a pod of the group")
	}
	framework.NormalizeDefault(scores, false)
	return nil
}
