package runtime

import (
	"context"
	"fmt"
	"slices"

	"trireme.dev/services/scheduler/framework"
)

// RunPlacementGenerate returns the placements of a group in the order in which they are to be tried; all nodes alone
// without a plugin. An empty list comes with a rejection.
func (f *Framework) RunPlacementGenerate(state *framework.CycleState, group *framework.Queued, nodes *framework.Snapshot) ([]*framework.Placement, *framework.Status) {
	all := &framework.Placement{}
	if f.placementGenerate == nil {
		return []*framework.Placement{all}, nil
	}
	out, st := f.placementGenerate.PlacementGenerate(state, group, all, nodes)
	st = st.WithPlugin(f.placementGenerate.Name())
	switch {
	case st.IsRejected():
		return nil, st
	case !st.IsSuccess():
		return nil, asError("PlacementGenerate", st)
	case len(out) == 0:
		return nil, framework.NewStatus(framework.Unschedulable, "no feasible placements found").WithPlugin(f.placementGenerate.Name())
	}
	return out, nil
}

// PlacementGenerator is the name of the plugin that generates placements; empty where there is none.
func (f *Framework) PlacementGenerator() string {
	if f.placementGenerate == nil {
		return ""
	}
	return f.placementGenerate.Name()
}

// Bounds are the highest scores that placements can have.
type Bounds struct {
	// raw by placement, then by plugin; highest by plugin.
	raw     [][]int64
	highest []int64
	// Total by placement: weighted and added up.
	Total []int64
}

// PlacementBounds asks how high the scores of placements can be; nil where a plugin does not know.
func (f *Framework) PlacementBounds(state *framework.CycleState, group *framework.Queued, placements []*framework.Placement, nodes *framework.Snapshot) *Bounds {
	plugins := make([]framework.BoundPlacementScorePlugin, len(f.placementScore))
	for i, p := range f.placementScore {
		x, ok := p.PlacementScorePlugin.(framework.BoundPlacementScorePlugin)
		if !ok {
			return nil
		}
		plugins[i] = x
	}
	b := &Bounds{raw: make([][]int64, len(placements)), highest: make([]int64, len(plugins)), Total: make([]int64, len(placements))}
	for k, placement := range placements {
		b.raw[k] = make([]int64, len(plugins))
		for i, p := range plugins {
			score := p.PlacementBound(state, group, placement, nodes)
			b.raw[k][i] = score
			b.highest[i] = max(b.highest[i], score)
		}
	}
	for k, raw := range b.raw {
		for i, score := range raw {
			if _, ok := f.placementScore[i].PlacementScorePlugin.(framework.NormalizePlacementScorePlugin); ok {
				score = framework.NormalizeOne(score, b.highest[i], false)
			}
			b.Total[k] += score * f.placementScore[i].weight
		}
	}
	return b
}

// Reached reports whether the scores of placement k are as high as they can be, and none's that are normalised can be
// higher: then no placement of a lower Total can have more.
func (b *Bounds) Reached(f *Framework, k int, scores []int64) bool {
	for i, score := range scores {
		bound := b.raw[k][i]
		if _, ok := f.placementScore[i].PlacementScorePlugin.(framework.NormalizePlacementScorePlugin); ok {
			bound = b.highest[i]
		}
		if score < bound {
			return false
		}
	}
	return true
}

// RunPlacementScore returns what each plugin makes of a placement, before it is normalised. In nodes the group's pods are on
// their nodes.
func (f *Framework) RunPlacementScore(state *framework.CycleState, group *framework.Queued, placed *framework.Placed, nodes *framework.Snapshot) ([]int64, *framework.Status) {
	out := make([]int64, len(f.placementScore))
	for i, p := range f.placementScore {
		score, st := p.PlacementScore(state, group, placed, nodes)
		if !st.IsSuccess() {
			return nil, asError("PlacementScore", st.WithPlugin(p.Name()))
		}
		out[i] = score
	}
	return out, nil
}

// RankPlacements adds up the weighted scores of placements: raw has, for each, what RunPlacementScore returned.
func (f *Framework) RankPlacements(state *framework.CycleState, group *framework.Queued, placed []framework.Placed, raw [][]int64) ([]int64, *framework.Status) {
	total := make([]int64, len(placed))
	scores := make([]int64, len(placed))
	for i, p := range f.placementScore {
		for k := range placed {
			scores[k] = raw[k][i]
		}
		if x, ok := p.PlacementScorePlugin.(framework.NormalizePlacementScorePlugin); ok {
			if st := x.NormalizePlacementScore(state, group, placed, scores); !st.IsSuccess() {
				return nil, asError("NormalizePlacementScore", st.WithPlugin(p.Name()))
			}
		}
		if k := slices.IndexFunc(scores, func(s int64) bool { return s < framework.MinScore || s > framework.MaxScore }); k >= 0 {
			return nil, framework.AsStatus(fmt.Errorf("plugin %s scores placement %s %d, want %d to %d",
				p.Name(), placed[k].Placement.Name, scores[k], framework.MinScore, framework.MaxScore)).WithPlugin(p.Name())
		}
		for k, s := range scores {
			total[k] += s * p.weight
		}
	}
	return total, nil
}

// MakesRoomForGroups reports whether there is a plugin that RunPodGroupPostFilter asks.
func (f *Framework) MakesRoomForGroups() bool { return len(f.podGroupPostFilter) > 0 }

// RunPodGroupPostFilter asks plugins to make room for a group until one succeeds, or says that nothing helps. Reasons add up.
func (f *Framework) RunPodGroupPostFilter(ctx context.Context, state *framework.CycleState, group *framework.Queued, nodes *framework.Snapshot, attempt framework.GroupAttempt) (*framework.PodGroupPostFilterResult, *framework.Status) {
	var (
		kept    *framework.PodGroupPostFilterResult
		reasons []string
		last    string
	)
	for at, p := range f.podGroupPostFilter {
		f.running.site.Store(f.running.podGroupPostFilter[at])
		result, st := p.PodGroupPostFilter(ctx, state, group, nodes, attempt)
		st = st.WithPlugin(p.Name())
		switch {
		case st.IsSuccess(), st.Code() == framework.UnschedulableAndUnresolvable:
			return result, st
		case !st.IsRejected():
			return nil, asError("PodGroupPostFilter", st)
		}
		if result != nil {
			kept = result
		}
		reasons, last = append(reasons, st.Reasons()...), p.Name()
	}
	return kept, framework.NewStatus(framework.Unschedulable, reasons...).WithPlugin(last)
}
