package interpodaffinity

import (
	"slices"

	"trireme.dev/services/scheduler/framework"
)

const filterKey = Name + "/filter"

var (
	notNear = framework.NewStatus(framework.UnschedulableAndUnresolvable, "node(s) didn't match pod affinity rules")
	tooNear = framework.NewStatus(framework.Unschedulable, "node(s) didn't match pod anti-affinity rules")
	kept    = framework.NewStatus(framework.Unschedulable, "node(s) didn't satisfy existing pods anti-affinity rules")
)

// filterState is how the pods that required terms speak of lie over domains.
type filterState struct {
	// near counts, for each required term, the pods that all of the required terms select.
	near []framework.Domains
	// pairs is how often such a pod is in a domain of one of the terms; where it is never, a pod that selects itself
	// is the first of its kind and may go anywhere with the labels.
	pairs int
	first bool
	// away counts, for each term against pods, those that it selects.
	away []framework.Domains
	// kept counts, by topology, the pods whose terms are against this one.
	kept []topology
}

// topology is the sum of several counts over the domains of one label.
type topology struct {
	key   string
	parts []framework.Domains
}

// Clone implements framework.StateData.
func (s *filterState) Clone() framework.StateData {
	c := *s
	c.near, c.away, c.kept = cloneAll(s.near), cloneAll(s.away), slices.Clone(s.kept)
	for i := range c.kept {
		c.kept[i].parts = cloneAll(c.kept[i].parts)
	}
	return &c
}

func cloneAll(list []framework.Domains) []framework.Domains {
	out := make([]framework.Domains, len(list))
	for i := range list {
		out[i] = list[i].Clone()
	}
	return out
}

// PreFilter implements framework.PreFilterPlugin.
func (p *Plugin) PreFilter(state *framework.CycleState, pod *framework.PodInfo, nodes *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	against := nodes.Held(framework.HeldAntiRequired, pod)
	if len(against) == 0 && (pod.Affinity == nil || len(pod.Affinity.Required)+len(pod.Affinity.AntiRequired) == 0) {
		return nil, framework.NewStatus(framework.Skip)
	}
	s := &filterState{}
	if a := pod.Affinity; a != nil {
		s.require(a.Required, pod, nodes)
		for _, t := range a.AntiRequired {
			s.away = append(s.away, nodes.Matching(t.PodSelector).By(nodes.Columns().Label(t.TopologyKey)))
		}
	}
	for _, h := range against {
		t := s.topology(h.TopologyKey)
		t.parts = append(t.parts, h.By(nodes.Columns().Label(h.TopologyKey)))
	}
	state.Write(filterKey, s)
	return nil, nil
}

func (s *filterState) require(terms []*framework.PodTerm, pod *framework.PodInfo, nodes *framework.Snapshot) {
	if len(terms) == 0 {
		return
	}
	all := make([]*framework.PodSelector, 0, len(terms))
	s.first = true
	for _, t := range terms {
		all = append(all, t.PodSelector)
		s.first = s.first && t.Matches(pod, nodes.NamespaceLabels)
	}
	c := nodes.Matching(all...)
	for _, t := range terms {
		d := c.By(nodes.Columns().Label(t.TopologyKey))
		s.near = append(s.near, d)
		s.pairs += c.Total - int(d.At(0))
	}
}

func (s *filterState) topology(key string) *topology {
	for i := range s.kept {
		if s.kept[i].key == key {
			return &s.kept[i]
		}
	}
	s.kept = append(s.kept, topology{key: key})
	return &s.kept[len(s.kept)-1]
}

// PreFilterExtensions implements framework.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() framework.PreFilterExtensions { return p }

// AddPod implements framework.PreFilterExtensions.
func (p *Plugin) AddPod(state *framework.CycleState, pod, added *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	p.move(state, pod, added, node.Index, 1)
	return nil
}

// RemovePod implements framework.PreFilterExtensions.
func (p *Plugin) RemovePod(state *framework.CycleState, pod, removed *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	p.move(state, pod, removed, node.Index, -1)
	return nil
}

func (p *Plugin) move(state *framework.CycleState, pod, other *framework.PodInfo, position, n int32) {
	s, _ := state.Read(filterKey).(*filterState)
	if s == nil {
		return
	}
	snapshot := p.handle.Snapshot()
	labels := snapshot.NamespaceLabels
	if a := pod.Affinity; a != nil {
		if len(s.near) > 0 && allMatch(a.Required, other, labels) {
			for i := range s.near {
				s.near[i].Add(position, n)
				if s.near[i].Column.Values[position] != 0 {
					s.pairs += int(n)
				}
			}
		}
		for i, t := range a.AntiRequired {
			if t.Matches(other, labels) {
				s.away[i].Add(position, n)
			}
		}
	}
	if other.Affinity == nil {
		return
	}
	for _, t := range other.Affinity.AntiRequired {
		if !t.Matches(pod, labels) {
			continue
		}
		k := s.topology(t.TopologyKey)
		if len(k.parts) == 0 {
			none := framework.Counter{PerNode: make([]int32, len(snapshot.Nodes()))}
			k.parts = append(k.parts, none.By(snapshot.Columns().Label(t.TopologyKey)))
		}
		k.parts[0].Add(position, n)
	}
}

func allMatch(terms []*framework.PodTerm, pod *framework.PodInfo, labels func(string) map[string]string) bool {
	for _, t := range terms {
		if !t.Matches(pod, labels) {
			return false
		}
	}
	return true
}

// Filter implements framework.FilterPlugin.
func (p *Plugin) Filter(state *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	s, _ := state.Read(filterKey).(*filterState)
	i := node.Index
	lonely := false
	for k := range s.near {
		domain := s.near[k].Column.Values[i]
		if domain == 0 {
			return notNear
		}
		lonely = lonely || s.near[k].At(domain) <= 0
	}
	if lonely && (s.pairs > 0 || !s.first) {
		return notNear
	}
	for k := range s.away {
		if domain := s.away[k].Column.Values[i]; domain != 0 && s.away[k].At(domain) > 0 {
			return tooNear
		}
	}
	for k := range s.kept {
		var sum int32
		for j := range s.kept[k].parts {
			d := &s.kept[k].parts[j]
			if domain := d.Column.Values[i]; domain != 0 {
				sum += d.At(domain)
			}
		}
		if sum > 0 {
			return kept
		}
	}
	return nil
}

// lookup is a count laid out for a pass: the value of a label by position, and the sums by value.
type lookup struct{ values, sums []int32 }

func lookups(list []framework.Domains) []lookup {
	out := make([]lookup, len(list))
	for i := range list {
		out[i] = lookup{list[i].Column.Values, list[i].Sums()}
	}
	return out
}

// FilterPass implements framework.FilterPassPlugin.
func (p *Plugin) FilterPass(state *framework.CycleState, _ *framework.PodInfo, _ *framework.Columns, open []int32, verdicts *framework.Verdicts) *framework.Status {
	s, _ := state.Read(filterKey).(*filterState)
	near, away := lookups(s.near), lookups(s.away)
	against := make([][]lookup, len(s.kept))
	for k := range s.kept {
		against[k] = lookups(s.kept[k].parts)
	}
	anywhere := s.pairs == 0 && s.first
	for _, i := range open {
		if why := judge(i, near, away, against, anywhere); why != nil {
			verdicts.Reject(i, verdicts.Reason(why))
		}
	}
	return nil
}

func judge(i int32, near, away []lookup, against [][]lookup, anywhere bool) *framework.Status {
	for k := range near {
		domain := near[k].values[i]
		if domain == 0 || near[k].sums[domain] <= 0 && !anywhere {
			return notNear
		}
	}
	for k := range away {
		if domain := away[k].values[i]; domain != 0 && away[k].sums[domain] > 0 {
			return tooNear
		}
	}
	for k := range against {
		var sum int32
		for j := range against[k] {
			if domain := against[k][j].values[i]; domain != 0 {
				sum += against[k][j].sums[domain]
			}
		}
		if sum > 0 {
			return kept
		}
	}
	return nil
}
