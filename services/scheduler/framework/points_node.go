package framework

import "context"

// PreFilterPlugin looks at the pod once before nodes are looked at.
type PreFilterPlugin interface {
	Plugin
	// PreFilter may narrow the nodes to a set of names; nil leaves all. Skip leaves out the plugin's Filter and its
	// PreFilterExtensions in this cycle. UnschedulableAndUnresolvable ends the phase at once; Unschedulable lets
	// the other plugins run, so that preemption finds their state, and then rejects the pod. Within a placement (A.9.4),
	// nodes.Positions are the placement's only, while nodes.Columns and counters are of the whole cluster.
	PreFilter(state *CycleState, pod *PodInfo, nodes *Snapshot) (*PreFilterResult, *Status)
	// PreFilterExtensions returns nil where the plugin's state does not depend on other pods.
	PreFilterExtensions() PreFilterExtensions
}

// PreFilterResult narrows the nodes that a pod may go to.
type PreFilterResult struct {
	// NodeNames that remain; nil for all, empty for none.
	NodeNames map[string]struct{}
}

// PreFilterExtensions keep a plugin's cycle state right while pods are added to and removed from a node in thought: for
// nominated pods and for preemption. They may be called many times, in any order, on a clone of the state; node, a copy
// outside the snapshot, is as it is after the change and knows its place by Index. The snapshot, its columns and its
// counters do not change meanwhile: what the plugin takes from a counter it keeps as Domains in its state, which
// remembers differences.
type PreFilterExtensions interface {
	// AddPod accounts for added, which is now on node.
	AddPod(state *CycleState, pod, added *PodInfo, node *NodeInfo) *Status
	// RemovePod accounts for removed, which is no longer on node.
	RemovePod(state *CycleState, pod, removed *PodInfo, node *NodeInfo) *Status
}

// FilterPlugin decides whether a pod can run on a node.
type FilterPlugin interface {
	Plugin
	// Filter must judge by node as given, not look it up, and must not write to state. Any status but success and
	// the rejecting ones ends the cycle with an error.
	Filter(state *CycleState, pod *PodInfo, node *NodeInfo) *Status
}

// NodeFilterPlugin is a FilterPlugin that looks at the pod and the node itself, not at pods on nodes: where it rejects a node,
// no pod that comes or goes changes that.
type NodeFilterPlugin interface {
	FilterPlugin
	// FiltersNodes only marks the plugin.
	FiltersNodes()
}

// FilterPassPlugin filters many nodes in one go over the snapshot's columns. Filter remains the definition, and is what
// is called where pods are moved in thought; the two must agree on every node.
type FilterPassPlugin interface {
	FilterPlugin
	// FilterPass calls verdicts.Reject for those of the nodes at the positions open, which ascend, that Filter would
	// reject. Any status but success ends the cycle with an error.
	FilterPass(state *CycleState, pod *PodInfo, nodes *Columns, open []int32, verdicts *Verdicts) *Status
}

// PostFilterPlugin tries to make room for a pod that fits nowhere. It is not called for the members of a gang.
type PostFilterPlugin interface {
	Plugin
	// PostFilter is given what each node was rejected for. Success, UnschedulableAndUnresolvable and Error end the
	// phase; Unschedulable lets the next plugin try. state is the attempt's: try things out on a Clone of it, on
	// NodeInfo.Clone, with Handle.RunFilters, RunAddPod and RunRemovePod.
	PostFilter(ctx context.Context, state *CycleState, pod *PodInfo, rejected *Verdicts) (*PostFilterResult, *Status)
}

// PostFilterResult names the node on which room is being made.
type PostFilterResult struct {
	// NominatedNode becomes status.nominatedNodeName; empty leaves it.
	NominatedNode string
	// Clear takes an earlier nomination back.
	Clear bool
	// Victims are the pods that give way, with their nodes, where the plugin knows them.
	Victims []Member
}

// PreScorePlugin looks at the feasible nodes once before they are scored.
type PreScorePlugin interface {
	Plugin
	// PreScore may Skip the plugin's Score in this cycle; any other failure ends the cycle with an error. feasible are
	// positions, ascending. For a pod with a signature it may be left out, and what an earlier pod of the same signature
	// had is used: what it writes must then not depend on feasible.
	PreScore(state *CycleState, pod *PodInfo, nodes *Columns, feasible []int32) *Status
}

// ScorePlugin ranks feasible nodes.
type ScorePlugin interface {
	Plugin
	// Score of one node, which is in the snapshot. Any failure ends the cycle with an error. It must not write to state.
	Score(state *CycleState, pod *PodInfo, node *NodeInfo) (int64, *Status)
}

// ScorePassPlugin scores many nodes in one go over the snapshot's columns. Score remains the definition; the two must
// agree on every node.
type ScorePassPlugin interface {
	ScorePlugin
	// ScorePass sets scores[k] to the score of the node at position feasible[k], for all k.
	ScorePass(state *CycleState, pod *PodInfo, nodes *Columns, feasible []int32, scores []int64) *Status
}

// NormalizeScorePlugin brings a ScorePlugin's scores of all nodes into MinScore..MaxScore.
type NormalizeScorePlugin interface {
	ScorePlugin
	// NormalizeScore changes scores in place; scores[k] is that of the node at position feasible[k].
	NormalizeScore(state *CycleState, pod *PodInfo, nodes *Columns, feasible []int32, scores []int64) *Status
}

// MaxNormalizer is a NormalizeScorePlugin whose NormalizeScore is NormalizeDefault(scores, reverse), with which the
// scheduler need not look at all nodes again while the largest score stays the same.
type MaxNormalizer interface {
	NormalizeScorePlugin
	// NormalizesByMax gives the argument.
	NormalizesByMax() (reverse bool)
}
