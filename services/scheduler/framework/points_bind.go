package framework

import (
	"context"
	"time"
)

// ReservePlugin keeps books of what pods take beyond what NodeInfo counts.
type ReservePlugin interface {
	Plugin
	// Reserve is called once the pod is assumed on the node. At the first failure Unreserve of all reserve plugins is
	// called in reverse order.
	Reserve(ctx context.Context, state *CycleState, pod *PodInfo, node string) *Status
	// Unreserve must be idempotent and bear never having been reserved. It cannot fail. It may be called from a
	// binding, beside a cycle.
	Unreserve(ctx context.Context, state *CycleState, pod *PodInfo, node string)
}

// PermitPlugin lets a pod go, refuses it, or has it wait.
type PermitPlugin interface {
	Plugin
	// Permit may answer Wait with a timeout, capped at MaxPermitTimeout, after which the pod is refused unless it was
	// allowed through Handle. All permit plugins are asked; a refusal by any wins.
	Permit(ctx context.Context, state *CycleState, pod *PodInfo, node string) (*Status, time.Duration)
}

// PreBindPlugin prepares what a pod needs on its node before it is bound. It is called from a goroutine of the binding,
// beside cycles and other bindings.
type PreBindPlugin interface {
	Plugin
	// PreBindPreFlight is asked before the wait for permission, and must be quick: Success where PreBind will have work to do,
	// Skip where it has none and is then not called, anything else fails the attempt. Where any plugin has work or the
	// pod waits at Permit, its node becomes status.nominatedNodeName meanwhile.
	PreBindPreFlight(ctx context.Context, state *CycleState, pod *PodInfo, node string) (PreBindPreFlight, *Status)
	// PreBind may block until ctx ends: plugins of a parallel group end together at the first failure.
	PreBind(ctx context.Context, state *CycleState, pod *PodInfo, node string) *Status
}

// PreBindPreFlight is what a plugin says ahead of PreBind.
type PreBindPreFlight struct {
	// AllowParallel lets PreBind run beside that of its neighbours in the profile's order that allow it too. A plugin
	// that does not, even a skipped one, ends the group.
	AllowParallel bool
}

// Assignment is a pod and the node that it is to be bound to.
type Assignment struct {
	Pod   *PodInfo
	Node  string
	State *CycleState
}

// BindPlugin binds. A lone pod is a group of one. It is called from a goroutine of the binding.
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
