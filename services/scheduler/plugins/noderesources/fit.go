// Package noderesources compares what pods ask for with what nodes have: Fit filters by it and prefers emptier nodes,
// BalancedAllocation prefers nodes whose resources are used evenly.
package noderesources

import (
	"maps"
	"slices"
	"strings"

	"trireme.dev/services/scheduler/framework"
)

// FitName is the name of Fit.
const FitName = "NodeResourcesFit"

// Fit is a Filter over all resources, extended ones and the number of pods included, and a Score. Make it with NewFit.
type Fit struct {
	strategy strategy
	ignored  map[string]bool // by name, and by group with its slash
}

// NewFit returns a Fit; args must be valid, absent ones count as defaults.
func NewFit(args *FitArgs) *Fit {
	f := &Fit{strategy: newStrategy(args.ScoringStrategy)}
	for _, name := range args.IgnoredResources {
		f.ignore(name)
	}
	for _, group := range args.IgnoredResourceGroups {
		f.ignore(group + "/")
	}
	return f
}

func (f *Fit) ignore(what string) {
	if f.ignored == nil {
		f.ignored = make(map[string]bool)
	}
	f.ignored[what] = true
}

// ignores reports whether an extended resource is not filtered by.
func (f *Fit) ignores(resource string) bool {
	if f.ignored == nil {
		return false
	}
	group, _, _ := strings.Cut(resource, "/")
	return f.ignored[resource] || f.ignored[group+"/"]
}

const tooManyPods = "Too many pods"

// Name implements framework.Plugin.
func (*Fit) Name() string { return FitName }

// EventsToRegister implements framework.EnqueueExtensions.
func (f *Fit) EventsToRegister() []framework.EventHint {
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
				if allocatable.AllowedPods < 1 || len(f.exceeding(&pod.Request, &allocatable)) > 0 {
					return framework.QueueSkip // not even on the empty node
				}
				return framework.Queue
			},
		},
		{Event: framework.ClusterEvent{Resource: framework.UnscheduledPod, Action: framework.UpdatePodScaleDown}},
	}
}

// PreFilter implements framework.PreFilterPlugin. The requests are computed with the PodInfo, so nothing is left to do.
func (*Fit) PreFilter(*framework.CycleState, *framework.PodInfo, *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	return nil, nil
}

// PreFilterExtensions implements framework.PreFilterPlugin: NodeInfo keeps the sums.
func (*Fit) PreFilterExtensions() framework.PreFilterExtensions { return nil }

// Filter implements framework.FilterPlugin. It names every resource that is short. The rejection is final where the pod
// asks for more than the whole node has.
func (f *Fit) Filter(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	request, used, have := &pod.Request, &node.Requested, &node.Allocatable
	tooMany := int64(len(node.Pods))+1 > have.AllowedPods
	if !tooMany &&
		(request.MilliCPU == 0 || request.MilliCPU <= have.MilliCPU-used.MilliCPU) &&
		(request.Memory == 0 || request.Memory <= have.Memory-used.Memory) &&
		(request.EphemeralStorage == 0 || request.EphemeralStorage <= have.EphemeralStorage-used.EphemeralStorage) &&
		f.scalarFits(request, used, have) {
		return nil
	}

	var reasons []string
	if tooMany {
		reasons = append(reasons, tooManyPods)
	}
	free := have.Clone()
	free.Sub(used)
	for _, name := range f.exceeding(request, &free) {
		reasons = append(reasons, "Insufficient "+name)
	}
	code := framework.Unschedulable
	if have.AllowedPods < 1 || len(f.exceeding(request, have)) > 0 {
		code = framework.UnschedulableAndUnresolvable
	}
	return framework.NewStatus(code, reasons...)
}

// FilterPass implements framework.FilterPassPlugin.
func (f *Fit) FilterPass(_ *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, open []int32, verdicts *framework.Verdicts) *framework.Status {
	request := &pod.Request
	var room [4]short
	shorts := room[:0]
	shorts = appendShort(shorts, nodes, framework.ResourceCPU, framework.CPU, request.MilliCPU)
	shorts = appendShort(shorts, nodes, framework.ResourceMemory, framework.Memory, request.Memory)
	shorts = appendShort(shorts, nodes, framework.ResourceEphemeralStorage, framework.EphemeralStorage, request.EphemeralStorage)
	if len(request.Scalar) > 0 {
		for _, name := range slices.Sorted(maps.Keys(request.Scalar)) {
			if f.ignores(name) {
				continue
			}
			id, ok := nodes.Resource(name)
			if !ok { // nobody has any
				shorts = append(shorts, short{name: name, want: request.Scalar[name]})
				continue
			}
			shorts = appendShort(shorts, nodes, name, id, request.Scalar[name])
		}
	}
	reasons := reasons{verdicts: verdicts}
	if len(shorts) == 2 && shorts[0].have != nil && shorts[1].have != nil {
		a, b := shorts[0], shorts[1]
		for _, i := range open {
			if nodes.Pods[i] >= nodes.AllowedPods[i] || a.want > a.have[i]-a.used[i] || b.want > b.have[i]-b.used[i] {
				verdicts.Reject(i, reasons.of(shorts, nodes, i))
			}
		}
		return nil
	}
	for _, i := range open {
		fits := nodes.Pods[i] < nodes.AllowedPods[i]
		for k := range shorts {
			fits = fits && shorts[k].free(i) >= shorts[k].want
		}
		if !fits {
			verdicts.Reject(i, reasons.of(shorts, nodes, i))
		}
	}
	return nil
}

// short is a resource in columns that a pod asks for. have is nil where no node has any.
type short struct {
	name       string
	have, used []int64
	want       int64
}

func appendShort(shorts []short, nodes *framework.Columns, name string, id framework.ResourceID, want int64) []short {
	if want <= 0 {
		return shorts
	}
	return append(shorts, short{name, nodes.Allocatable[id], nodes.Requested[id], want})
}

func (s *short) free(i int32) int64 {
	if s.have == nil {
		return 0
	}
	return s.have[i] - s.used[i]
}

func (s *short) exceeds(i int32) bool { return s.have == nil || s.want > s.have[i] }

// reasons makes and remembers the rejections of one pass: there are few different ones.
type reasons struct {
	verdicts *framework.Verdicts
	known    []knownReason
}

type knownReason struct {
	missing uint64 // bit 0: pods; bit k+1: resource k
	final   bool
	reason  framework.Reason
}

func (r *reasons) of(shorts []short, nodes *framework.Columns, i int32) framework.Reason {
	var missing uint64
	final := nodes.AllowedPods[i] < 1
	if nodes.Pods[i] >= nodes.AllowedPods[i] {
		missing |= 1
	}
	for k := range shorts {
		s := &shorts[k]
		if s.want > s.free(i) {
			missing |= 1 << (k + 1)
			final = final || s.exceeds(i)
		}
	}
	for _, k := range r.known {
		if k.missing == missing && k.final == final {
			return k.reason
		}
	}
	var texts []string
	if missing&1 != 0 {
		texts = append(texts, tooManyPods)
	}
	for k, s := range shorts {
		if missing&(1<<(k+1)) != 0 {
			texts = append(texts, "Insufficient "+s.name)
		}
	}
	code := framework.Unschedulable
	if final {
		code = framework.UnschedulableAndUnresolvable
	}
	reason := r.verdicts.Reason(framework.NewStatus(code, texts...))
	r.known = append(r.known, knownReason{missing, final, reason})
	return reason
}

func (f *Fit) scalarFits(request, used, have *framework.Resource) bool {
	for name, v := range request.Scalar {
		if v > have.Scalar[name]-used.Scalar[name] && !f.ignores(name) {
			return false
		}
	}
	return true
}

// exceeding lists the resources of which request asks for more than there is: cpu, memory, ephemeral-storage, then
// extended ones by name.
func (f *Fit) exceeding(request, have *framework.Resource) []string {
	var names []string
	for _, name := range []string{framework.ResourceCPU, framework.ResourceMemory, framework.ResourceEphemeralStorage} {
		if want := request.Get(name); want > 0 && want > have.Get(name) {
			names = append(names, name)
		}
	}
	fixed := len(names)
	for name, want := range request.Scalar {
		if want > 0 && want > have.Scalar[name] && !f.ignores(name) {
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

// Score implements framework.ScorePlugin: by the strategy's measure of the resources once the pod is there, in 0..100.
// Containers that ask for nothing count with the defaults of framework.
func (f *Fit) Score(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	return f.strategy.score(pod, node), nil
}

// ScorePass implements framework.ScorePassPlugin.
func (f *Fit) ScorePass(_ *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, feasible []int32, scores []int64) *framework.Status {
	f.strategy.pass(pod, nodes, feasible, scores)
	return nil
}

// Sign implements framework.SignPlugin.
func (*Fit) Sign(pod *framework.PodInfo, signature *framework.Signature) bool {
	sign(pod, signature)
	return true
}

func sign(pod *framework.PodInfo, signature *framework.Signature) {
	if !signature.Field("requests") {
		return
	}
	for _, r := range []*framework.Resource{&pod.Request, &pod.Scored} {
		signature.Int(r.MilliCPU)
		signature.Int(r.Memory)
		signature.Int(r.EphemeralStorage)
		signature.Int(int64(len(r.Scalar)))
		if len(r.Scalar) == 0 {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(r.Scalar)) {
			signature.Text(name)
			signature.Int(r.Scalar[name])
		}
	}
}
