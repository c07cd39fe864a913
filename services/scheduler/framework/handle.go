package framework

import (
	"context"

	"google.golang.org/grpc"

	"trireme.dev/client"
	"trireme.dev/client/selector"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// Handle is what a plugin may use of the scheduler that runs it.
type Handle interface {
	// Profile names the scheduler that pods choose.
	Profile() string
	// Snapshot of the cycle in progress; valid only in the points from PreFilter to Permit.
	Snapshot() *Snapshot

	// RunFilters judges a node by all filters that are not skipped in state, first with the pods that are nominated to it
	// and have at least pod's priority, if any, then without. It is valid while Snapshot is.
	RunFilters(state *CycleState, pod *PodInfo, node *NodeInfo) *Status
	// RunAddPod and RunRemovePod keep all plugins' state right after added was put on node, or removed taken off it, in
	// thought.
	RunAddPod(state *CycleState, pod, added *PodInfo, node *NodeInfo) *Status
	RunRemovePod(state *CycleState, pod, removed *PodInfo, node *NodeInfo) *Status

	// Nominated returns the waiting pods for which room is being made on the node, in the order of their nomination. Not
	// to be changed. Like the methods below it may be called from anywhere.
	Nominated(node string) []*PodInfo
	// NominatedNode returns where room is being made for the pod with this uid; empty for nowhere.
	NominatedNode(uid string) string
	// NominatedSince appends to nodes the names of those whose nominated pods changed after a version, possibly more than
	// once, and returns the version that it is now; false where that is not known any more, so that all may have.
	NominatedSince(version uint64, nodes []string) (names []string, now uint64, ok bool)
	// Nominate says that room is being made for the pod on the node, or no more where node is empty. PostFilter need
	// not call it for the pod that it is called for.
	Nominate(pod *PodInfo, node string)
	// Activate has the queue try these pods at once, wherever in it they are. Those that are in an attempt come back
	// from it at once if it fails.
	Activate(pods ...*PodInfo)

	// WaitingPod returns the pod held at Permit that has this uid, nil where there is none.
	WaitingPod(uid string) WaitingPod
	// EachWaitingPod calls fn for all pods held at Permit, in no order.
	EachWaitingPod(fn func(WaitingPod))
	// CancelBinding ends the binding of a pod that is past Permit and not yet being written, which then fails with the
	// message as an error; it reports whether there was such a one.
	CancelBinding(uid, message string) bool

	// Beside has work done beside the scheduler, which waits for nothing: it may block, and must not touch what answers of the
	// plugin depend on. What does belongs into then, which hears of the work's error once it has ended, with nothing in a
	// cycle, and must be quick. Only so can a record of the scheduler be replayed, which skips the work and knows how it
	// ended. It is called in a cycle, or in then of other work. pod is whom the work is for.
	Beside(pod *PodInfo, work func() error, then func(error))

	// Sign writes the pod's signature and returns false where it has none, as SignPlugin does for one plugin.
	Sign(pod *PodInfo, signature *Signature) bool

	// Binder writes bindings.
	Binder() Binder
	// Evictor takes pods away; nil where decisions are only tried out.
	Evictor() Evictor
	// Gateway for plugins that read or write objects themselves; nil where decisions are only tried out. Not for use in a
	// cycle: it blocks.
	Gateway() grpc.ClientConnInterface
	// Event tells people about an object, as `trireme events` shows it; eventType is Normal or Warning.
	Event(object client.Object, eventType, reason, message string)
	// Objects returns the Lister of a kind by its name, or nil where the scheduler does not watch it. Use the function
	// Objects.
	Objects(kind string) any
}

// Lister reads the scheduler's copy of the objects of one kind. What it returns is shared and must not be changed.
// *informer.Lister is one.
type Lister[T client.Object] interface {
	// Get returns the object of that name; namespace is empty for a cluster-scoped kind.
	Get(namespace, name string) (T, bool)
	// List returns the objects that match, ordered by namespace and name. An empty namespace means all, a nil selector
	// everything.
	List(namespace string, labels *selector.Labels) []T
}

// Objects returns the lister of a kind, such as Objects[*corev1.PersistentVolumeClaim](h, "PersistentVolumeClaim"), and
// false where the scheduler does not watch it.
func Objects[T client.Object](h Handle, kind string) (Lister[T], bool) {
	l, ok := h.Objects(kind).(Lister[T])
	return l, ok
}

// Binder sends bindings to the gateway.
type Binder interface {
	// Bind binds all of group or none of it and blocks until it is known which. An error, of type apierr.Error, means that
	// it is not bound, unless ctx ended.
	Bind(ctx context.Context, group []*corev1.Binding) error
}

// Evictor takes pods off their nodes for the sake of others.
type Evictor interface {
	// Evict marks the victim as one that is preempted by the scheduler, for the reason in message, and deletes it. It blocks
	// until the gateway has answered; that the victim is gone already is a success.
	Evict(ctx context.Context, victim *PodInfo, message string) error
	// MarkGroup says in the status of a group that its pods are about to be preempted as a whole, for the reason in message. It
	// blocks as Evict does; that the group is gone already is a success.
	MarkGroup(ctx context.Context, group *schedulingv1.PodGroup, message string) error
}
