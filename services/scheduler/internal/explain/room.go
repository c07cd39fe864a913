package explain

import (
	"maps"
	"slices"
	"strings"

	"trireme.dev/client/quantity"
	"trireme.dev/services/scheduler/framework"
)

// room is what a node has and what is taken of it.
type room struct {
	node        string
	allocatable *framework.Resource
	requested   *framework.Resource
	pods        int
}

// shortage is what a pod lacks on the node that comes nearest to having room for it.
type shortage struct {
	node string
	// lacks are the resources of which too little is free, by name.
	lacks []lack
	// never says that the pod asks for more than any node has; lacks are then of the largest node.
	never bool
	// podsOnly: it is just the number of pods that is exhausted.
	podsOnly bool
}

// lack of one resource, in its own unit: thousandths for cpu.
type lack struct {
	resource          string
	need, free, total int64
}

func (l lack) missing() int64 { return l.need - l.free }

// shortageOf finds the node that lacks least; nil where there is none that lacks anything.
func shortageOf(request *framework.Resource, nodes []room) *shortage {
	var (
		best  *shortage
		least float64
	)
	for _, n := range nodes {
		s := &shortage{node: n.node}
		var cost float64
		for _, name := range resources(request) {
			l := lack{resource: name, need: request.Get(name), total: n.allocatable.Get(name)}
			l.free = l.total - n.requested.Get(name)
			if l.missing() <= 0 {
				continue
			}
			s.lacks = append(s.lacks, l)
			s.never = s.never || l.need > l.total
			cost += float64(l.missing()) / float64(l.need)
		}
		if len(s.lacks) == 0 {
			if int64(n.pods) < n.allocatable.AllowedPods {
				continue
			}
			s.podsOnly = true
		}
		if best == nil || best.never && !s.never || best.never == s.never && cost < least {
			best, least = s, cost
		}
	}
	return best
}

// asked is what is asked for of that which lacks: 8 nvidia.com/gpu; empty where it is only the number of pods.
func (s *shortage) asked() string {
	var out []string
	for _, l := range s.lacks {
		out = append(out, amount(l.resource, l.need))
	}
	return and(out)
}

func resources(r *framework.Resource) []string {
	var out []string
	for _, name := range []string{framework.ResourceCPU, framework.ResourceMemory, framework.ResourceEphemeralStorage} {
		if r.Get(name) > 0 {
			out = append(out, name)
		}
	}
	return append(out, slices.Sorted(maps.Keys(r.Scalar))...)
}

// amount is so much of a resource, for people: 2 nvidia.com/gpu, 500m cpu, 4Gi memory.
func amount(resource string, n int64) string { return figure(resource, n) + " " + resource }

func figure(resource string, n int64) string {
	switch resource {
	case framework.ResourceCPU:
		return quantity.NewMilli(n).Format()
	case framework.ResourceMemory, framework.ResourceEphemeralStorage:
		return quantity.NewBytes(n).Format()
	}
	if strings.HasPrefix(resource, "hugepages-") {
		return quantity.NewBytes(n).Format()
	}
	return quantity.New(n).Format()
}
