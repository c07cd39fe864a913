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

// FiltersNodes implements framework.NodeFilterPlugin.
func (Plugin) FiltersNodes() {}

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

// FilterPass implements framework.FilterPassPlugin.
func (Plugin) FilterPass(_ *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, open []int32, verdicts *framework.Verdicts) *framework.Status {
	if tolerates(pod) {
		return nil
	}
	for _, i := range open {
		if nodes.Unschedulable[i] {
			verdicts.Reject(i, verdicts.Reason(rejected))
		}
	}
	return nil
}

// Sign implements framework.SignPlugin.
func (Plugin) Sign(pod *framework.PodInfo, signature *framework.Signature) bool {
	signature.Tolerations(pod.Pod.GetSpec().GetTolerations())
	return true
}

func tolerates(pod *framework.PodInfo) bool {
	tolerations := pod.Pod.GetSpec().GetTolerations()
	return len(tolerations) > 0 && framework.Tolerates(tolerations, cordon)
}

// cordon is the taint that stands for spec.unschedulable.
var cordon = &corev1.Taint{Key: framework.TaintUnschedulable, Effect: framework.TaintNoSchedule}

func blocks(node *corev1.Node, pod *framework.PodInfo) bool {
	return node.GetSpec().GetUnschedulable() && !tolerates(pod)
}
