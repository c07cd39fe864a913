package noderesources

import (
	"math"

	"trireme.dev/services/scheduler/framework"
)

// strategy makes a score of the use of resources.
type strategy struct {
	kind      string
	resources []ResourceSpec
	shape     []ShapePoint // scores of 0 to 100
}

// newStrategy takes defaults for what is absent.
func newStrategy(s *ScoringStrategy) strategy {
	out := strategy{kind: LeastAllocated, resources: defaultResources()}
	if s == nil {
		return out
	}
	if s.Type != "" {
		out.kind = s.Type
	}
	if len(s.Resources) > 0 {
		out.resources = withWeights(s.Resources)
	}
	if out.kind == RequestedToCapacityFit {
		for _, p := range s.RequestedToCapacityRatio.Shape {
			out.shape = append(out.shape, ShapePoint{p.Utilization, p.Score * int32(framework.MaxScore) / maxShapeScore})
		}
	}
	return out
}

func withWeights(resources []ResourceSpec) []ResourceSpec {
	out := make([]ResourceSpec, len(resources))
	for i, r := range resources {
		if r.Weight == 0 {
			r.Weight = 1
		}
		out[i] = r
	}
	return out
}

// resource scores the use of one resource; have is more than 0.
func (s *strategy) resource(used, have int64) int64 {
	switch s.kind {
	case MostAllocated:
		return percent(min(used, have), have)
	case RequestedToCapacityFit:
		if used > have {
			return s.at(maxUtilization)
		}
		return s.at(percent(used, have))
	}
	return leastAllocated(used, have)
}

// at is the shape's score at a use in per cent.
func (s *strategy) at(use int64) int64 {
	for i, p := range s.shape {
		if use > int64(p.Utilization) {
			continue
		}
		if i == 0 {
			return int64(p.Score)
		}
		from := s.shape[i-1]
		return int64(from.Score) + int64(p.Score-from.Score)*(use-int64(from.Utilization))/int64(p.Utilization-from.Utilization)
	}
	return int64(s.shape[len(s.shape)-1].Score)
}

// counts reports whether a resource's score counts: of RequestedToCapacityRatio a score of 0 does not.
func (s *strategy) counts(score int64) bool { return s.kind != RequestedToCapacityFit || score > 0 }

// mean is the weighted mean of scores.
func (s *strategy) mean(sum, weights int64) int64 {
	if weights == 0 {
		return 0
	}
	if s.kind == RequestedToCapacityFit {
		return int64(math.Round(float64(sum) / float64(weights)))
	}
	return sum / weights
}

// score is the definition: of one node, with the pod on it.
func (s *strategy) score(pod *framework.PodInfo, node *framework.NodeInfo) int64 {
	var sum, weights int64
	for _, r := range s.resources {
		used, have := scoredUse(r.Name, pod, node)
		if have == 0 {
			continue
		}
		if one := s.resource(used, have); s.counts(one) {
			sum += one * r.Weight
			weights += r.Weight
		}
	}
	return s.mean(sum, weights)
}

// scoredUse is what would be in use of a resource, cpu and memory as they count for scoring, and what there is: 0 of an
// extended resource that the pod does not ask for.
func scoredUse(name string, pod *framework.PodInfo, node *framework.NodeInfo) (used, have int64) {
	switch name {
	case framework.ResourceCPU:
		return node.Scored.MilliCPU + pod.Scored.MilliCPU, node.Allocatable.MilliCPU
	case framework.ResourceMemory:
		return node.Scored.Memory + pod.Scored.Memory, node.Allocatable.Memory
	}
	return requestedUse(name, pod, node)
}

// requestedUse is the same by what was asked for.
func requestedUse(name string, pod *framework.PodInfo, node *framework.NodeInfo) (used, have int64) {
	want := pod.Request.Get(name)
	if want == 0 && extended(name) {
		return 0, 0
	}
	return node.Requested.Get(name) + want, node.Allocatable.Get(name)
}

func extended(name string) bool {
	switch name {
	case framework.ResourceCPU, framework.ResourceMemory, framework.ResourceEphemeralStorage:
		return false
	}
	return true
}

// pass is score for many nodes.
func (s *strategy) pass(pod *framework.PodInfo, nodes *framework.Columns, feasible []int32, scores []int64) {
	var room [4]use
	uses := s.uses(room[:0], pod, nodes)
	if s.kind == LeastAllocated && len(uses) == 2 && uses[0].weight == 1 && uses[1].weight == 1 {
		leastOfTwo(uses[0], uses[1], feasible, scores)
		return
	}
	for k, i := range feasible {
		var sum, weights int64
		for u := range uses {
			use := &uses[u]
			have := use.have[i]
			if have == 0 {
				continue
			}
			if one := s.resource(use.used[i]+use.want, have); s.counts(one) {
				sum += one * use.weight
				weights += use.weight
			}
		}
		scores[k] = s.mean(sum, weights)
	}
}

// leastOfTwo is the default strategy, without its branches.
func leastOfTwo(a, b use, feasible []int32, scores []int64) {
	for k, i := range feasible {
		haveA, haveB := a.have[i], b.have[i]
		if haveA == 0 || haveB == 0 {
			switch {
			case haveA != 0:
				scores[k] = leastAllocated(a.used[i]+a.want, haveA)
			case haveB != 0:
				scores[k] = leastAllocated(b.used[i]+b.want, haveB)
			default:
				scores[k] = 0
			}
			continue
		}
		scores[k] = (leastAllocated(a.used[i]+a.want, haveA) + leastAllocated(b.used[i]+b.want, haveB)) / 2
	}
}

// use is a resource in columns.
type use struct {
	used, have   []int64
	want, weight int64
}

func (s *strategy) uses(out []use, pod *framework.PodInfo, nodes *framework.Columns) []use {
	for _, r := range s.resources {
		switch r.Name {
		case framework.ResourceCPU:
			out = append(out, use{nodes.ScoredCPU, nodes.Allocatable[framework.CPU], pod.Scored.MilliCPU, r.Weight})
		case framework.ResourceMemory:
			out = append(out, use{nodes.ScoredMemory, nodes.Allocatable[framework.Memory], pod.Scored.Memory, r.Weight})
		default:
			if u, ok := requestedColumn(r.Name, pod, nodes); ok {
				u.weight = r.Weight
				out = append(out, u)
			}
		}
	}
	return out
}

// requestedColumn is requestedUse for all nodes; false where there is nothing of it to score.
func requestedColumn(name string, pod *framework.PodInfo, nodes *framework.Columns) (use, bool) {
	want := pod.Request.Get(name)
	id, ok := nodes.Resource(name)
	if !ok || (want == 0 && extended(name)) {
		return use{}, false
	}
	return use{nodes.Requested[id], nodes.Allocatable[id], want, 1}, true
}

func leastAllocated(want, have int64) int64 {
	if want > have {
		return 0
	}
	return percent(have-want, have)
}

// percent is part*100/have of a part that is no more than have.
func percent(part, have int64) int64 {
	// In floating point where a product of bytes would leave int64: above 80 PiB.
	if have > 1<<56 {
		return int64(float64(part) / float64(have) * float64(framework.MaxScore))
	}
	return part * framework.MaxScore / have
}
