// Package nodeports keeps pods off nodes where a host port that they want is taken.
package nodeports

import (
	"cmp"
	"slices"

	"trireme.dev/services/scheduler/framework"
)

// Name of the plugin.
const Name = "NodePorts"

// Plugin is a PreFilter and a Filter. The zero value is ready.
type Plugin struct{}

var rejected = framework.NewStatus(framework.Unschedulable, "node(s) didn't have free ports for the requested pod ports").WithPlugin(Name)

// Name implements framework.Plugin.
func (Plugin) Name() string { return Name }

// EventsToRegister implements framework.EnqueueExtensions.
func (Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{
		{
			Event: framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete},
			Hint: func(pod *framework.PodInfo, change *framework.Change) framework.Hint {
				held := framework.HostPorts{}
				for _, p := range change.OldPod.Ports {
					held[p]++
				}
				if held.Conflicts(pod.Ports) {
					return framework.Queue
				}
				return framework.QueueSkip
			},
		},
		{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add}},
	}
}

// PreFilter implements framework.PreFilterPlugin: most pods want no ports.
func (Plugin) PreFilter(_ *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	if len(pod.Ports) == 0 {
		return nil, framework.NewStatus(framework.Skip)
	}
	return nil, nil
}

// PreFilterExtensions implements framework.PreFilterPlugin: NodeInfo keeps the ports.
func (Plugin) PreFilterExtensions() framework.PreFilterExtensions { return nil }

// Filter implements framework.FilterPlugin.
func (Plugin) Filter(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if node.Ports.Conflicts(pod.Ports) {
		return rejected
	}
	return nil
}

// FilterPass implements framework.FilterPassPlugin.
func (Plugin) FilterPass(_ *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, open []int32, verdicts *framework.Verdicts) *framework.Status {
	if len(pod.Ports) == 0 {
		return nil
	}
	for _, i := range open {
		if nodes.PortsInUse[i] > 0 && nodes.Nodes[i].Ports.Conflicts(pod.Ports) {
			verdicts.Reject(i, verdicts.Reason(rejected))
		}
	}
	return nil
}

// Sign implements framework.SignPlugin.
func (Plugin) Sign(pod *framework.PodInfo, signature *framework.Signature) bool {
	if len(pod.Ports) == 0 || !signature.Field("hostPorts") {
		return true
	}
	ports := slices.SortedFunc(slices.Values(pod.Ports), func(a, b framework.HostPort) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.IP, b.IP))
	})
	for _, p := range ports {
		signature.Int(int64(p.Port))
		signature.Text(p.Protocol)
		signature.Text(p.IP)
	}
	return true
}
