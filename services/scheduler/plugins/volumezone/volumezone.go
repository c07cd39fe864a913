// Package volumezone keeps pods off nodes that are in another zone or region than a volume that they use, as the volume's
// labels say. Newer volumes say it by their node affinity, which is VolumeBinding's.
package volumezone

import (
	"slices"
	"strings"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/internal/claims"
)

// Name of the plugin.
const Name = "VolumeZone"

// keys of labels that say where a volume, and a node, is; the older names first.
var keys = []string{
	"failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
	"topology.kubernetes.io/zone", "topology.kubernetes.io/region",
}

// successor is the name that a node may have a label by instead.
var successor = map[string]string{
	"failure-domain.beta.kubernetes.io/zone":   "topology.kubernetes.io/zone",
	"failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}

var conflict = framework.NewStatus(framework.UnschedulableAndUnresolvable, "node(s) had no available volume zone").WithPlugin(Name)

// Plugin is a PreFilter and a Filter. Make it with New.
type Plugin struct{ objects claims.Objects }

// New returns a Plugin.
func New(h framework.Handle) *Plugin { return &Plugin{claims.From(h)} }

// Name implements framework.Plugin.
func (*Plugin) Name() string { return Name }

// EventsToRegister implements framework.EnqueueExtensions.
func (*Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add | framework.UpdateNodeLabel}},
		{Event: framework.ClusterEvent{Resource: framework.PersistentVolumeClaim, Action: framework.Add | framework.Update}, Hint: claims.HintClaim},
		{Event: framework.ClusterEvent{Resource: framework.PersistentVolume, Action: framework.Add | framework.Update}},
		{Event: framework.ClusterEvent{Resource: framework.StorageClass, Action: framework.Add}},
	}
}

// place is one label of a volume and the values that will do.
type place struct {
	key    string
	values []string
}

type state []place

// Clone implements framework.StateData: the places do not change.
func (s state) Clone() framework.StateData { return s }

// PreFilter implements framework.PreFilterPlugin. Claims that have no volume yet are VolumeBinding's.
func (p *Plugin) PreFilter(cycle *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	var s state
	claims.Of(pod.Pod, func(name string) {
		claim, ok := p.objects.Claim(pod.Pod, name)
		if !ok {
			return
		}
		labels := p.objects.Volume(claim).GetMetadata().GetLabels()
		for _, key := range keys {
			if value, ok := labels[key]; ok {
				// A volume may be in several zones: a__b.
				s = append(s, place{key, strings.Split(value, "__")})
			}
		}
	})
	if len(s) == 0 {
		return nil, framework.NewStatus(framework.Skip)
	}
	cycle.Write(Name, s)
	return nil, nil
}

// PreFilterExtensions implements framework.PreFilterPlugin: other pods do not matter.
func (*Plugin) PreFilterExtensions() framework.PreFilterExtensions { return nil }

// Filter implements framework.FilterPlugin.
func (*Plugin) Filter(cycle *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	places, _ := cycle.Read(Name).(state)
	return judge(places, node.Node)
}

func judge(places state, node *corev1.Node) *framework.Status {
	labels := node.GetMetadata().GetLabels()
	if !slices.ContainsFunc(keys, func(k string) bool { _, ok := labels[k]; return ok }) {
		return nil // a cluster without zones
	}
	for _, place := range places {
		value, ok := labels[place.key]
		if !ok {
			value, ok = labels[successor[place.key]]
		}
		if !ok || !slices.Contains(place.values, value) {
			return conflict
		}
	}
	return nil
}

// Sign implements framework.SignPlugin: what becomes of a pod with claims depends on more than the pod.
func (*Plugin) Sign(pod *framework.PodInfo, _ *framework.Signature) bool { return !claims.Any(pod.Pod) }
