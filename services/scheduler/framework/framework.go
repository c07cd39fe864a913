// Package framework defines what a scheduling plugin is: the extension points, what they are given and what they may
// answer. It is the one package of the scheduler meant for outsiders; a plugin of a third party imports it and nothing
// else of the scheduler.
//
// It owns the vocabulary (Status, CycleState, PodInfo, NodeInfo, Resource, ClusterEvent, Queued) and what a cycle sees of
// the cluster: the Snapshot, with its Columns for passes over all nodes and its Counters of pods by topology. It never
// runs a plugin: internal/runtime does, in this order:
//
//	queue:  Sign, PreEnqueue, PreEnqueueGroup, QueueSort, EventsToRegister             points_queue.go, sign.go
//	pod:    PreFilter → Filter → (PostFilter) → PreScore → Score → NormalizeScore      points_node.go
//	gang:   PlacementGenerate → (per placement: pods) → PlacementScore → (PodGroupPostFilter)   points_group.go
//	bind:   Reserve → Permit → PreBindPreFlight → PreBind → Bind → PostBind            points_bind.go
//
// What enters a cycle is a Queued: one pod, or a gang of pods that are placed and bound together or not at all.
package framework

import "time"

// MaxScore and MinScore bound what a score may be once it is normalised.
const (
	MaxScore int64 = 100
	MinScore int64 = 0
)

// MaxPermitTimeout caps how long a plugin may hold a pod at Permit.
const MaxPermitTimeout = 15 * time.Minute

// Plugin is what all plugins have in common. A plugin implements the interfaces of the points at which it takes part;
// it is built once per profile and called from one cycle at a time, except where a point says otherwise. A panic fails
// the attempt in progress and nothing else.
type Plugin interface {
	// Name identifies the plugin in statuses, logs and configuration.
	Name() string
}

// Point is an extension point by the name that Kubernetes' configuration and metrics have for it.
type Point string

// The points that a profile can choose plugins for. Sign, and the extensions of other points, are not chosen: who
// implements them takes part.
const (
	PointPreEnqueue         Point = "PreEnqueue" // PreEnqueueGroup included
	PointQueueSort          Point = "QueueSort"
	PointPreFilter          Point = "PreFilter"
	PointFilter             Point = "Filter"
	PointPostFilter         Point = "PostFilter"
	PointPreScore           Point = "PreScore"
	PointScore              Point = "Score"
	PointReserve            Point = "Reserve"
	PointPermit             Point = "Permit"
	PointPreBind            Point = "PreBind"
	PointBind               Point = "Bind"
	PointPostBind           Point = "PostBind"
	PointPlacementGenerate  Point = "PlacementGenerate"
	PointPlacementScore     Point = "PlacementScore"
	PointPodGroupPostFilter Point = "PodGroupPostFilter"
)

// Registration enables a plugin in a profile. Arguments are bound into New: see plugins/registry.go for those of the
// scheduler's own.
type Registration struct {
	// New builds the plugin. An error, which may be several joined, keeps the scheduler from starting.
	New func(Handle) (Plugin, error)
	// Weight of the plugin's score and placement score; at least 1 where it has one, 0 otherwise.
	Weight int64
	// PlacementWeight of its placement score where that differs; 0 where it does not.
	PlacementWeight int64
}

// Use is a Registration's New of a plugin that is built already and needs no Handle.
func Use(p Plugin) func(Handle) (Plugin, error) {
	return func(Handle) (Plugin, error) { return p, nil }
}

// Profile is a way to schedule: the pods that name it go through its plugins.
type Profile struct {
	// SchedulerName by which pods choose the profile.
	SchedulerName string
	// Plugins in order; each takes part at every point that it implements, unless Order says otherwise.
	Plugins []Registration
	// Order names the plugins of a point, in order, where it is not that of Plugins: only these take part there.
	Order map[Point][]string
	// PercentageOfNodesToScore ends the search for a pod's node when this share of all nodes, but at least 100, has been
	// found to be feasible; 0, and 100, consider all nodes.
	PercentageOfNodesToScore int32
}
