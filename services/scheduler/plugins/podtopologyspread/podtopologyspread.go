// Package podtopologyspread spreads pods over domains of nodes: zones, racks, hosts. A constraint with DoNotSchedule
// filters, one with ScheduleAnyway ranks. It counts by the snapshot's counters, so that its cost is a pass over nodes and
// never one over pods.
package podtopologyspread

import (
	"fmt"

	"trireme.dev/client/selector"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
)

// Name of the plugin.
const Name = "PodTopologySpread"

// What whenUnsatisfiable may be.
const (
	doNotSchedule  = "DoNotSchedule"
	scheduleAnyway = "ScheduleAnyway"
)

// DefaultingType says where the constraints of pods that have none come from.
type DefaultingType string

// The types.
const (
	// SystemDefaulting spreads softly over hosts and zones.
	SystemDefaulting DefaultingType = "System"
	// ListDefaulting uses Args.DefaultConstraints.
	ListDefaulting DefaultingType = "List"
)

// Args are Kubernetes' PodTopologySpreadArgs.
type Args struct {
	// DefaultConstraints for pods that have none and that belong to a Service or ReplicaSet, whose selectors they get.
	DefaultConstraints []DefaultConstraint `json:"defaultConstraints,omitempty"`
	// DefaultingType is System unless it is given.
	DefaultingType DefaultingType `json:"defaultingType,omitempty"`
}

// DefaultConstraint is a constraint without a selector.
type DefaultConstraint struct {
	MaxSkew           int32  `json:"maxSkew"`
	TopologyKey       string `json:"topologyKey"`
	WhenUnsatisfiable string `json:"whenUnsatisfiable"`
}

// DefaultArgs returns what applies where nothing is configured.
func DefaultArgs() *Args { return &Args{DefaultingType: SystemDefaulting} }

// Validate checks the arguments by themselves.
func (a *Args) Validate() error {
	switch a.DefaultingType {
	case SystemDefaulting:
		if len(a.DefaultConstraints) > 0 {
			return fmt.Errorf("defaultConstraints: must be empty when defaultingType is %s", SystemDefaulting)
		}
	case ListDefaulting:
	default:
		return fmt.Errorf("defaultingType: %q is neither %s nor %s", a.DefaultingType, SystemDefaulting, ListDefaulting)
	}
	type pair struct{ key, when string }
	seen := map[pair]bool{}
	for i, c := range a.DefaultConstraints {
		at := fmt.Sprintf("defaultConstraints[%d]", i)
		switch {
		case c.MaxSkew < 1:
			return fmt.Errorf("%s.maxSkew: %d is not positive", at, c.MaxSkew)
		case c.TopologyKey == "":
			return fmt.Errorf("%s.topologyKey: required", at)
		case c.WhenUnsatisfiable != doNotSchedule && c.WhenUnsatisfiable != scheduleAnyway:
			return fmt.Errorf("%s.whenUnsatisfiable: %q is neither %s nor %s", at, c.WhenUnsatisfiable, doNotSchedule, scheduleAnyway)
		case seen[pair{c.TopologyKey, c.WhenUnsatisfiable}]:
			return fmt.Errorf("%s: another constraint has the same topologyKey and whenUnsatisfiable", at)
		}
		seen[pair{c.TopologyKey, c.WhenUnsatisfiable}] = true
	}
	return nil
}

// systemDefaults are the soft constraints of Kubernetes: KEP-1258.
var systemDefaults = []DefaultConstraint{
	{MaxSkew: 3, TopologyKey: framework.LabelHostname, WhenUnsatisfiable: scheduleAnyway},
	{MaxSkew: 5, TopologyKey: framework.LabelZone, WhenUnsatisfiable: scheduleAnyway},
}

// Plugin is a PreFilter, a Filter, a PreScore and a Score. Make it with New.
type Plugin struct {
	handle   framework.Handle
	defaults []DefaultConstraint
	// system is set where defaults are the system's: nodes without one of the labels are then scored all the same.
	system bool
}

// New returns the plugin.
func New(h framework.Handle, args *Args) (*Plugin, error) {
	if err := args.Validate(); err != nil {
		return nil, err
	}
	p := &Plugin{handle: h, defaults: args.DefaultConstraints}
	if args.DefaultingType == SystemDefaulting {
		p.defaults, p.system = systemDefaults, true
	}
	return p, nil
}

// Name implements framework.Plugin.
func (*Plugin) Name() string { return Name }

// EventsToRegister implements framework.EnqueueExtensions.
func (p *Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{
		{
			Event: framework.ClusterEvent{
				Resource: framework.AssignedPod,
				Action:   framework.Add | framework.Delete | framework.UpdatePodLabel,
			},
			Hint: p.afterPod,
		},
		{
			Event: framework.ClusterEvent{
				Resource: framework.Node,
				Action:   framework.Add | framework.Delete | framework.UpdateNodeLabel | framework.UpdateNodeTaint,
			},
			Hint: p.afterNode,
		},
		{Event: framework.ClusterEvent{Resource: framework.UnscheduledPod, Action: framework.UpdatePodLabel | framework.UpdatePodToleration}},
	}
}

// afterPod asks whether a constraint of the pod counts the other one, before or after.
func (p *Plugin) afterPod(pod *framework.PodInfo, change *framework.Change) framework.Hint {
	hard, err := p.hinted(pod)
	if err != nil || len(hard) == 0 {
		return framework.Queue
	}
	for i := range hard {
		before := change.OldPod != nil && hard[i].selector.Matches(change.OldPod, noLabels)
		after := change.NewPod != nil && hard[i].selector.Matches(change.NewPod, noLabels)
		if before != after {
			return framework.Queue
		}
	}
	return framework.QueueSkip
}

// afterNode asks whether the node's domains changed, or whether it begins or ceases to count.
func (p *Plugin) afterNode(pod *framework.PodInfo, change *framework.Change) framework.Hint {
	hard, err := p.hinted(pod)
	if err != nil || len(hard) == 0 {
		return framework.Queue
	}
	before, after := change.OldNode.GetMetadata().GetLabels(), change.NewNode.GetMetadata().GetLabels()
	had, has := hasAll(before, hard), hasAll(after, hard)
	if !had && !has {
		return framework.QueueSkip
	}
	if had != has || change.OldNode == nil || change.NewNode == nil {
		return framework.Queue
	}
	for i := range hard {
		c := &hard[i]
		// Where affinity or taints decide whether a node counts, any change of labels or taints may matter.
		if before[c.key] != after[c.key] || c.honorTaints || c.honorAffinity {
			return framework.Queue
		}
	}
	return framework.QueueSkip
}

// hinted returns the hard constraints for a hint; none where they are defaults, whose selectors are looked up in a cycle.
func (p *Plugin) hinted(pod *framework.PodInfo) ([]constraint, error) {
	all, err := explicit(pod)
	if err != nil {
		return nil, err
	}
	hard := all[:0]
	for _, c := range all {
		if c.hard {
			hard = append(hard, c)
		}
	}
	return hard, nil
}

// Sign implements framework.SignPlugin: where the pods of a constraint are decides about each other.
func (p *Plugin) Sign(pod *framework.PodInfo, _ *framework.Signature) bool {
	return len(pod.Pod.GetSpec().GetTopologySpreadConstraints()) == 0 && (len(p.defaults) == 0 || p.defaultSelector(pod) == nil)
}

// noLabels stands for the labels of namespaces, which no constraint asks for.
func noLabels(string) map[string]string { return nil }

func hasAll(labels map[string]string, constraints []constraint) bool {
	for i := range constraints {
		if _, ok := labels[constraints[i].key]; !ok {
			return false
		}
	}
	return true
}

// defaultSelector selects the pods with which a pod is spread by default: those of all its Services and of its ReplicaSet.
// It is nil for a pod that belongs to none.
func (p *Plugin) defaultSelector(pod *framework.PodInfo) *metav1.LabelSelector {
	var (
		labels map[string]string
		more   []*metav1.LabelSelectorRequirement
	)
	if services, ok := framework.Objects[*corev1.Service](p.handle, "Service"); ok {
		for _, s := range services.List(pod.Namespace(), nil) {
			want := s.GetSpec().GetSelector()
			if len(want) == 0 || !subset(want, pod.Labels()) {
				continue
			}
			if labels == nil {
				labels = map[string]string{}
			}
			for k, v := range want {
				labels[k] = v
			}
		}
	}
	if sets, ok := framework.Objects[*appsv1.ReplicaSet](p.handle, "ReplicaSet"); ok {
		for _, owner := range pod.Pod.GetMetadata().GetOwnerReferences() {
			if !owner.GetController() || owner.GetKind() != "ReplicaSet" {
				continue
			}
			set, found := sets.Get(pod.Namespace(), owner.GetName())
			if !found || set.GetMetadata().GetUid() != owner.GetUid() {
				continue
			}
			for k, v := range set.GetSpec().GetSelector().GetMatchLabels() {
				more = append(more, &metav1.LabelSelectorRequirement{Key: k, Operator: "In", Values: []string{v}})
			}
			more = append(more, set.GetSpec().GetSelector().GetMatchExpressions()...)
		}
	}
	if len(labels) == 0 && len(more) == 0 {
		return nil
	}
	out := &metav1.LabelSelector{MatchLabels: labels, MatchExpressions: more}
	if s, err := selector.FromLabelSelector(out); err != nil || s.IsEverything() {
		return nil
	}
	return out
}

func subset(want, labels map[string]string) bool {
	for k, v := range want {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}
