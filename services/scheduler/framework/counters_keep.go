package framework

import "slices"

// counters keeps the counters of a snapshot.
type counters struct {
	matching map[string]*Counter
	// byNamespace has those that look at one namespace only, others all the rest.
	byNamespace map[string][]*Counter
	others      []*Counter
	version     uint64 // of the set of them

	held        [termKinds]map[heldKey]*Held
	heldSet     uint64 // changes with the set of held terms
	heldVersion uint64 // changes with what is held where

	classes map[LabelClass]*class
	ticks   uint64
}

// class is what is known of all pods that selectors cannot tell apart.
type class struct {
	version uint64
	matched []*Counter
	heldSet [termKinds]uint64
	held    [termKinds][]*Held
}

const (
	// maxClasses bounds the memory for classes; they are made again when pods of theirs turn up.
	maxClasses = 1 << 16
	// maxDisuse is after how many updates of a snapshot a counter that nobody asked for is forgotten, and checkDisuse how
	// often that is looked at.
	maxDisuse   = 1 << 16
	checkDisuse = 1 << 12
)

// pod counts a pod that comes to the node at i, or leaves it.
func (c *counters) pod(s *Snapshot, i int32, pod *PodInfo, sign int32) {
	if len(c.matching) > 0 {
		terminating := pod.Terminating()
		for _, m := range c.class(s, pod).matched {
			if terminating && slices.ContainsFunc(m.selectors, func(p *PodSelector) bool { return p.noTerminating }) {
				continue
			}
			m.add(i, sign)
		}
	}
	a := pod.Affinity
	if a == nil {
		return
	}
	c.heldVersion++
	for _, t := range a.Required {
		c.hold(s, HeldRequired, t, 0, i, sign)
	}
	for _, t := range a.AntiRequired {
		c.hold(s, HeldAntiRequired, t, 0, i, sign)
	}
	for _, t := range a.Preferred {
		c.hold(s, HeldPreferred, t.PodTerm, t.Weight, i, sign)
	}
	for _, t := range a.AntiPreferred {
		c.hold(s, HeldAntiPreferred, t.PodTerm, t.Weight, i, sign)
	}
}

func (c *counters) hold(s *Snapshot, kind TermKind, term *PodTerm, weight, i, sign int32) {
	key := heldKey{term.key, weight}
	h := c.held[kind][key]
	if h == nil {
		h = &Held{PodTerm: term, Weight: weight, Counter: Counter{PerNode: make([]int32, len(s.all))}}
		if c.held[kind] == nil {
			c.held[kind] = map[heldKey]*Held{}
		}
		c.held[kind][key] = h
		c.heldSet++
	}
	h.add(i, sign)
	if h.Total == 0 {
		delete(c.held[kind], key)
		c.heldSet++
	}
}

// replace counts the difference between two lists of pods of the node at i. They mostly share their beginnings.
func (c *counters) replace(s *Snapshot, i int32, was, is []*PodInfo) {
	was, is = difference(was, is)
	for _, p := range is {
		c.pod(s, i, p, 1)
	}
	for _, p := range was {
		c.pod(s, i, p, -1)
	}
}

// class returns what is known of the pod's class.
func (c *counters) class(s *Snapshot, pod *PodInfo) *class {
	k := c.known(pod)
	if k.version == c.version && k.matched != nil {
		return k
	}
	k.version, k.matched = c.version, make([]*Counter, 0, 4)
	for _, list := range [][]*Counter{c.byNamespace[pod.Namespace()], c.others} {
		for _, m := range list {
			if m.selectsClass(s, pod) {
				k.matched = append(k.matched, m)
			}
		}
	}
	return k
}

func (c *counters) known(pod *PodInfo) *class {
	k := c.classes[pod.Class]
	if k == nil {
		k = &class{}
		if c.classes == nil {
			c.classes = make(map[LabelClass]*class)
		}
		c.classes[pod.Class] = k
	}
	return k
}

func (m *Counter) selectsClass(s *Snapshot, pod *PodInfo) bool {
	for _, p := range m.selectors {
		if !p.matchesClass(pod, s.NamespaceLabels) {
			return false
		}
	}
	return true
}

func (c *counters) heldFor(s *Snapshot, kind TermKind, pod *PodInfo) []*Held {
	k := c.known(pod)
	if k.heldSet[kind] == c.heldSet+1 {
		return k.held[kind]
	}
	k.heldSet[kind], k.held[kind] = c.heldSet+1, nil
	for _, h := range c.held[kind] {
		if h.matchesClass(pod, s.NamespaceLabels) {
			k.held[kind] = append(k.held[kind], h)
		}
	}
	return k.held[kind]
}

func (c *counters) find(s *Snapshot, selectors []*PodSelector) *Counter {
	key := selectors[0].key
	for _, p := range selectors[1:] {
		key += "&" + p.key
	}
	if m := c.matching[key]; m != nil {
		m.used = c.ticks
		return m
	}
	m := &Counter{PerNode: make([]int32, len(s.all)), selectors: slices.Clone(selectors), used: c.ticks}
	selected := map[LabelClass]bool{}
	for i, n := range s.columns.Nodes {
		for _, pod := range n.Pods {
			yes, ok := selected[pod.Class]
			if !ok {
				yes = m.selectsClass(s, pod)
				selected[pod.Class] = yes
			}
			if yes && !(pod.Terminating() && slices.ContainsFunc(selectors, func(p *PodSelector) bool { return p.noTerminating })) {
				m.PerNode[i]++
				m.Total++
			}
		}
	}
	if c.matching == nil {
		c.matching, c.byNamespace = map[string]*Counter{}, map[string][]*Counter{}
	}
	c.matching[key] = m
	c.list(m)
	c.version++
	return m
}

func (c *counters) list(m *Counter) {
	for _, p := range m.selectors {
		if p.namespaceSet == nil && len(p.namespaces) == 1 {
			c.byNamespace[p.namespaces[0]] = append(c.byNamespace[p.namespaces[0]], m)
			return
		}
	}
	c.others = append(c.others, m)
}

// relabel moves the pods of the node at i from one domain of a label to another.
func (c *counters) relabel(l *LabelColumn, i, was, is int32) {
	c.each(func(m *Counter) {
		for k := range m.sums {
			if d := &m.sums[k]; d.column == l {
				d.grow(int(max(was, is)) + 1)
				d.sums[was] -= m.PerNode[i]
				d.sums[is] += m.PerNode[i]
			}
		}
	})
}

func (c *counters) each(fn func(*Counter)) {
	for _, m := range c.matching {
		fn(m)
	}
	for _, terms := range c.held {
		for _, h := range terms {
			fn(&h.Counter)
		}
	}
}

// move follows nodes to new positions: was are the old ones, -1 for nodes that came.
func (c *counters) move(s *Snapshot, was []int32) {
	c.each(func(m *Counter) {
		old := m.PerNode
		m.PerNode, m.Total = make([]int32, len(was)), 0
		for i, w := range was {
			if w >= 0 {
				m.PerNode[i] = old[w]
				m.Total += int(old[w])
			}
		}
		for k := range m.sums {
			m.sums[k].fill(m.PerNode)
		}
	})
	for kind := range c.held {
		for key, h := range c.held[kind] {
			if h.Total == 0 { // all who held it were on nodes that are gone
				delete(c.held[kind], key)
			}
		}
	}
	c.heldSet++
	c.heldVersion++
	for i, w := range was {
		if w >= 0 {
			continue
		}
		for _, pod := range s.columns.Nodes[i].Pods {
			c.pod(s, int32(i), pod, 1)
		}
	}
}

// namespacesChanged forgets what depends on the labels of namespaces.
func (c *counters) namespacesChanged() {
	c.drop(func(m *Counter) bool {
		return slices.ContainsFunc(m.selectors, func(p *PodSelector) bool { return p.namespaceSet != nil && !p.everywhere })
	})
	c.heldSet++
	c.heldVersion++
}

// drop forgets counters.
func (c *counters) drop(which func(*Counter) bool) {
	dropped := false
	for key, m := range c.matching {
		if which(m) {
			delete(c.matching, key)
			dropped = true
		}
	}
	if !dropped {
		return
	}
	clear(c.byNamespace)
	c.others = nil
	for _, m := range c.matching {
		c.list(m)
	}
	c.version++
}

// tick lets updates go by.
func (c *counters) tick() {
	c.ticks++
	if c.ticks%checkDisuse != 0 {
		return
	}
	c.drop(func(m *Counter) bool { return c.ticks-m.used > maxDisuse })
	if len(c.classes) > maxClasses {
		clear(c.classes)
	}
}
