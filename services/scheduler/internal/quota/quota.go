// Package quota holds queues of pods to their shares of the cluster: it says whether pods of a queue may have more, and which
// of several queues is to go first. It is pure: a tree of shares, and figures that the caller keeps.
//
// A queue may use what it is guaranteed unless that is lent out. Beyond it the queue borrows: anything but what others are
// guaranteed and do not lend. No queue, with all below it, uses more than its limit.
package quota

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Amounts of resources by name; of cpu in thousandths.
type Amounts = map[string]int64

// Share of one queue.
type Share struct {
	Name string
	// Parent whose share it is a part of; empty for the cluster.
	Parent string
	// Weight among its siblings; 1 where 0.
	Weight int64
	// Guaranteed, Limit and Lending are as a Queue's spec has them: what Limit does not name has none, what Lending does not
	// name is lent as a whole.
	Guaranteed, Limit, Lending Amounts
	Paused                     bool
}

// Cluster is what there is and what is used of it.
type Cluster struct {
	Capacity Amounts
	// Used by pods of each queue itself, without the queues below it; empty for pods of no queue.
	Used map[string]Amounts
}

// Tree of shares. It does not change. Make it with New.
type Tree struct {
	nodes map[string]*node
	top   []*node // by name
	// governed are the resources that any share is about.
	governed map[string]struct{}
}

type node struct {
	Share
	parent   *node
	children []*node // by name
	// broken is why it has no place in the tree.
	broken string
}

// New returns the tree of these shares, whose names differ. One whose parent is missing, or that is its own ancestor, and all
// below it take no part.
func New(shares []Share) *Tree {
	t := &Tree{nodes: make(map[string]*node, len(shares)), governed: make(map[string]struct{})}
	for _, s := range shares {
		if s.Weight == 0 {
			s.Weight = 1
		}
		t.nodes[s.Name] = &node{Share: s}
		for _, a := range []Amounts{s.Guaranteed, s.Limit} {
			for r := range a {
				t.governed[r] = struct{}{}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		n := t.nodes[name]
		n.broken = t.check(n)
		switch {
		case n.broken != "":
		case n.Parent == "":
			t.top = append(t.top, n)
		default:
			n.parent = t.nodes[n.Parent]
			n.parent.children = append(n.parent.children, n)
		}
	}
	return t
}

// check follows the parents up.
func (t *Tree) check(n *node) string {
	seen := map[string]bool{}
	for at := n; at.Parent != ""; {
		if seen[at.Name] {
			return fmt.Sprintf("queue %s is its own ancestor", at.Name)
		}
		seen[at.Name] = true
		up := t.nodes[at.Parent]
		if up == nil {
			return fmt.Sprintf("parent %s of queue %s does not exist", at.Parent, at.Name)
		}
		at = up
	}
	return ""
}

// Broken says why a queue takes no part; empty where it does, or is not known.
func (t *Tree) Broken(name string) string {
	if n := t.nodes[name]; n != nil {
		return n.broken
	}
	return ""
}

// Refusal is why pods of a queue may not have more.
type Refusal struct {
	// Message for people.
	Message string
	// Queue whose share stands against it: that of the pods, or one above it. Resource is empty where it is not for one.
	Queue, Resource string
}

// Admit says whether pods of the queue may use so much more; nil where they may.
func (t *Tree) Admit(queue string, ask Amounts, c Cluster) *Refusal {
	n := t.nodes[queue]
	switch {
	case n == nil:
		return &Refusal{Message: fmt.Sprintf("waiting for queue %s to appear", queue), Queue: queue}
	case n.broken != "":
		return &Refusal{Message: n.broken, Queue: queue}
	}
	for at := n; at != nil; at = at.parent {
		if at.Paused {
			return &Refusal{Message: fmt.Sprintf("queue %s is paused", at.Name), Queue: at.Name}
		}
	}
	for _, r := range slices.Sorted(maps.Keys(ask)) {
		if _, ok := t.governed[r]; !ok || ask[r] == 0 {
			continue
		}
		for at := n; at != nil; at = at.parent {
			limit, ok := at.Limit[r]
			if used := at.used(r, c); ok && used+ask[r] > limit {
				return &Refusal{Queue: at.Name, Resource: r, Message: fmt.Sprintf(
					"queue %s may use %s of %s, %s of it are used and %s more asked for", at.Name,
					Format(r, limit), r, Format(r, used), Format(r, ask[r]))}
			}
		}
		if f := t.borrow(n, r, ask[r], c); f != nil {
			return f
		}
	}
	return nil
}

// borrow checks that what others keep is left to them. Where the queue, and each above it, has not all that it is guaranteed,
// it is refused only where someone borrows.
func (t *Tree) borrow(n *node, r string, ask int64, c Cluster) *Refusal {
	var keepers []string
	var kept int64
	for at := n; at != nil; at = at.parent {
		for _, s := range t.siblings(at) {
			if unused := s.kept(r) - s.used(r, c); s != at && unused > 0 {
				kept += unused
				keepers = append(keepers, s.Name)
			}
		}
	}
	free := c.Capacity[r] - total(r, c)
	if kept == 0 || ask+kept <= free {
		return nil // where nothing is kept back, it is for the nodes to say whether there is room
	}
	borrowers := t.borrowers(r, c)
	over := n
	if len(borrowers) == 0 {
		for over != nil && over.used(r, c)+ask <= over.guaranteed(r) {
			over = over.parent
		}
		if over == nil {
			return nil
		}
	}
	message := fmt.Sprintf("queue %s is guaranteed %s of %s and uses %s, %s more are asked for; %s are free, %s are kept for %s",
		over.Name, Format(r, over.guaranteed(r)), r, Format(r, over.used(r, c)), Format(r, ask), Format(r, max(free, 0)), Format(r, kept), strings.Join(keepers, ", "))
	if len(borrowers) > 0 {
		message += ", borrowed by " + strings.Join(borrowers, ", ")
	}
	return &Refusal{Queue: over.Name, Resource: r, Message: message}
}

// borrowers are the queues that use more than they are guaranteed, by name.
func (t *Tree) borrowers(r string, c Cluster) []string {
	var out []string
	for name, n := range t.nodes {
		if n.broken == "" && c.Used[name][r] > 0 && n.used(r, c) > n.Guaranteed[r] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func (t *Tree) siblings(n *node) []*node {
	if n.parent == nil {
		return t.top
	}
	return n.parent.children
}

// used by the queue and all below it.
func (n *node) used(r string, c Cluster) int64 {
	sum := c.Used[n.Name][r]
	for _, child := range n.children {
		sum += child.used(r, c)
	}
	return sum
}

// guaranteed to the queue, or to those below it together where that is more.
func (n *node) guaranteed(r string) int64 {
	var below int64
	for _, child := range n.children {
		below += child.guaranteed(r)
	}
	return max(n.Guaranteed[r], below)
}

// kept is what is guaranteed to the queue, or to those below it, and not lent.
func (n *node) kept(r string) int64 {
	var own, below int64
	if lent, ok := n.Lending[r]; ok {
		own = max(n.Guaranteed[r]-lent, 0)
	}
	for _, child := range n.children {
		below += child.kept(r)
	}
	return max(own, below)
}

func total(r string, c Cluster) int64 {
	var sum int64
	for _, used := range c.Used {
		sum += used[r]
	}
	return sum
}

// Used by a queue and all below it.
func (t *Tree) Used(name string, c Cluster) Amounts {
	n := t.nodes[name]
	if n == nil {
		return nil
	}
	out := Amounts{}
	n.add(out, c)
	return out
}

func (n *node) add(out Amounts, c Cluster) {
	for r, v := range c.Used[n.Name] {
		if out[r] += v; out[r] == 0 {
			delete(out, r)
		}
	}
	for _, child := range n.children {
		child.add(out, c)
	}
}

// Borrowed is what a queue and all below it use beyond what it is guaranteed, of resources that are guaranteed to it or to a
// sibling.
func (t *Tree) Borrowed(name string, c Cluster) Amounts {
	n := t.nodes[name]
	if n == nil || n.broken != "" {
		return nil
	}
	out := Amounts{}
	for r, used := range t.Used(name, c) {
		promised := slices.ContainsFunc(t.siblings(n), func(s *node) bool { return s.Guaranteed[r] > 0 })
		if over := used - n.Guaranteed[r]; promised && over > 0 {
			out[r] = over
		}
	}
	return out
}

// First returns which of these queues, at least one, is to go next: from the top down, one that has not all that it is
// guaranteed goes before one that has, and then the one with the least for its weight of the resource that it has most of.
func (t *Tree) First(queues []string, c Cluster) string {
	if len(queues) == 1 {
		return queues[0]
	}
	here := make(map[*node]bool)
	own := make(map[string]bool, len(queues))
	var odd []string
	for _, name := range queues {
		n := t.nodes[name]
		if n == nil || n.broken != "" {
			odd = append(odd, name) // it is refused as soon as it is tried
			continue
		}
		own[name] = true
		for at := n; at != nil; at = at.parent {
			here[at] = true
		}
	}
	if len(odd) > 0 {
		return slices.Min(odd)
	}
	level := t.top
	for {
		var best *node
		for _, n := range level {
			if here[n] && (best == nil || n.before(best, c)) {
				best = n
			}
		}
		if own[best.Name] {
			return best.Name
		}
		level = best.children
	}
}

func (n *node) before(o *node, c Cluster) bool {
	if a, b := n.short(c), o.short(c); a != b {
		return a
	}
	return cmp.Or(cmp.Compare(n.share(c), o.share(c)), strings.Compare(n.Name, o.Name)) < 0
}

// short reports whether the queue has not all that it is guaranteed.
func (n *node) short(c Cluster) bool {
	for r, g := range n.Guaranteed {
		if n.used(r, c) >= g {
			return false
		}
	}
	return len(n.Guaranteed) > 0
}

// share is the largest share of a resource that the queue has, for its weight.
func (n *node) share(c Cluster) float64 {
	var most float64
	for r, have := range c.Capacity {
		if have > 0 {
			most = max(most, float64(n.used(r, c))/float64(have))
		}
	}
	return most / float64(n.Weight)
}
