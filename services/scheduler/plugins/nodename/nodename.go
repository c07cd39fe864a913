// Package nodename keeps a pod that names its node off all others.
package nodename

import "trireme.dev/services/scheduler/framework"

// Name of the plugin.
const Name = "NodeName"

// Plugin is a Filter. The zero value is ready.
type Plugin struct{}

var rejected = framework.NewStatus(framework.UnschedulableAndUnresolvable,
	"node(s) didn't match the requested node name").WithPlugin(Name)

// Name implements framework.Plugin.
func (Plugin) Name() string { return Name }

// FiltersNodes implements framework.NodeFilterPlugin.
func (Plugin) FiltersNodes() {}

// EventsToRegister implements framework.EnqueueExtensions: only a new node can be the one that is named.
func (Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{{
		Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add},
		Hint: func(pod *framework.PodInfo, change *framework.Change) framework.Hint {
			if pod.Pod.GetSpec().GetNodeName() == change.NewNode.GetMetadata().GetName() {
				return framework.Queue
			}
			return framework.QueueSkip
		},
	}}
}

// FilterPass implements framework.FilterPassPlugin.
func (Plugin) FilterPass(_ *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, open []int32, verdicts *framework.Verdicts) *framework.Status {
	want := pod.Pod.GetSpec().GetNodeName()
	if want == "" {
		return nil
	}
	for _, i := range open {
		if nodes.Nodes[i].Name() != want {
			verdicts.Reject(i, verdicts.Reason(rejected))
		}
	}
	return nil
}

// Sign implements framework.SignPlugin.
func (Plugin) Sign(pod *framework.PodInfo, signature *framework.Signature) bool {
	if name := pod.Pod.GetSpec().GetNodeName(); name != "" && signature.Field("nodeName") {
		signature.Text(name)
	}
	return true
}

// Filter implements framework.FilterPlugin.
func (Plugin) Filter(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if want := pod.Pod.GetSpec().GetNodeName(); want != "" && want != node.Name() {
		return rejected
	}
	return nil
}
