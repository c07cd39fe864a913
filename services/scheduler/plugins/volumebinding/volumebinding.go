// Package volumebinding places pods where their volumes can be reached, and binds what is still to be bound: claims whose
// class waits for the first pod get a volume that the chosen node reaches, or are handed to a provisioner for that node.
//
// What Reserve chooses is remembered here until the gateway knows it, so that no volume is chosen twice; what the members of a
// gang will choose, the ones after them see at Filter.
package volumebinding

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"trireme.dev/client/volume"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	storagev1 "trireme.dev/proto/gen/trireme/storage/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/internal/claims"
	"trireme.dev/services/scheduler/plugins/nodeaffinity"
)

// Name of the plugin.
const Name = "VolumeBinding"

var (
	noVolume    = reject("node(s) didn't find available persistent volumes to bind")
	unreachable = reject("node(s) didn't match PersistentVolume's node affinity")
	gone        = reject("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
)

func reject(reason string) *framework.Status {
	return framework.NewStatus(framework.UnschedulableAndUnresolvable, reason).WithPlugin(Name)
}

// Plugin is a PreFilter, Filter, Reserve and PreBind. Make it with New.
type Plugin struct {
	handle  framework.Handle
	args    *Args
	objects claims.Objects

	mu sync.Mutex
	// chosen are the volumes that pods in flight have chosen, with the claim's uid.
	chosen map[string]string
	// plans of pods in flight, by their uid.
	plans map[string]*plan

	mates mates
}

// New returns a Plugin.
func New(h framework.Handle, args *Args) (*Plugin, error) {
	return &Plugin{handle: h, args: args, objects: claims.From(h), chosen: map[string]string{}, plans: map[string]*plan{}}, nil
}

// Name implements framework.Plugin.
func (*Plugin) Name() string { return Name }

// EventsToRegister implements framework.EnqueueExtensions.
func (*Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.ClusterEvent{Resource: framework.StorageClass, Action: framework.Add | framework.Update}},
		{Event: framework.ClusterEvent{Resource: framework.PersistentVolumeClaim, Action: framework.Add | framework.Update}, Hint: claims.HintClaim},
		{Event: framework.ClusterEvent{Resource: framework.PersistentVolume, Action: framework.Add | framework.Update}},
		{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add | framework.UpdateNodeLabel}},
		{Event: framework.ClusterEvent{Resource: framework.CSINode, Action: framework.Add | framework.Update}},
	}
}

// state is what a pod's claims are.
type state struct {
	bound []*corev1.PersistentVolumeClaim
	// open claims are bound once a node is chosen, smaller ones first.
	open []*corev1.PersistentVolumeClaim
	// mates' choices, in the cycle in progress.
	mates choices
}

// Clone implements framework.StateData: the claims do not change.
func (s *state) Clone() framework.StateData { return s }

// PreFilter implements framework.PreFilterPlugin.
func (p *Plugin) PreFilter(cycle *framework.CycleState, pod *framework.PodInfo, nodes *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	if !claims.Any(pod.Pod) {
		return nil, framework.NewStatus(framework.Skip)
	}
	s, st := p.claims(pod)
	if !st.IsSuccess() {
		return nil, st
	}
	if len(s.open) > 0 {
		s.mates = p.matesChoices(nodes)
	}
	cycle.Write(Name, s)
	return nil, nil
}

// claims looks at what a pod asks for.
func (p *Plugin) claims(pod *framework.PodInfo) (*state, *framework.Status) {
	s := &state{}
	var rejected *framework.Status
	claims.Of(pod.Pod, func(name string) {
		claim, ok := p.objects.Claim(pod.Pod, name)
		switch {
		case rejected != nil:
		case !ok:
			rejected = reject(fmt.Sprintf("persistentvolumeclaim %q not found", name))
		case claim.GetStatus().GetPhase() == "Lost":
			rejected = reject(fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name, claim.GetSpec().GetVolumeName()))
		case claim.GetMetadata().GetDeletionTimestamp() != nil:
			rejected = reject(fmt.Sprintf("persistentvolumeclaim %q is being deleted", name))
		case volume.Bound(claim):
			s.bound = append(s.bound, claim)
		case claim.GetSpec().GetVolumeName() == "" && volume.Waits(p.objects.Class(claim)):
			if !slices.Contains(s.open, claim) {
				s.open = append(s.open, claim)
			}
		default:
			rejected = reject("pod has unbound immediate PersistentVolumeClaims")
		}
	})
	slices.SortFunc(s.open, volume.CompareSize)
	return s, rejected
}

// PreFilterExtensions implements framework.PreFilterPlugin: other pods do not matter.
func (*Plugin) PreFilterExtensions() framework.PreFilterExtensions { return nil }

// Filter implements framework.FilterPlugin.
func (p *Plugin) Filter(cycle *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	s, ok := cycle.Read(Name).(*state)
	if !ok {
		return nil
	}
	_, st := p.plan(s, node.Node, s.mates)
	return st
}

// plan is what is to be done so that a pod has its volumes on a node.
type plan struct {
	bind      []binding
	provision []*corev1.PersistentVolumeClaim
	// claims that are to be bound in the end.
	claims []*corev1.PersistentVolumeClaim
}

type binding struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
}

// plan works out what a pod needs on a node where its mates have made their choices.
func (p *Plugin) plan(s *state, node *corev1.Node, mates choices) (*plan, *framework.Status) {
	for _, claim := range s.bound {
		pv := p.objects.Volume(claim)
		if pv == nil {
			return nil, gone
		}
		if !reaches(node, pv) {
			return nil, unreachable
		}
	}
	out := &plan{claims: s.open}
	if len(s.open) == 0 {
		return out, nil
	}
	volumes := p.objects.Volumes.List("", nil)
	taken := map[string]bool{}
	for _, claim := range s.open {
		pv := volume.Match(claim, volumes, func(pv *corev1.PersistentVolume) bool {
			return !taken[pv.GetMetadata().GetName()] && mates.allows(pv, claim) && p.free(pv, claim) && reaches(node, pv)
		})
		switch {
		case pv != nil:
			taken[pv.GetMetadata().GetName()] = true
			out.bind = append(out.bind, binding{claim, pv})
		case p.provisions(claim, node):
			out.provision = append(out.provision, claim)
		default:
			return nil, noVolume
		}
	}
	return out, nil
}

func reaches(node *corev1.Node, pv *corev1.PersistentVolume) bool {
	return nodeaffinity.Selects(pv.GetSpec().GetNodeAffinity().GetRequired(), node)
}

// free reports whether no other claim in flight has chosen the volume. What the gateway knows by now is forgotten.
func (p *Plugin) free(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.freeLocked(pv, claim)
}

func (p *Plugin) freeLocked(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	by, chosen := p.chosen[pv.GetMetadata().GetName()]
	return !chosen || by == claim.GetMetadata().GetUid()
}

// provisions reports whether somebody can make a volume for a claim that the node reaches.
func (p *Plugin) provisions(claim *corev1.PersistentVolumeClaim, node *corev1.Node) bool {
	class := p.objects.Class(claim)
	if class.GetProvisioner() == "" || class.GetProvisioner() == volume.NoProvisioner || claim.GetSpec().GetSelector() != nil {
		return false
	}
	if there := claim.GetMetadata().GetAnnotations()[volume.SelectedNode]; there != "" && there != node.GetMetadata().GetName() {
		return false // it is being made elsewhere
	}
	return allowed(class, node)
}

// allowed reports whether a class lets volumes be made where the node is.
func allowed(class *storagev1.StorageClass, node *corev1.Node) bool {
	terms := class.GetAllowedTopologies()
	return len(terms) == 0 || slices.ContainsFunc(terms, func(t *corev1.TopologySelectorTerm) bool {
		return !slices.ContainsFunc(t.GetMatchLabelExpressions(), func(r *corev1.TopologySelectorLabelRequirement) bool {
			return !slices.Contains(r.GetValues(), node.GetMetadata().GetLabels()[r.GetKey()])
		})
	})
}

// Reserve implements framework.ReservePlugin: it chooses the volumes for good.
func (p *Plugin) Reserve(_ context.Context, cycle *framework.CycleState, pod *framework.PodInfo, node string) *framework.Status {
	s, ok := cycle.Read(Name).(*state)
	if !ok || len(s.open) == 0 {
		return nil
	}
	info := p.handle.Snapshot().Node(node)
	if info == nil {
		return framework.NewStatus(framework.Unschedulable, "node "+node+" is gone")
	}
	chosen, st := p.plan(s, info.Node, choices{})
	if !st.IsSuccess() {
		// Another member of its gang was given the volume.
		return framework.NewStatus(framework.Unschedulable, st.Reasons()...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range chosen.bind {
		p.chosen[b.volume.GetMetadata().GetName()] = b.claim.GetMetadata().GetUid()
	}
	p.plans[pod.UID()] = chosen
	return nil
}

// Unreserve implements framework.ReservePlugin.
func (p *Plugin) Unreserve(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, _ string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(pod.UID())
}

// forget gives up what a pod has chosen; the lock is held.
func (p *Plugin) forget(uid string) {
	if chosen := p.plans[uid]; chosen != nil {
		for _, b := range chosen.bind {
			delete(p.chosen, b.volume.GetMetadata().GetName())
		}
		delete(p.plans, uid)
	}
}

// PostBind implements framework.PostBindPlugin: the gateway knows by now what the pod chose.
func (p *Plugin) PostBind(ctx context.Context, cycle *framework.CycleState, pod *framework.PodInfo, node string) {
	p.Unreserve(ctx, cycle, pod, node)
}

// Sign implements framework.SignPlugin: what becomes of a pod with claims depends on more than the pod.
func (*Plugin) Sign(pod *framework.PodInfo, _ *framework.Signature) bool { return !claims.Any(pod.Pod) }
