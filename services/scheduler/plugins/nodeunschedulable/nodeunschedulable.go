// Package nodeunschedulable keeps pods off cordoned nodes.
package nodeunschedulable

import (
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

// Name of the plugin.
const Name = "NodeUnschedulable"

// Plugin is a Filter. The zero value is ready.
type Plugin struct{}

var rejected = framework.NewStatus(framework.UnschedulableAndUnresolvable, "node(s) were unschedulable").WithPlugin(Name)

// Name implements framework.Plugin.
func (Plugin) Name() string { return Name }

// EventsToRegister implements framework.EnqueueExtensions.
func (Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{
		{
			Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add | framework.UpdateNodeTaint},
			Hint: func(pod *framework.PodInfo, change *framework.Change) framework.Hint {
				if blocks(change.NewNode, pod) || (change.OldNode != nil && !blocks(change.OldNode, pod)) {
					return framework.QueueSkip
				}
				return framework.Queue
			},
		},
		{Event: framework.ClusterEvent{Resource: framework.UnscheduledPod, Action: framework.UpdatePodToleration}},
	}
}

// Filter implements framework.FilterPlugin. A pod that tolerates the taint which stands for the cordon may pass.
func (Plugin) Filter(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if blocks(node.Node, pod) {
		return rejected
	}
	return nil
}

func blocks(node *corev1.Node, pod *framework.PodInfo) bool {
	return node.GetSpec().GetUnschedulable() && !framework.Tolerates(pod.Pod.GetSpec().GetTolerations(),
		&corev1.Taint{Key: framework.TaintUnschedulable, Effect: framework.TaintNoSchedule})
}
