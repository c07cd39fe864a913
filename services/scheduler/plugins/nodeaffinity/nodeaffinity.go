// Package nodeaffinity holds pods to the nodes that their nodeSelector and node affinity ask for, and prefers those that
// they would rather have.
package nodeaffinity

import (
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

// Name of the plugin.
const Name = "NodeAffinity"

// Plugin is a PreFilter, a Filter and a Score. The zero value is ready.
type Plugin struct{}

var (
	rejected = framework.NewStatus(framework.UnschedulableAndUnresolvable,
		"node(s) didn't match Pod's node affinity/selector").WithPlugin(Name)
	conflict = framework.NewStatus(framework.UnschedulableAndUnresolvable, "pod affinity terms conflict").WithPlugin(Name)
)

// Name implements framework.Plugin.
func (Plugin) Name() string { return Name }

// EventsToRegister implements framework.EnqueueExtensions.
func (Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{{
		Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add | framework.UpdateNodeLabel},
		Hint: func(pod *framework.PodInfo, change *framework.Change) framework.Hint {
			if !matchesNode(pod.Pod, change.NewNode) {
				return framework.QueueSkip
			}
			if change.OldNode != nil && matchesNode(pod.Pod, change.OldNode) {
				return framework.QueueSkip
			}
			return framework.Queue
		},
	}}
}

// PreFilter implements framework.PreFilterPlugin. It narrows to names where every term names nodes.
func (Plugin) PreFilter(_ *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	spec := pod.Pod.GetSpec()
	required := required(spec)
	if len(spec.GetNodeSelector()) == 0 && required == nil {
		return nil, framework.NewStatus(framework.Skip)
	}
	if required == nil || len(required.GetNodeSelectorTerms()) == 0 {
		return nil, nil
	}
	names := nodeNames(required)
	if names == nil {
		return nil, nil
	}
	if len(names) == 0 {
		return nil, conflict
	}
	return &framework.PreFilterResult{NodeNames: names}, nil
}

// PreFilterExtensions implements framework.PreFilterPlugin: other pods do not matter.
func (Plugin) PreFilterExtensions() framework.PreFilterExtensions { return nil }

// Filter implements framework.FilterPlugin.
func (Plugin) Filter(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if !matchesNode(pod.Pod, node.Node) {
		return rejected
	}
	return nil
}

// PreScore implements framework.PreScorePlugin: without preferences there is nothing to score.
func (Plugin) PreScore(_ *framework.CycleState, pod *framework.PodInfo, _ *framework.Columns, _ []int32) *framework.Status {
	if len(preferred(pod.Pod.GetSpec())) == 0 {
		return framework.NewStatus(framework.Skip)
	}
	return nil
}

// Score implements framework.ScorePlugin: the sum of the weights of the preferences that the node meets.
func (Plugin) Score(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	var sum int64
	for _, term := range preferred(pod.Pod.GetSpec()) {
		if matchesTerm(term.GetPreference(), node.Labels(), node.Name()) {
			sum += int64(term.GetWeight())
		}
	}
	return sum, nil
}

// NormalizeScore implements framework.NormalizeScorePlugin.
func (Plugin) NormalizeScore(_ *framework.CycleState, _ *framework.PodInfo, _ *framework.Columns, _ []int32, scores []int64) *framework.Status {
	framework.NormalizeDefault(scores, false)
	return nil
}

func required(spec *corev1.PodSpec) *corev1.NodeSelector {
	return spec.GetAffinity().GetNodeAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution()
}

func preferred(spec *corev1.PodSpec) []*corev1.PreferredSchedulingTerm {
	return spec.GetAffinity().GetNodeAffinity().GetPreferredDuringSchedulingIgnoredDuringExecution()
}

// matchesNode reports whether the node has all labels of nodeSelector and meets the required affinity.
func matchesNode(pod *corev1.Pod, node *corev1.Node) bool {
	labels := node.GetMetadata().GetLabels()
	for k, v := range pod.GetSpec().GetNodeSelector() {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	if r := required(pod.GetSpec()); r != nil {
		return matchesSelector(r, labels, node.GetMetadata().GetName())
	}
	return true
}
