// Package interpodaffinity holds pods near others and away from others, by the terms of the pod itself and by those of
// the pods that are there. What is near is told by a label of nodes. It counts by the snapshot's counters: what a pod costs
// depends on how many terms concern it and on how many nodes there are, not on how many pods.
package interpodaffinity

import (
	"fmt"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

// Name of the plugin.
const Name = "InterPodAffinity"

// Args are Kubernetes' InterPodAffinityArgs.
type Args struct {
	// HardPodAffinityWeight is how much it counts, in scores, that a pod which is there requires the new one: 0..100.
	HardPodAffinityWeight int32 `json:"hardPodAffinityWeight"`
	// IgnorePreferredTermsOfExistingPods leaves the wishes of the pods that are there out of the scores of pods that have
	// none.
	IgnorePreferredTermsOfExistingPods bool `json:"ignorePreferredTermsOfExistingPods"`
}

// DefaultArgs returns what applies where nothing is configured.
func DefaultArgs() *Args { return &Args{HardPodAffinityWeight: 1} }

// Validate checks the arguments by themselves.
func (a *Args) Validate() error {
	if a.HardPodAffinityWeight < 0 || a.HardPodAffinityWeight > 100 {
		return fmt.Errorf("hardPodAffinityWeight: %d is not in 0..100", a.HardPodAffinityWeight)
	}
	return nil
}

// Plugin is a PreFilter, a Filter, a PreScore and a Score. Make it with New.
type Plugin struct {
	handle framework.Handle
	args   Args
}

// New returns the plugin.
func New(h framework.Handle, args *Args) (*Plugin, error) {
	if err := args.Validate(); err != nil {
		return nil, err
	}
	return &Plugin{handle: h, args: *args}, nil
}

// Name implements framework.Plugin.
func (*Plugin) Name() string { return Name }

// EventsToRegister implements framework.EnqueueExtensions. Any change of a node's labels may matter: the terms of other
// pods, whose topologies are not known to a hint, reject as well.
func (p *Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{
		{
			Event: framework.ClusterEvent{
				Resource: framework.AssignedPod,
				Action:   framework.Add | framework.Delete | framework.UpdatePodLabel,
			},
			Hint: p.afterPod,
		},
		{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add | framework.UpdateNodeLabel}},
		{Event: framework.ClusterEvent{Resource: framework.Namespace, Action: framework.Add | framework.UpdateOther}, Hint: afterNamespace},
		{Event: framework.ClusterEvent{Resource: framework.UnscheduledPod, Action: framework.UpdatePodLabel}},
	}
}

// afterPod asks whether the other pod is now one that the pod must be near, or no longer one that keeps it away.
func (p *Plugin) afterPod(pod *framework.PodInfo, change *framework.Change) framework.Hint {
	a := pod.Affinity
	if a == nil {
		a = &framework.PodAffinity{}
	}
	before, after := change.OldPod, change.NewPod
	if len(a.Required) > 0 && after != nil && p.allSelect(a.Required, after) && (before == nil || !p.allSelect(a.Required, before)) {
		return framework.Queue
	}
	if before == nil {
		return framework.QueueSkip
	}
	for _, t := range a.AntiRequired {
		if t.Matches(before, p.namespaceLabels) && (after == nil || !t.Matches(after, p.namespaceLabels)) {
			return framework.Queue
		}
	}
	if before.Affinity == nil || after != nil {
		return framework.QueueSkip // the terms of a pod never change
	}
	for _, t := range before.Affinity.AntiRequired {
		if t.Matches(pod, p.namespaceLabels) {
			return framework.Queue
		}
	}
	return framework.QueueSkip
}

// afterNamespace asks whether the pod selects by the labels of namespaces.
func afterNamespace(pod *framework.PodInfo, _ *framework.Change) framework.Hint {
	affinity := pod.Pod.GetSpec().GetAffinity()
	for _, list := range [][]*corev1.PodAffinityTerm{
		affinity.GetPodAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution(),
		affinity.GetPodAntiAffinity().GetRequiredDuringSchedulingIgnoredDuringExecution(),
	} {
		for _, t := range list {
			if t.GetNamespaceSelector() != nil {
				return framework.Queue
			}
		}
	}
	return framework.QueueSkip
}

func (p *Plugin) allSelect(terms []*framework.PodTerm, pod *framework.PodInfo) bool {
	for _, t := range terms {
		if !t.Matches(pod, p.namespaceLabels) {
			return false
		}
	}
	return true
}

// namespaceLabels is for use outside of cycles, where there is no snapshot.
func (p *Plugin) namespaceLabels(namespace string) map[string]string {
	namespaces, ok := framework.Objects[*corev1.Namespace](p.handle, "Namespace")
	if !ok {
		return nil
	}
	ns, _ := namespaces.Get("", namespace)
	return ns.GetMetadata().GetLabels()
}

// Sign implements framework.SignPlugin. A pod without terms of its own is judged by its namespace and labels, against the
// terms of those that are there.
func (p *Plugin) Sign(pod *framework.PodInfo, signature *framework.Signature) bool {
	if pod.Affinity != nil {
		return false
	}
	if signature.Field("namespace") {
		signature.Text(pod.Namespace())
	}
	if signature.Field("labels") {
		signature.Map(pod.Labels())
	}
	return true
}

// SignEpoch implements framework.SignEpochPlugin.
func (p *Plugin) SignEpoch(_ *framework.PodInfo, nodes *framework.Snapshot) uint64 {
	return nodes.HeldVersion()
}
