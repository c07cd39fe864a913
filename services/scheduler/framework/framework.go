// Package framework defines what a scheduling plugin is: the extension points, what they are given and what they may
// answer. It is the one package of the scheduler meant for outsiders; a plugin of a third party imports it and nothing
// else of the scheduler.
//
// It owns the vocabulary (Status, CycleState, PodInfo, NodeInfo, Resource, ClusterEvent, Queued) and never runs a
// plugin: internal/runtime does, in the order in which this file lists the points.
//
//	queue:  PreEnqueue, PreEnqueueGroup, QueueSort, EventsToRegister
//	cycle:  PreFilter → Filter → (PostFilter) → PreScore → Score → NormalizeScore → Reserve → Permit
//	bind:   PreBind → Bind → PostBind
//
// What enters a cycle is a Queued: one pod, or a gang of pods that are placed and bound together or not at all.
package framework

import (
	"context"
	"time"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// MaxScore and MinScore bound what a score may be once it is normalised.
const (
	MaxScore int64 = 100
	MinScore int64 = 0
)

// MaxPermitTimeout caps how long a plugin may hold a pod at Permit.
const MaxPermitTimeout = 15 * time.Minute

// Plugin is what all plugins have in common. A plugin implements the interfaces of the points at which it takes part;
// it is built once and called from one cycle at a time, except where a point says otherwise.
type Plugin interface {
	// Name identifies the plugin in statuses, logs and configuration.
	Name() string
}

// Registration enables a plugin in a profile, at every point that it implements, in the order of the profile's list.
type Registration struct {
	// New builds the plugin.
	New func(Handle) Plugin
	// Weight of the plugin's score; at least 1 for a ScorePlugin, 0 for others.
	Weight int64
}

// PreEnqueuePlugin decides whether a pod may be tried at all. It is called with the queue locked, so it must be quick
// and must not call back.
type PreEnqueuePlugin interface {
	Plugin
	// PreEnqueue holds the pod back with any status but success. A member of a gang that is held back is not counted
	// as waiting.
	PreEnqueue(pod *PodInfo) *Status
}

// PreEnqueueGroupPlugin decides whether a group of pods may be tried. It is called with the queue locked, after
// PreEnqueue of each of its members.
type PreEnqueueGroupPlugin interface {
	Plugin
	// PreEnqueueGroup holds the group back with any status but success. group.Pods are the members that wait to be
	// scheduled and passed PreEnqueue.
	PreEnqueueGroup(group *Queued) *Status
}

// QueueSortPlugin orders the queue. A profile has exactly one.
type QueueSortPlugin interface {
	Plugin
	// Less reports whether a is to be tried before b. It must be a strict weak order of immutable properties.
	Less(a, b *Queued) bool
}

// EnqueueExtensions says what can turn a plugin's rejection. A plugin at PreEnqueue, PreFilter, Filter, Reserve or
// Permit that does not implement it is asked again after every event; one that returns none is asked again only when
// the pool of unschedulable pods is flushed.
type EnqueueExtensions interface {
	Plugin
	// EventsToRegister is called once, when the profile is built.
	EventsToRegister() []EventHint
}

// PreFilterPlugin looks at the pod once before nodes are looked at.
type PreFilterPlugin interface {
	Plugin
	// PreFilter may narrow the nodes to a set of names; nil leaves all. Skip leaves out the plugin's Filter and its
	// PreFilterExtensions in this cycle. UnschedulableAndUnresolvable ends the phase at once; Unschedulable lets
	// the other plugins run, so that preemption finds their state, and then rejects the pod.
	PreFilter(state *CycleState, pod *PodInfo, nodes Snapshot) (*PreFilterResult, *Status)
	// PreFilterExtensions returns nil where the plugin's state does not depend on other pods.
	PreFilterExtensions() PreFilterExtensions
}

// PreFilterResult narrows the nodes that a pod may go to.
type PreFilterResult struct {
	// NodeNames that remain; nil for all, empty for none.
	NodeNames map[string]struct{}
}

// PreFilterExtensions keep a plugin's cycle state right while pods are added to and removed from a node in thought.
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

// PostFilterPlugin tries to make room for a pod that fits nowhere. It is not called for the members of a gang.
type PostFilterPlugin interface {
	Plugin
	// PostFilter is given what each node was rejected for. Success, UnschedulableAndUnresolvable and Error end the
	// phase; Unschedulable lets the next plugin try.
	PostFilter(ctx context.Context, state *CycleState, pod *PodInfo, rejected NodeStatuses) (*PostFilterResult, *Status)
}

// PostFilterResult names the node on which room is being made.
type PostFilterResult struct {
	// NominatedNode becomes status.nominatedNodeName; empty leaves it.
	NominatedNode string
}

// NodeStatuses gives the reason for which each node was rejected.
type NodeStatuses interface {
	// Each calls fn for all nodes in their order.
	Each(fn func(node string, status *Status))
	// Get returns nil for a node that was not rejected.
	Get(node string) *Status
}

// PreScorePlugin looks at the feasible nodes once before they are scored.
type PreScorePlugin interface {
	Plugin
	// PreScore may Skip the plugin's Score in this cycle; any other failure ends the cycle with an error.
	PreScore(state *CycleState, pod *PodInfo, feasible []*NodeInfo) *Status
}

// ScorePlugin ranks feasible nodes.
type ScorePlugin interface {
	Plugin
	// Score of one node. Any failure ends the cycle with an error. It must not write to state.
	Score(state *CycleState, pod *PodInfo, node *NodeInfo) (int64, *Status)
}

// NormalizeScorePlugin brings a ScorePlugin's scores of all nodes into MinScore..MaxScore.
type NormalizeScorePlugin interface {
	ScorePlugin
	// NormalizeScore changes scores in place; they are in the order of the nodes that were scored.
	NormalizeScore(state *CycleState, pod *PodInfo, scores []int64) *Status
}

// ReservePlugin keeps books of what pods take beyond what NodeInfo counts.
type ReservePlugin interface {
	Plugin
	// Reserve is called once the pod is assumed on the node. At the first failure Unreserve of all reserve plugins is
	// called in reverse order.
	Reserve(ctx context.Context, state *CycleState, pod *PodInfo, node string) *Status
	// Unreserve must be idempotent and bear never having been reserved. It cannot fail.
	Unreserve(ctx context.Context, state *CycleState, pod *PodInfo, node string)
}

// PermitPlugin lets a pod go, refuses it, or has it wait.
type PermitPlugin interface {
	Plugin
	// Permit may answer Wait with a timeout, capped at MaxPermitTimeout, after which the pod is refused unless it was
	// allowed through Handle. All permit plugins are asked; a refusal by any wins.
	Permit(ctx context.Context, state *CycleState, pod *PodInfo, node string) (*Status, time.Duration)
}

// PreBindPlugin prepares what a pod needs on its node before it is bound. It may block.
type PreBindPlugin interface {
	Plugin
	PreBind(ctx context.Context, state *CycleState, pod *PodInfo, node string) *Status
}

// Assignment is a pod and the node that it is to be bound to.
type Assignment struct {
	Pod   *PodInfo
	Node  string
	State *CycleState
}

// BindPlugin binds. A lone pod is a group of one.
type BindPlugin interface {
	Plugin
	// Bind binds all of group or none of it. Skip passes it on to the next plugin. It may block.
	Bind(ctx context.Context, group []Assignment) *Status
}

// PostBindPlugin is told of each pod that was bound.
type PostBindPlugin interface {
	Plugin
	PostBind(ctx context.Context, state *CycleState, pod *PodInfo, node string)
}

// Snapshot is the cluster as one cycle sees it. It does not change while a plugin runs.
type Snapshot interface {
	// Nodes in the order in which they are looked at. Not to be changed.
	Nodes() []*NodeInfo
	// Node of that name, nil where there is none.
	Node(name string) *NodeInfo
}

// Handle is what a plugin may use of the scheduler that runs it.
type Handle interface {
	// Snapshot of the cycle in progress; valid only in the points from PreFilter to Permit.
	Snapshot() Snapshot
	// Binder reaches the gateway.
	Binder() Binder
	// WaitingPod returns the pod held at Permit that has this uid, nil where there is none.
	WaitingPod(uid string) WaitingPod
	// EachWaitingPod calls fn for all pods held at Permit, in no order.
	EachWaitingPod(fn func(WaitingPod))
}

// Binder sends bindings to the gateway.
type Binder interface {
	// Bind binds all of group or none of it and blocks until the gateway has answered. The error is of type
	// apierr.Error.
	Bind(ctx context.Context, group []*corev1.Binding) error
}

// WaitingPod is a pod held at Permit. Its methods may be called from anywhere.
type WaitingPod interface {
	// Pod that waits.
	Pod() *PodInfo
	// PendingPlugins that have not allowed it yet.
	PendingPlugins() []string
	// Allow lets the pod go as far as plugin is concerned; when all waiting plugins have, it goes.
	Allow(plugin string)
	// Reject refuses the pod.
	Reject(plugin, message string)
}
