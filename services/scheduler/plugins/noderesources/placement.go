package noderesources

import "trireme.dev/services/scheduler/framework"

// PlacementScore implements framework.PlacementScorePlugin: how much of the placement as a whole is used then, whatever
// the strategy for nodes, so that groups leave whole placements to others.
func (f *Fit) PlacementScore(_ *framework.CycleState, _ *framework.Queued, placed *framework.Placed, nodes *framework.Snapshot) (int64, *framework.Status) {
	return f.used(placed.Placement, nodes, nil), nil
}

// PlacementBound implements framework.BoundPlacementScorePlugin.
func (f *Fit) PlacementBound(_ *framework.CycleState, group *framework.Queued, placement *framework.Placement, nodes *framework.Snapshot) int64 {
	return f.used(placement, nodes, group.Pods)
}

// used is the weighted mean of the use of resources, summed up over the nodes of a placement and more pods.
func (f *Fit) used(placement *framework.Placement, nodes *framework.Snapshot, more []*framework.PodInfo) int64 {
	positions := nodes.Positions()
	if placement != nil && placement.Positions != nil {
		positions = placement.Positions
	}
	columns := nodes.Columns()
	var sum, weights int64
	for _, r := range f.strategy.resources {
		var have, used []int64
		want := func(p *framework.PodInfo) int64 { return p.Request.Get(r.Name) }
		switch r.Name {
		case framework.ResourceCPU:
			have, used = columns.Allocatable[framework.CPU], columns.ScoredCPU
			want = func(p *framework.PodInfo) int64 { return p.Scored.MilliCPU }
		case framework.ResourceMemory:
			have, used = columns.Allocatable[framework.Memory], columns.ScoredMemory
			want = func(p *framework.PodInfo) int64 { return p.Scored.Memory }
		default:
			id, ok := columns.Resource(r.Name)
			if !ok {
				continue
			}
			have, used = columns.Allocatable[id], columns.Requested[id]
		}
		var all, taken int64
		for _, i := range positions {
			all += have[i]
			taken += used[i]
		}
		for _, p := range more {
			taken += want(p)
		}
		if all > 0 {
			sum += percent(min(taken, all), all) * r.Weight
			weights += r.Weight
		}
	}
	if weights == 0 {
		return 0
	}
	return sum / weights
}
