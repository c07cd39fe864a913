package framework

// Reason is a rejection as one attempt knows it, by number; 0 is none.
type Reason int32

// Verdicts are what the filters said of the nodes in one attempt at one pod: a number per node, and a Status per
// different rejection. They are valid during the attempt.
type Verdicts struct {
	nodes    []*NodeInfo
	marks    []Reason
	statuses []*Status // by Reason; nil at 0
	given    []*Status // the same as plugins gave them
	plugin   string
	rejected int
}

// Reset prepares for another pod on these nodes and keeps the memory.
func (v *Verdicts) Reset(nodes []*NodeInfo) {
	v.nodes = nodes
	if cap(v.marks) < len(nodes) {
		v.marks = make([]Reason, len(nodes))
	}
	v.marks = v.marks[:len(nodes)]
	clear(v.marks)
	v.statuses, v.given = append(v.statuses[:0], nil), append(v.given[:0], nil)
	v.rejected = 0
}

// From says whose rejections follow; the scheduler calls it before each pass.
func (v *Verdicts) From(plugin string) { v.plugin = plugin }

// Reason returns the number of a rejection by the plugin whose pass it is. Call it once per pass and kind of rejection,
// not per node, and only for those that occur.
func (v *Verdicts) Reason(st *Status) Reason {
	for r := len(v.given) - 1; r > 0; r-- {
		if v.given[r] == st && v.statuses[r].Plugin() == v.plugin {
			return Reason(r)
		}
	}
	named := st.WithPlugin(v.plugin)
	for r := len(v.statuses) - 1; r > 0; r-- {
		if v.statuses[r].Equal(named) {
			return Reason(r)
		}
	}
	v.statuses, v.given = append(v.statuses, named), append(v.given, st)
	return Reason(len(v.statuses) - 1)
}

// Reject says that the node at a position is rejected. A node is rejected once.
func (v *Verdicts) Reject(position int32, r Reason) {
	v.marks[position] = r
	v.rejected++
}

// Accept takes back that the node at a position is rejected, if it is.
func (v *Verdicts) Accept(position int32) {
	if v.marks[position] != 0 {
		v.marks[position] = 0
		v.rejected--
	}
}

// CopyFrom makes v say what o does.
func (v *Verdicts) CopyFrom(o *Verdicts) {
	v.nodes, v.plugin, v.rejected = o.nodes, o.plugin, o.rejected
	v.marks = append(v.marks[:0], o.marks...)
	v.statuses, v.given = append(v.statuses[:0], o.statuses...), append(v.given[:0], o.given...)
}

// Rejected reports whether the node at a position is.
func (v *Verdicts) Rejected(position int32) bool { return v.marks[position] != 0 }

// LastOf returns the plugin's newest rejection, nil where it made none.
func (v *Verdicts) LastOf(plugin string) *Status {
	for i := len(v.statuses) - 1; i > 0; i-- {
		if v.statuses[i].Plugin() == plugin {
			return v.statuses[i]
		}
	}
	return nil
}

// Count is how many nodes are rejected.
func (v *Verdicts) Count() int { return v.rejected }

// Status returns why the node at a position was rejected, nil where it was not.
func (v *Verdicts) Status(position int32) *Status { return v.statuses[v.marks[position]] }

// Each calls fn for all rejected nodes in their order.
func (v *Verdicts) Each(fn func(node *NodeInfo, status *Status)) {
	for i, r := range v.marks {
		if r != 0 {
			fn(v.nodes[i], v.statuses[r])
		}
	}
}

// Histogram calls fn for each different rejection with the number of nodes that it is the one of, in the order in which
// they first came up.
func (v *Verdicts) Histogram(fn func(status *Status, nodes int)) {
	counts := make([]int, len(v.statuses))
	for _, r := range v.marks {
		counts[r]++
	}
	for r, n := range counts {
		if r > 0 && n > 0 {
			fn(v.statuses[r], n)
		}
	}
}

// Resolvable returns the positions, ascending, of the nodes whose rejections the removal of pods could turn.
func (v *Verdicts) Resolvable() []int32 {
	resolvable := make([]bool, len(v.statuses))
	for r, st := range v.statuses {
		resolvable[r] = st.Code() == Unschedulable
	}
	out := make([]int32, 0, v.rejected)
	for i, r := range v.marks {
		if resolvable[r] {
			out = append(out, int32(i))
		}
	}
	return out
}
