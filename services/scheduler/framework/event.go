package framework

import (
	"trireme.dev/client"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// EventResource is a kind of thing whose changes can turn a rejection.
type EventResource string

// The resources.
const (
	// AssignedPod is a pod on a node, or assumed there.
	AssignedPod EventResource = "AssignedPod"
	// UnscheduledPod is a pod that waits; an update of one is shown to itself only.
	UnscheduledPod EventResource = "UnscheduledPod"
	// Node is a node.
	Node EventResource = "Node"
	// PodGroup is a group of pods.
	PodGroup EventResource = "PodGroup"
	// Namespace is a namespace; its labels count.
	Namespace EventResource = "Namespace"
	// The objects of volumes.
	PersistentVolume      EventResource = "PersistentVolume"
	PersistentVolumeClaim EventResource = "PersistentVolumeClaim"
	StorageClass          EventResource = "StorageClass"
	CSINode               EventResource = "CSINode"
	CSIDriver             EventResource = "CSIDriver"
	CSIStorageCapacity    EventResource = "CSIStorageCapacity"
	// PodDisruptionBudget says how many pods may go.
	PodDisruptionBudget EventResource = "PodDisruptionBudget"
	// QueueObject is a queue of groups, and Workload what they are parts of.
	QueueObject EventResource = "Queue"
	Workload    EventResource = "Workload"
	// AnyResource is every resource.
	AnyResource EventResource = "*"
)

// Action is a set of things that can happen to a resource.
type Action uint32

// The actions.
const (
	Add Action = 1 << iota
	Delete
	UpdateNodeAllocatable
	UpdateNodeLabel
	UpdateNodeTaint
	UpdateNodeCondition
	UpdateNodeAnnotation
	UpdatePodLabel
	UpdatePodScaleDown
	UpdatePodToleration
	UpdatePodGatesEliminated
	UpdateOther

	// Update is every kind of update.
	Update = UpdateNodeAllocatable | UpdateNodeLabel | UpdateNodeTaint | UpdateNodeCondition | UpdateNodeAnnotation |
		UpdatePodLabel | UpdatePodScaleDown | UpdatePodToleration | UpdatePodGatesEliminated | UpdateOther
	// AllActions is everything.
	AllActions = Add | Delete | Update
)

// ClusterEvent is a resource and what happened, or may happen, to it.
type ClusterEvent struct {
	Resource EventResource
	Action   Action
}

// Matches reports whether the event registered as e covers what happened.
func (e ClusterEvent) Matches(happened ClusterEvent) bool {
	if e.Resource != AnyResource && happened.Resource != AnyResource && e.Resource != happened.Resource {
		return false
	}
	return e.Action&happened.Action != 0
}

// Kinds are the kinds of change that it covers, each by itself. Updates are told apart only where the resource has such.
func (e ClusterEvent) Kinds() []ClusterEvent {
	var out []ClusterEvent
	told := Add | Delete
	switch e.Resource {
	case Node:
		told |= UpdateNodeAllocatable | UpdateNodeLabel | UpdateNodeTaint | UpdateNodeCondition | UpdateNodeAnnotation
	case AssignedPod, UnscheduledPod:
		told |= UpdatePodLabel | UpdatePodScaleDown | UpdatePodToleration | UpdatePodGatesEliminated
	default:
		if e.Action&Update != 0 {
			out = append(out, ClusterEvent{e.Resource, Update})
		}
	}
	for bit := Action(1); bit <= AllActions; bit <<= 1 {
		if e.Action&told&bit != 0 {
			out = append(out, ClusterEvent{e.Resource, bit})
		}
	}
	return out
}

// String names the event as Kubernetes' metrics do: NodeAdd, AssignedPodDelete, NodeUpdateNodeTaint. Several kinds of update
// at once are Update.
func (e ClusterEvent) String() string { return string(e.Resource) + e.Action.name() }

func (a Action) name() string {
	switch a {
	case Add:
		return "Add"
	case Delete:
		return "Delete"
	case UpdateNodeAllocatable:
		return "UpdateNodeAllocatable"
	case UpdateNodeLabel:
		return "UpdateNodeLabel"
	case UpdateNodeTaint:
		return "UpdateNodeTaint"
	case UpdateNodeCondition:
		return "UpdateNodeCondition"
	case UpdateNodeAnnotation:
		return "UpdateNodeAnnotation"
	case UpdatePodLabel:
		return "UpdatePodLabel"
	case UpdatePodScaleDown:
		return "UpdatePodScaleDown"
	case UpdatePodToleration:
		return "UpdatePodToleration"
	case UpdatePodGatesEliminated:
		return "UpdatePodGatesEliminated"
	}
	return "Update"
}

// Change is an event with the objects before and after it. The fields of one kind are set: old is nil on Add, new on
// Delete.
type Change struct {
	// Old and New are of kinds that have no fields of their own.
	Old, New           client.Object
	Event              ClusterEvent
	OldPod, NewPod     *PodInfo
	OldNode, NewNode   *corev1.Node
	OldGroup, NewGroup *schedulingv1.PodGroup
}

// Hint is a plugin's opinion on whether a change makes a rejected pod worth another try.
type Hint int

// The hints.
const (
	// QueueSkip leaves the pod where it is.
	QueueSkip Hint = iota
	// Queue has the pod tried again.
	Queue
)

// HintFunc looks at a pod that the plugin rejected and at what changed. It is called with the queue locked, so it must
// be quick and must not call back.
type HintFunc func(pod *PodInfo, change *Change) Hint

// EventHint registers an event; without a Hint every occurrence counts as Queue.
type EventHint struct {
	Event ClusterEvent
	Hint  HintFunc
}
