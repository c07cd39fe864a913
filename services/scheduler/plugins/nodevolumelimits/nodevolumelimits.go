// Package nodevolumelimits keeps pods off nodes that hold as many volumes of a storage driver as they can.
package nodevolumelimits

import (
	"trireme.dev/client/volume"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/internal/claims"
)

// Name of the plugin.
const Name = "NodeVolumeLimits"

var full = framework.NewStatus(framework.Unschedulable, "node(s) exceed max volume count").WithPlugin(Name)

// Plugin is a PreFilter and a Filter. Make it with New.
type Plugin struct{ objects claims.Objects }

// New returns a Plugin.
func New(h framework.Handle) *Plugin { return &Plugin{claims.From(h)} }

// Name implements framework.Plugin.
func (*Plugin) Name() string { return Name }

// EventsToRegister implements framework.EnqueueExtensions.
func (*Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.ClusterEvent{Resource: framework.CSINode, Action: framework.Add | framework.Update}},
		{Event: framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete}, Hint: func(_ *framework.PodInfo, change *framework.Change) framework.Hint {
			if change.OldPod == nil || claims.Any(change.OldPod.Pod) {
				return framework.Queue
			}
			return framework.QueueSkip
		}},
		{Event: framework.ClusterEvent{Resource: framework.PersistentVolumeClaim, Action: framework.Add | framework.Update}, Hint: claims.HintClaim},
	}
}

// handle is a volume of a driver, by the driver's own name for it, or by its claim where it is still to be made.
type handle struct{ driver, name string }

// state is the volumes of the pod.
type state map[handle]struct{}

// Clone implements framework.StateData: the volumes do not change.
func (s state) Clone() framework.StateData { return s }

// PreFilter implements framework.PreFilterPlugin.
func (p *Plugin) PreFilter(cycle *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	var s state
	p.volumes(pod.Pod, func(h handle) {
		if s == nil {
			s = state{}
		}
		s[h] = struct{}{}
	})
	if len(s) == 0 {
		return nil, framework.NewStatus(framework.Skip)
	}
	cycle.Write(Name, s)
	return nil, nil
}

// PreFilterExtensions implements framework.PreFilterPlugin: Filter looks at the pods of the node that it is given.
func (*Plugin) PreFilterExtensions() framework.PreFilterExtensions { return nil }

// Filter implements framework.FilterPlugin. A node of which nothing is known has no limits.
func (p *Plugin) Filter(cycle *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	wanted, _ := cycle.Read(Name).(state)
	drivers, ok := p.objects.Nodes.Get("", node.Name())
	if !ok {
		return nil
	}
	limits := map[string]int{}
	for _, d := range drivers.GetSpec().GetDrivers() {
		if d.GetAllocatable() != nil && d.GetAllocatable().Count != nil {
			limits[d.GetName()] = int(d.GetAllocatable().GetCount())
		}
	}
	if len(limits) == 0 {
		return nil
	}
	held := map[handle]struct{}{}
	for _, other := range node.Pods {
		if claims.Any(other.Pod) {
			p.volumes(other.Pod, func(h handle) { held[h] = struct{}{} })
		}
	}
	used, added := map[string]int{}, map[string]int{}
	for h := range held {
		used[h.driver]++
	}
	for h := range wanted {
		// A volume that is there already counts once.
		if _, there := held[h]; !there {
			added[h.driver]++
		}
	}
	for driver, n := range added {
		if limit, limited := limits[driver]; limited && used[driver]+n > limit {
			return full
		}
	}
	return nil
}

// volumes calls fn for the pod's volumes that a driver mounts.
func (p *Plugin) volumes(pod *corev1.Pod, fn func(handle)) {
	claims.Of(pod, func(name string) {
		claim, ok := p.objects.Claim(pod, name)
		if !ok {
			return
		}
		if pv := p.objects.Volume(claim); pv != nil {
			if csi := pv.GetSpec().GetCsi(); csi != nil {
				fn(handle{csi.GetDriver(), csi.GetVolumeHandle()})
			}
			return
		}
		if class := p.objects.Class(claim); class != nil && class.GetProvisioner() != volume.NoProvisioner {
			fn(handle{class.GetProvisioner(), claim.GetMetadata().GetNamespace() + "/" + claim.GetMetadata().GetName()})
		}
	})
}

// Sign implements framework.SignPlugin: what becomes of a pod with claims depends on other pods.
func (*Plugin) Sign(pod *framework.PodInfo, _ *framework.Signature) bool { return !claims.Any(pod.Pod) }
