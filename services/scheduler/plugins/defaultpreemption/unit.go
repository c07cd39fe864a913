package defaultpreemption

import (
	"cmp"
	"math"
	"slices"
	"strings"

	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
)

// unit is what gives way as a whole or stays as a whole: a pod, or all pods of a group that may only be disrupted together.
type unit struct {
	pods     []framework.Member
	priority int32
	whole    bool   // a group
	name     string // of the pod or the group
	start    int64  // when the first of its pods began
	// breaks is how many of its pods break a disruption budget or the quorum of a gang by going, as far as can be told
	// beforehand.
	breaks int
	// seen is the number of the last search that came across it, rank its place in the order in which units go.
	seen, rank int
	away       bool // in thought
}

// units are all that may give way to a pod or group of some priority.
type units struct {
	all []*unit
	at  [][]*unit // by position of the nodes
}

// unitsBelow finds the units of lower priority, the least important first. None of them is of the group called self.
func unitsBelow(priority int32, self framework.GroupKey, nodes *framework.Snapshot, groups groups) *units {
	out := &units{at: make([][]*unit, len(nodes.Nodes()))}
	wholes := map[framework.GroupKey]*unit{} // nil for those that stay
	for i, n := range nodes.Nodes() {
		for _, p := range n.Pods {
			key, grouped := p.Group()
			if grouped && key == self {
				continue
			}
			var u *unit
			switch {
			case grouped && groups.whole(key):
				known, met := wholes[key]
				if !met {
					if known = wholeGroup(key, groups.get(key), nodes); known.priority >= priority {
						known = nil
					} else {
						out.all = append(out.all, known)
					}
					wholes[key] = known
				}
				u = known
			case p.Priority() < priority:
				u = lone(p, n)
				out.all = append(out.all, u)
			}
			if u != nil && (len(out.at[i]) == 0 || out.at[i][len(out.at[i])-1] != u) {
				out.at[i] = append(out.at[i], u)
			}
		}
	}
	slices.SortFunc(out.all, func(a, b *unit) int { return b.compare(a) })
	for rank, u := range out.all {
		u.rank = rank
	}
	return out
}

// lone is the unit of a pod by itself.
func lone(p *framework.PodInfo, node *framework.NodeInfo) *unit {
	return &unit{pods: []framework.Member{{Pod: p, Node: node}}, priority: p.Priority(), name: p.Name(), start: startOf(p)}
}

// wholeGroup is the unit of a group. Its priority is what its object says, or else that of its highest pod.
func wholeGroup(key framework.GroupKey, object *schedulingv1.PodGroup, nodes *framework.Snapshot) *unit {
	u := &unit{pods: nodes.Members(key), priority: math.MinInt32, whole: true, name: key.String(), start: math.MaxInt64}
	for _, m := range u.pods {
		u.priority = max(u.priority, m.Pod.Priority())
		u.start = min(u.start, startOf(m.Pod))
	}
	if spec := object.GetSpec(); spec.Priority != nil {
		u.priority = spec.GetPriority()
	}
	return u
}

// compare orders units, the more important first: by priority; groups before pods; the larger group; what runs for longer.
func (u *unit) compare(o *unit) int {
	size := cmp.Compare(len(o.pods), len(u.pods))
	switch {
	case u.whole && !o.whole:
		size = -1
	case o.whole && !u.whole:
		size = 1
	}
	return cmp.Or(cmp.Compare(o.priority, u.priority), size, cmp.Compare(u.start, o.start), strings.Compare(u.name, o.name))
}

// within collects the units with pods on the nodes at the positions, the first to go first.
func (us *units) within(positions []int32, search int) []*unit {
	var out []*unit
	for _, i := range positions {
		for _, u := range us.at[i] {
			if u.seen != search {
				u.seen = search
				out = append(out, u)
			}
		}
	}
	slices.SortFunc(out, func(a, b *unit) int { return cmp.Compare(a.rank, b.rank) })
	return out
}

// price is what victims cost, in the order in which it counts: A.7.6 of the specification, with each pod of a group that goes
// as a whole at the group's priority. The lower the better.
type price struct {
	violations int   // pods whose going breaks a budget or a quorum
	highest    int32 // priority
	sum        int64 // of the priorities of all pods, shifted to be positive
	pods       int
	start      int64 // when the first of those with the highest priority began; the later the better
}

func (p *price) compare(o *price) int {
	return cmp.Or(
		cmp.Compare(p.violations, o.violations),
		cmp.Compare(p.highest, o.highest),
		cmp.Compare(p.sum, o.sum),
		cmp.Compare(p.pods, o.pods),
		cmp.Compare(o.start, p.start),
	)
}

// priceOf adds up victims, all but the violations.
func priceOf(victims []*unit) price {
	p := price{highest: math.MinInt32, start: math.MaxInt64}
	for _, u := range victims {
		p.sum += int64(len(u.pods)) * (int64(u.priority) + 1<<31)
		p.pods += len(u.pods)
		switch {
		case u.priority > p.highest:
			p.highest, p.start = u.priority, u.start
		case u.priority == p.highest:
			p.start = min(p.start, u.start)
		}
	}
	return p
}
