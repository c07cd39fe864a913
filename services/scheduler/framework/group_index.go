package framework

import (
	"cmp"
	"slices"
)

// groupIndex knows on which nodes the pods of each group are.
type groupIndex map[GroupKey]map[*NodeInfo]int

// add counts a pod that comes to the node, or leaves it.
func (g *groupIndex) add(n *NodeInfo, pod *PodInfo, sign int) {
	key, ok := pod.Group()
	if !ok {
		return
	}
	if *g == nil {
		*g = make(groupIndex)
	}
	on := (*g)[key]
	if on == nil {
		on = make(map[*NodeInfo]int)
		(*g)[key] = on
	}
	if on[n] += sign; on[n] == 0 {
		delete(on, n)
		if len(on) == 0 {
			delete(*g, key)
		}
	}
}

// replace counts the difference between two lists of pods of the node.
func (g *groupIndex) replace(n *NodeInfo, was, is []*PodInfo) {
	was, is = difference(was, is)
	for _, p := range is {
		g.add(n, p, 1)
	}
	for _, p := range was {
		g.add(n, p, -1)
	}
}

// difference leaves of two lists of pods what is between the beginning and the end that they share.
func difference(was, is []*PodInfo) (rest, rest2 []*PodInfo) {
	for len(was) > 0 && len(is) > 0 && was[0] == is[0] {
		was, is = was[1:], is[1:]
	}
	for len(was) > 0 && len(is) > 0 && was[len(was)-1] == is[len(is)-1] {
		was, is = was[:len(was)-1], is[:len(is)-1]
	}
	return was, is
}

// Member is a pod on a node.
type Member struct {
	Pod  *PodInfo
	Node *NodeInfo
}

// Members are the pods of a group that are on nodes, those assumed in thought included, in the order of the nodes.
func (s *Snapshot) Members(key GroupKey) []Member {
	on := s.groups[key]
	nodes := make([]*NodeInfo, 0, len(on))
	pods := 0
	for n, count := range on {
		nodes = append(nodes, n)
		pods += count
	}
	slices.SortFunc(nodes, func(a, b *NodeInfo) int { return cmp.Compare(a.Index, b.Index) })
	out := make([]Member, 0, pods)
	for _, n := range nodes {
		for _, p := range n.Pods {
			if theirs, ok := p.Group(); ok && theirs == key {
				out = append(out, Member{p, n})
			}
		}
	}
	return out
}
