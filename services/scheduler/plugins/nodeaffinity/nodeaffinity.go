// Package nodeaffinity holds pods to the nodes that their nodeSelector and node affinity ask for, and prefers those that
// they would rather have.
package nodeaffinity

import (
	"errors"
	"slices"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

// Name of the plugin.
const Name = "NodeAffinity"

// Plugin is a PreFilter, a Filter and a Score. The zero value adds nothing to what pods ask for.
type Plugin struct {
	// added is what the profile asks for besides its pods.
	added *corev1.NodeSelector
	// preferred is what the profile would rather have besides its pods.
	preferred []*corev1.PreferredSchedulingTerm
}

// Args are Kubernetes' NodeAffinityArgs.
type Args struct {
	// AddedAffinity holds for every pod of the profile, besides the pod's own.
	AddedAffinity *corev1.NodeAffinity `json:"addedAffinity"`
}

// DefaultArgs adds nothing.
func DefaultArgs() *Args { return &Args{} }

// Validate refuses an affinity that no node can meet.
func (a *Args) Validate() error {
	if r := a.AddedAffinity.GetRequiredDuringSchedulingIgnoredDuringExecution(); r != nil && len(r.GetNodeSelectorTerms()) == 0 {
		return errors.New("addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: want at least one")
	}
	return nil
}

// New returns a Plugin.
func New(args *Args) Plugin {
	return Plugin{
		added:     args.AddedAffinity.GetRequiredDuringSchedulingIgnoredDuringExecution(),
		preferred: args.AddedAffinity.GetPreferredDuringSchedulingIgnoredDuringExecution(),
	}
}

var (
	rejected = framework.NewStatus(framework.UnschedulableAndUnresolvable,
		"node(s) didn't match Pod's node affinity/selector").WithPlugin(Name)
	enforced = framework.NewStatus(framework.UnschedulableAndUnresolvable,
		"node(s) didn't match scheduler-enforced node affinity").WithPlugin(Name)
	conflict = framework.NewStatus(framework.UnschedulableAndUnresolvable, "pod affinity terms conflict").WithPlugin(Name)
)

// Name implements framework.Plugin.
func (Plugin) Name() string { return Name }

// FiltersNodes implements framework.NodeFilterPlugin.
func (Plugin) FiltersNodes() {}

// EventsToRegister implements framework.EnqueueExtensions.
func (p Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{{
		Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add | framework.UpdateNodeLabel},
		Hint: func(pod *framework.PodInfo, change *framework.Change) framework.Hint {
			if !p.matches(pod.Pod, change.NewNode) {
				return framework.QueueSkip
			}
			if change.OldNode != nil && p.matches(pod.Pod, change.OldNode) {
				return framework.QueueSkip
			}
			return framework.Queue
		},
	}}
}

func (p Plugin) matches(pod *corev1.Pod, node *corev1.Node) bool {
	return Selects(p.added, node) && matchesNode(pod, node)
}

// PreFilter implements framework.PreFilterPlugin. It narrows to names where every term names nodes.
func (p Plugin) PreFilter(_ *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	spec := pod.Pod.GetSpec()
	required := required(spec)
	if len(spec.GetNodeSelector()) == 0 && required == nil && p.added == nil {
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
func (p Plugin) Filter(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if !Selects(p.added, node.Node) {
		return enforced
	}
	if !matchesNode(pod.Pod, node.Node) {
		return rejected
	}
	return nil
}

// PreScore implements framework.PreScorePlugin: without preferences there is nothing to score.
func (p Plugin) PreScore(_ *framework.CycleState, pod *framework.PodInfo, _ *framework.Columns, _ []int32) *framework.Status {
	if len(preferred(pod.Pod.GetSpec())) == 0 && len(p.preferred) == 0 {
		return framework.NewStatus(framework.Skip)
	}
	return nil
}

// Score implements framework.ScorePlugin: the sum of the weights of the preferences that the node meets.
func (p Plugin) Score(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	var sum int64
	for _, term := range slices.Concat(preferred(pod.Pod.GetSpec()), p.preferred) {
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
