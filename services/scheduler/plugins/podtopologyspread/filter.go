package podtopologyspread

import (
	"slices"

	"trireme.dev/services/scheduler/framework"
)

const filterKey = Name + "/filter"

var (
	tooSkewed    = framework.NewStatus(framework.Unschedulable, "node(s) didn't match pod topology spread constraints")
	missingLabel = framework.NewStatus(framework.UnschedulableAndUnresolvable,
		"node(s) didn't match pod topology spread constraints (missing required label)")
)

// absent marks a domain that no counted node is in.
const absent = -1

// spread is how the pods of a hard constraint lie.
type spread struct {
	*constraint
	column  *framework.LabelColumn
	counted []bool  // by position; nil for all
	counts  []int32 // by domain, absent included
	least   int32   // of the domains; 0 where there are fewer than minDomains
}

// filterState are the hard constraints of a pod.
type filterState []spread

// Clone implements framework.StateData.
func (s filterState) Clone() framework.StateData {
	c := slices.Clone(s)
	for i := range c {
		c[i].counts = slices.Clone(c[i].counts)
	}
	return c
}

// PreFilter implements framework.PreFilterPlugin.
func (p *Plugin) PreFilter(state *framework.CycleState, pod *framework.PodInfo, nodes *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	all, byDefault, err := p.constraints(pod)
	if err != nil {
		return nil, framework.AsStatus(err)
	}
	state.Write(scoreKey, &softConstraints{byDefault: byDefault, list: all})
	var (
		s      filterState
		labels []*framework.LabelColumn
	)
	for i := range all {
		if all[i].hard {
			column := nodes.Columns().Label(all[i].key)
			s = append(s, spread{constraint: &all[i], column: column})
			labels = append(labels, column)
		}
	}
	if len(s) == 0 {
		return nil, framework.NewStatus(framework.Skip)
	}
	for i := range s {
		s[i].count(pod, nodes, labels)
	}
	state.Write(filterKey, s)
	return nil, nil
}

// count sums the pods of the counted nodes by domain.
func (s *spread) count(pod *framework.PodInfo, nodes *framework.Snapshot, labels []*framework.LabelColumn) {
	s.counted = counted(s.constraint, pod, nodes, labels)
	s.counts = make([]int32, s.column.Count())
	for d := range s.counts {
		s.counts[d] = absent
	}
	pods := nodes.Matching(s.selector).PerNode
	for i, domain := range s.column.Values {
		if s.counted != nil && !s.counted[i] {
			continue
		}
		if s.counts[domain] == absent {
			s.counts[domain] = 0
		}
		s.counts[domain] += pods[i]
	}
	s.settle()
}

// settle finds the emptiest domain.
func (s *spread) settle() {
	s.least = 0
	var domains int32
	for _, n := range s.counts[1:] {
		if n == absent {
			continue
		}
		if domains == 0 || n < s.least {
			s.least = n
		}
		domains++
	}
	if domains < s.minDomains {
		s.least = 0
	}
}

// allows reports whether one more pod in the domain keeps to the constraint.
func (s *spread) allows(domain int32) bool {
	return max(0, s.counts[domain])+s.self-s.least <= s.maxSkew
}

// PreFilterExtensions implements framework.PreFilterPlugin.
func (p *Plugin) PreFilterExtensions() framework.PreFilterExtensions { return p }

// AddPod implements framework.PreFilterExtensions.
func (p *Plugin) AddPod(state *framework.CycleState, _, added *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	move(state, added, node, 1)
	return nil
}

// RemovePod implements framework.PreFilterExtensions.
func (p *Plugin) RemovePod(state *framework.CycleState, _, removed *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	move(state, removed, node, -1)
	return nil
}

func move(state *framework.CycleState, other *framework.PodInfo, node *framework.NodeInfo, n int32) {
	s, _ := state.Read(filterKey).(filterState)
	for i := range s {
		c := &s[i]
		if c.counted != nil && !c.counted[node.Index] || !c.selector.Matches(other, noLabels) {
			continue
		}
		c.counts[c.column.Values[node.Index]] += n
		c.settle()
	}
}

// Filter implements framework.FilterPlugin.
func (p *Plugin) Filter(state *framework.CycleState, _ *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	s, _ := state.Read(filterKey).(filterState)
	for i := range s {
		domain := s[i].column.Values[node.Index]
		if domain == 0 {
			return missingLabel
		}
		if !s[i].allows(domain) {
			return tooSkewed
		}
	}
	return nil
}

// FilterPass implements framework.FilterPassPlugin.
func (p *Plugin) FilterPass(state *framework.CycleState, _ *framework.PodInfo, _ *framework.Columns, open []int32, verdicts *framework.Verdicts) *framework.Status {
	s, _ := state.Read(filterKey).(filterState)
	// What a domain allows is asked once per domain, not once per node.
	verdict := make([][]bool, len(s))
	for k := range s {
		verdict[k] = make([]bool, len(s[k].counts))
		for d := range verdict[k] {
			verdict[k][d] = s[k].allows(int32(d))
		}
	}
	for _, i := range open {
		for k := range s {
			domain := s[k].column.Values[i]
			if domain == 0 {
				verdicts.Reject(i, verdicts.Reason(missingLabel))
				break
			}
			if !verdict[k][domain] {
				verdicts.Reject(i, verdicts.Reason(tooSkewed))
				break
			}
		}
	}
	return nil
}
