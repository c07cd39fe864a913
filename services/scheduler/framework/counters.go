package framework

import "slices"

// Counter counts, node by node, the pods of a snapshot that a selector selects, or those that hold a term. It is kept up
// to date while pods come and go, those included that a cycle assumes, so that to ask is to look up. It is valid in the
// cycle in which it was asked for.
type Counter struct {
	// PerNode by position. Not to be changed.
	PerNode []int32
	// Total of them.
	Total int

	selectors []*PodSelector
	sums      []domainSums
	used      uint64
}

type domainSums struct {
	column *LabelColumn
	sums   []int32 // by number of the label's value
}

// Domains are a counter's sums by the values of a label. A plugin keeps them in its cycle state: Add accounts for pods
// that are moved in thought, without a change to the counter.
type Domains struct {
	// Column of the label.
	Column *LabelColumn
	base   []int32
	delta  map[int32]int32
}

// By returns the counter's sums by the value of a label of nodes. The sum at 0 is of the nodes without it.
func (c *Counter) By(label *LabelColumn) Domains {
	return Domains{Column: label, base: c.domains(label)}
}

// At returns the sum of the domain with that number.
func (d *Domains) At(domain int32) int32 { return d.base[domain] + d.delta[domain] }

// Of returns the sum of the domain of the node at a position.
func (d *Domains) Of(position int32) int32 { return d.At(d.Column.Values[position]) }

// Add accounts for n more pods on the node at a position.
func (d *Domains) Add(position, n int32) {
	if d.delta == nil {
		d.delta = make(map[int32]int32)
	}
	d.delta[d.Column.Values[position]] += n
}

// Sums by number of the value, for passes. Not to be changed.
func (d *Domains) Sums() []int32 {
	if len(d.delta) == 0 {
		return d.base
	}
	out := slices.Clone(d.base)
	for domain, n := range d.delta {
		out[domain] += n
	}
	return out
}

// Clone returns a copy that Add changes alone.
func (d *Domains) Clone() Domains {
	c := Domains{Column: d.Column, base: d.base}
	if len(d.delta) > 0 {
		c.delta = make(map[int32]int32, len(d.delta))
		for k, v := range d.delta {
			c.delta[k] = v
		}
	}
	return c
}

func (c *Counter) domains(label *LabelColumn) []int32 {
	for i := range c.sums {
		if d := &c.sums[i]; d.column == label {
			d.grow(label.Count())
			return d.sums
		}
	}
	d := domainSums{column: label}
	d.fill(c.PerNode)
	c.sums = append(c.sums, d)
	return d.sums
}

func (d *domainSums) fill(perNode []int32) {
	d.sums = make([]int32, d.column.Count())
	for i, n := range perNode {
		d.sums[d.column.Values[i]] += n
	}
}

func (d *domainSums) grow(n int) {
	if len(d.sums) < n {
		d.sums = append(d.sums, make([]int32, n-len(d.sums))...)
	}
}

func (c *Counter) add(i, n int32) {
	c.PerNode[i] += n
	c.Total += int(n)
	for k := range c.sums {
		d := &c.sums[k]
		domain := d.column.Values[i]
		d.grow(int(domain) + 1)
		d.sums[domain] += n
	}
}

// TermKind is what part of a pod's affinity a term is.
type TermKind int

// The kinds.
const (
	HeldRequired TermKind = iota
	HeldAntiRequired
	HeldPreferred
	HeldAntiPreferred
	termKinds
)

// Held is a term of affinity that pods on nodes hold, with how many of them are on each node.
type Held struct {
	*PodTerm
	// Weight of a wish; 0 of what is required.
	Weight int32
	Counter
}

type heldKey struct {
	term   string
	weight int32
}

// Matching returns the counter of the pods that all of the selectors select. It is made when it is first asked for, and
// forgotten after long disuse.
func (s *Snapshot) Matching(selectors ...*PodSelector) *Counter { return s.counters.find(s, selectors) }

// Held returns the terms of one kind that pods on nodes hold and that select the pod, in no order: those of its peers
// that want it near or far. Not to be changed.
func (s *Snapshot) Held(kind TermKind, pod *PodInfo) []*Held {
	if len(s.counters.held[kind]) == 0 {
		return nil
	}
	return s.counters.heldFor(s, kind, pod)
}

// HeldVersion changes whenever a pod with affinity, of whatever kind, comes to a node or leaves it.
func (s *Snapshot) HeldVersion() uint64 { return s.counters.heldVersion }
