package framework

import "context"

// Placement is a set of nodes that a group may be placed on as a whole, such as one rack.
type Placement struct {
	// Name for people and for the order among equals: topology.kubernetes.io/rack=r7. Empty for all nodes.
	Name string
	// Positions in the snapshot, ascending; nil for all nodes.
	Positions []int32
}

// PlacementGeneratePlugin says where a group may be placed as a whole. A profile has at most one; without it, all nodes
// are the only placement.
type PlacementGeneratePlugin interface {
	Plugin
	// PlacementGenerate returns the placements within parent, which may overlap, in the order in which they are to be
	// tried; it must not depend on chance. None at all rejects the group with the status, or as "no feasible placements
	// found" where that is a success. state is the group's.
	PlacementGenerate(state *CycleState, group *Queued, parent *Placement, nodes *Snapshot) ([]*Placement, *Status)
}

// Placed is a group as it was placed in thought within a placement.
type Placed struct {
	Placement *Placement
	// Assignments of the pods that fit.
	Assignments []Assignment
	// Unplaced are those that did not.
	Unplaced int
}

// PlacementScorePlugin ranks the placements in which a group fits. It is asked where there is more than one placement.
type PlacementScorePlugin interface {
	Plugin
	// PlacementScore of one placement. In nodes the group's pods are on their nodes. Any failure ends the cycle with an
	// error.
	PlacementScore(state *CycleState, group *Queued, placed *Placed, nodes *Snapshot) (int64, *Status)
}

// NormalizePlacementScorePlugin brings a PlacementScorePlugin's scores into MinScore..MaxScore.
type NormalizePlacementScorePlugin interface {
	PlacementScorePlugin
	// NormalizePlacementScore changes scores in place; they are in the order of the placements.
	NormalizePlacementScore(state *CycleState, group *Queued, placed []Placed, scores []int64) *Status
}

// BoundPlacementScorePlugin is a PlacementScorePlugin that knows beforehand how high its score can be, so that placements that
// cannot win need not be tried. A NormalizePlacementScore that it has must divide by the highest score, as NormalizeDefault
// does.
type BoundPlacementScorePlugin interface {
	PlacementScorePlugin
	// PlacementBound is what PlacementScore would return if all of the group's pods were on nodes of the placement; with
	// fewer of them there, PlacementScore must not return more.
	PlacementBound(state *CycleState, group *Queued, placement *Placement, nodes *Snapshot) int64
}

// PodGroupPostFilterPlugin tries to make room for a group that fits in no placement.
type PodGroupPostFilterPlugin interface {
	Plugin
	// PodGroupPostFilter may move pods in thought in nodes, by Assume and Forget, and ask what that does for the group; it
	// must leave nodes as it found them. The answers mean what they mean at PostFilter. state is the group's.
	PodGroupPostFilter(ctx context.Context, state *CycleState, group *Queued, nodes *Snapshot, attempt GroupAttempt) (*PodGroupPostFilterResult, *Status)
}

// GroupAttempt answers questions about a group that fits in no placement, with nodes as they are at the time.
type GroupAttempt struct {
	// Placements that the group may go to, in order.
	Placements []*Placement
	// Try places the group in thought within a placement and takes its pods away again. It is a success where as many of
	// them fit as the group needs.
	Try func(*Placement) (Placed, *Status)
	// Judge judges a pod of the group on a node of the placement alone, as PreFilter and Filter do.
	Judge func(p *Placement, pod *PodInfo, node *NodeInfo) *Status
}

// PodGroupPostFilterResult says where room is being made. Pods of the group that it does not name are nominated no more.
type PodGroupPostFilterResult struct {
	// Placement in which the group fits once the victims are gone.
	Placement *Placement
	// Nominated are the pods of the group with the nodes that they are to go to.
	Nominated []Assignment
	// Victims are the pods that give way, with their nodes.
	Victims []Member
}
