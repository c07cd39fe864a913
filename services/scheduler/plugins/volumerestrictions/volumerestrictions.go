// Package volumerestrictions keeps pods off nodes on which another pod has a disk that only one may have, and lets one pod
// at a time use a claim of the access mode ReadWriteOncePod.
package volumerestrictions

import (
	"slices"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/internal/claims"
)

// Name of the plugin.
const Name = "VolumeRestrictions"

const oncePod = "ReadWriteOncePod"

var (
	diskConflict = framework.NewStatus(framework.Unschedulable, "node(s) had no available disk").WithPlugin(Name)
	claimInUse   = framework.NewStatus(framework.Unschedulable,
		"node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode").WithPlugin(Name)
)

// Plugin is a PreFilter and a Filter. Make it with New.
type Plugin struct{ objects claims.Objects }

// New returns a Plugin.
func New(h framework.Handle) *Plugin { return &Plugin{claims.From(h)} }

// Name implements framework.Plugin.
func (*Plugin) Name() string { return Name }

// EventsToRegister implements framework.EnqueueExtensions.
func (*Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete}, Hint: freed},
		{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add}},
		{Event: framework.ClusterEvent{Resource: framework.PersistentVolumeClaim, Action: framework.Add | framework.Update}, Hint: claims.HintClaim},
	}
}

// freed has a pod tried again when one goes that has a disk or a claim of its own.
func freed(pod *framework.PodInfo, change *framework.Change) framework.Hint {
	gone := change.OldPod
	if gone == nil {
		return framework.Queue
	}
	for _, v := range pod.Pod.GetSpec().GetVolumes() {
		if restricted(v) && conflicts(v, gone.Pod) {
			return framework.Queue
		}
		if c := v.GetPersistentVolumeClaim(); c != nil && pod.Namespace() == gone.Namespace() {
			found := false
			claims.Of(gone.Pod, func(name string) { found = found || name == c.GetClaimName() })
			if found {
				return framework.Queue
			}
		}
	}
	return framework.QueueSkip
}

// state counts the other pods that use a claim that the pod may use only alone.
type state struct {
	alone  []string // claims
	others int
}

// Clone implements framework.StateData.
func (s *state) Clone() framework.StateData {
	c := *s
	return &c
}

func (s *state) uses(namespace string, other *framework.PodInfo) int {
	n := 0
	if other.Namespace() == namespace {
		claims.Of(other.Pod, func(name string) {
			if slices.Contains(s.alone, name) {
				n++
			}
		})
	}
	return n
}

// PreFilter implements framework.PreFilterPlugin.
func (p *Plugin) PreFilter(cycle *framework.CycleState, pod *framework.PodInfo, nodes *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	s := &state{}
	disks := slices.ContainsFunc(pod.Pod.GetSpec().GetVolumes(), restricted)
	var missing *framework.Status
	claims.Of(pod.Pod, func(name string) {
		claim, ok := p.objects.Claim(pod.Pod, name)
		if !ok {
			missing = framework.NewStatus(framework.UnschedulableAndUnresolvable, "persistentvolumeclaim \""+name+"\" not found")
			return
		}
		if slices.Contains(claim.GetSpec().GetAccessModes(), oncePod) {
			s.alone = append(s.alone, name)
		}
	})
	switch {
	case missing != nil:
		return nil, missing
	case len(s.alone) == 0 && !disks:
		return nil, framework.NewStatus(framework.Skip)
	}
	if len(s.alone) > 0 {
		// Few pods have such claims, so that looking for them is left until one comes.
		for _, n := range nodes.Nodes() {
			for _, other := range n.Pods {
				s.others += s.uses(pod.Namespace(), other)
			}
		}
	}
	cycle.Write(Name, s)
	return nil, nil
}

// PreFilterExtensions implements framework.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() framework.PreFilterExtensions { return p }

// AddPod implements framework.PreFilterExtensions.
func (*Plugin) AddPod(cycle *framework.CycleState, pod, added *framework.PodInfo, _ *framework.NodeInfo) *framework.Status {
	if s, ok := cycle.Read(Name).(*state); ok {
		s.others += s.uses(pod.Namespace(), added)
	}
	return nil
}

// RemovePod implements framework.PreFilterExtensions.
func (*Plugin) RemovePod(cycle *framework.CycleState, pod, removed *framework.PodInfo, _ *framework.NodeInfo) *framework.Status {
	if s, ok := cycle.Read(Name).(*state); ok {
		s.others -= s.uses(pod.Namespace(), removed)
	}
	return nil
}

// Filter implements framework.FilterPlugin.
func (*Plugin) Filter(cycle *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	for _, v := range pod.Pod.GetSpec().GetVolumes() {
		if !restricted(v) {
			continue
		}
		for _, other := range node.Pods {
			if conflicts(v, other.Pod) {
				return diskConflict
			}
		}
	}
	if s, ok := cycle.Read(Name).(*state); ok && s.others > 0 {
		return claimInUse
	}
	return nil
}

// restricted reports whether a volume is of a kind that pods of a node may not share as they like.
func restricted(v *corev1.Volume) bool {
	return v.GetGcePersistentDisk() != nil || v.GetAwsElasticBlockStore() != nil || v.GetRbd() != nil || v.GetIscsi() != nil
}

// conflicts reports whether a pod has the disk too, and one of the two writes, where that matters.
func conflicts(v *corev1.Volume, pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.GetSpec().GetVolumes(), func(o *corev1.Volume) bool {
		switch {
		case v.GetGcePersistentDisk() != nil && o.GetGcePersistentDisk() != nil:
			a, b := v.GetGcePersistentDisk(), o.GetGcePersistentDisk()
			return a.GetPdName() == b.GetPdName() && !(a.GetReadOnly() && b.GetReadOnly())
		case v.GetAwsElasticBlockStore() != nil && o.GetAwsElasticBlockStore() != nil:
			return v.GetAwsElasticBlockStore().GetVolumeId() == o.GetAwsElasticBlockStore().GetVolumeId()
		case v.GetIscsi() != nil && o.GetIscsi() != nil:
			a, b := v.GetIscsi(), o.GetIscsi()
			return a.GetIqn() == b.GetIqn() && a.GetLun() == b.GetLun() && !(a.GetReadOnly() && b.GetReadOnly())
		case v.GetRbd() != nil && o.GetRbd() != nil:
			a, b := v.GetRbd(), o.GetRbd()
			common := slices.ContainsFunc(a.GetMonitors(), func(m string) bool { return slices.Contains(b.GetMonitors(), m) })
			return common && a.GetPool() == b.GetPool() && a.GetImage() == b.GetImage() && !(a.GetReadOnly() && b.GetReadOnly())
		}
		return false
	})
}

// Sign implements framework.SignPlugin: what becomes of a pod with claims or such disks depends on other pods.
func (*Plugin) Sign(pod *framework.PodInfo, _ *framework.Signature) bool {
	return !claims.Any(pod.Pod) && !slices.ContainsFunc(pod.Pod.GetSpec().GetVolumes(), restricted)
}
