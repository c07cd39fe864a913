// Package noderesources compares what pods ask for with what nodes have: Fit filters by it and prefers emptier nodes,
// BalancedAllocation prefers nodes whose resources are used evenly.
package noderesources

import (
	"slices"

	"trireme.dev/services/scheduler/framework"
)

// FitName is the name of Fit.
const FitName = "NodeResourcesFit"

// Fit is a Filter over all resources, extended ones and the number of pods included, and scores by the strategy
// LeastAllocated over cpu and memory. The zero value is ready.
type Fit struct{}

const tooManyPods = "Too many pods"

// Name implements framework.Plugin.
func (Fit) Name() string { return FitName }

// EventsToRegister implements framework.EnqueueExtensions.
func (Fit) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{
		{
			Event: framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete | framework.UpdatePodScaleDown},
			Hint: func(pod *framework.PodInfo, change *framework.Change) framework.Hint {
				// A pod that goes always gives back its place; one that shrinks, something else.
				if change.NewPod == nil || frees(pod, change) {
					return framework.Queue
				}
				return framework.QueueSkip
			},
		},
		{
			Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add | framework.UpdateNodeAllocatable},
			Hint: func(pod *framework.PodInfo, change *framework.Change) framework.Hint {
				allocatable, _ := framework.ParseResource(change.NewNode.GetStatus().GetAllocatable())
				if allocatable.AllowedPods < 1 || len(exceeding(&pod.Request, &allocatable)) > 0 {
					return framework.QueueSkip // not even on the empty node
				}
				return framework.Queue
			},
		},
		{Event: framework.ClusterEvent{Resource: framework.UnscheduledPod, Action: framework.UpdatePodScaleDown}},
	}
}

// PreFilter implements framework.PreFilterPlugin. The requests are computed with the PodInfo, so nothing is left to do.
func (Fit) PreFilter(*framework.CycleState, *framework.PodInfo, *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	return nil, nil
}

// PreFilterExtensions implements framework.PreFilterPlugin: NodeInfo keeps the sums.
func (Fit) PreFilterExtensions() framework.PreFilterExtensions { return nil }

// Filter implements framework.FilterPlugin. It names every resource that is short. The rejection is final where the pod
// asks for more than the whole node has.
func (Fit) Filter(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	request, used, have := &pod.Request, &node.Requested, &node.Allocatable
	tooMany := int64(len(node.Pods))+1 > have.AllowedPods
	if !tooMany &&
		(request.MilliCPU == 0 || request.MilliCPU <= have.MilliCPU-used.MilliCPU) &&
		(request.Memory == 0 || request.Memory <= have.Memory-used.Memory) &&
		(request.EphemeralStorage == 0 || request.EphemeralStorage <= have.EphemeralStorage-used.EphemeralStorage) &&
		scalarFits(request, used, have) {
		return nil
	}

	var reasons []string
	if tooMany {
		reasons = append(reasons, tooManyPods)
	}
	free := have.Clone()
	free.Sub(used)
	for _, name := range exceeding(request, &free) {
		reasons = append(reasons, "Insufficient "+name)
	}
	code := framework.Unschedulable
	if have.AllowedPods < 1 || len(exceeding(request, have)) > 0 {
		code = framework.UnschedulableAndUnresolvable
	}
	return framework.NewStatus(code, reasons...)
}

func scalarFits(request, used, have *framework.Resource) bool {
	for name, v := range request.Scalar {
		if v > have.Scalar[name]-used.Scalar[name] {
			return false
		}
	}
	return true
}

// exceeding lists the resources of which request asks for more than there is: cpu, memory, ephemeral-storage, then
// extended ones by name.
func exceeding(request, have *framework.Resource) []string {
	var names []string
	for _, name := range []string{framework.ResourceCPU, framework.ResourceMemory, framework.ResourceEphemeralStorage} {
		if want := request.Get(name); want > 0 && want > have.Get(name) {
			names = append(names, name)
		}
	}
	fixed := len(names)
	for name, want := range request.Scalar {
		if want > 0 && want > have.Scalar[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names[fixed:])
	return names
}

// frees reports whether the change gives back some of what the pod asks for.
func frees(pod *framework.PodInfo, change *framework.Change) bool {
	before, after := &change.OldPod.Request, &change.NewPod.Request
	for _, name := range []string{framework.ResourceCPU, framework.ResourceMemory, framework.ResourceEphemeralStorage} {
		if pod.Request.Get(name) > 0 && after.Get(name) < before.Get(name) {
			return true
		}
	}
	for name := range pod.Request.Scalar {
		if after.Scalar[name] < before.Scalar[name] {
			return true
		}
	}
	return false
}

// Score implements framework.ScorePlugin: the mean of the free shares of cpu and memory once the pod is there, in
// 0..100. Containers that ask for nothing count with the defaults of framework.
func (Fit) Score(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	var sum, weights int64
	for _, r := range [...]struct{ have, want int64 }{
		{node.Allocatable.MilliCPU, node.Scored.MilliCPU + pod.Scored.MilliCPU},
		{node.Allocatable.Memory, node.Scored.Memory + pod.Scored.Memory},
	} {
		if r.have == 0 {
			continue
		}
		sum += leastAllocated(r.want, r.have)
		weights++
	}
	if weights == 0 {
		return 0, nil
	}
	return sum / weights, nil
}

func leastAllocated(want, have int64) int64 {
	if want > have {
		return 0
	}
	// In floating point where a product of bytes would leave int64: above 80 PiB.
	if have > 1<<56 {
		return int64(float64(have-want) / float64(have) * float64(framework.MaxScore))
	}
	return (have - want) * framework.MaxScore / have
}
