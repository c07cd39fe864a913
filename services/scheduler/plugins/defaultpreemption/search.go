package defaultpreemption

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
	"trireme.dev/services/scheduler/framework"
)

// candidate is a node on which the pod fits once the victims are gone.
type candidate struct {
	node    *framework.NodeInfo
	victims []framework.Member // most important first
	price   price
}

// search looks for the best candidate in one attempt at one pod.
type search struct {
	plugin   *Plugin
	state    *framework.CycleState
	pod      *framework.PodInfo
	snapshot *framework.Snapshot
	budgets  []*policyv1.PodDisruptionBudget
	rules    *rules
	open     []int32 // positions of the nodes that taking pods away could help, ascending
}

// run judges open nodes until there are enough candidates, and returns the best; nil where there is none. What an earlier
// attempt at an equal pod found out about a node that has not changed since counts without another look.
func (s *search) run() (*candidate, error) {
	if len(s.open) == 0 {
		return nil, nil
	}
	known := &s.plugin.found
	known.recall(s)
	enough := s.plugin.args.enough(len(s.open))
	var (
		best         *candidate
		count, spare int
	)
	take := func(c *candidate) {
		count++
		if c.price.violations == 0 {
			spare++
		}
		if best == nil || better(c, best) {
			best = c
		}
	}
	unknown := s.plugin.unknown[:0]
	for _, i := range s.open {
		switch v := known.verdicts[i]; {
		case v.candidate != nil:
			take(v.candidate)
		case v.reason == "":
			unknown = append(unknown, i)
		}
	}
	s.plugin.unknown = unknown
	for _, i := range unknown {
		if count >= enough && spare > 0 {
			break
		}
		v, err := s.judge(s.snapshot.Nodes()[i])
		if err != nil {
			return nil, err
		}
		known.keep(i, v)
		if v.candidate != nil {
			take(v.candidate)
		}
	}
	return best, nil
}

// better reports whether a is to be preferred to b: by price, and the name of the node in the end.
func better(a, b *candidate) bool {
	return cmp.Or(a.price.compare(&b.price), strings.Compare(a.node.Name(), b.node.Name())) < 0
}

// verdict is what came of a node: a candidate, or why it is none.
type verdict struct {
	candidate *candidate
	reason    string
	// elsewhere says that it holds for this attempt only: pods of groups are on the node, and the others of theirs count too.
	elsewhere bool
}

// judge takes all units of lower priority off a copy of the node and, if the pod then fits, puts back as many as can stay:
// first those whose going would break a rule, the important ones before others.
func (s *search) judge(node *framework.NodeInfo) (verdict, error) {
	lower, grouped := s.unitsOn(node)
	if len(lower) == 0 {
		return verdict{reason: noVictims, elsewhere: grouped}, nil
	}
	state, there := s.state.Clone(), node.Clone()
	for _, u := range lower {
		if err := s.remove(state, u, there); err != nil {
			return verdict{}, err
		}
	}
	if st := s.plugin.handle.RunFilters(state, s.pod, there); !st.IsSuccess() {
		if st.Code() == framework.Error {
			return verdict{}, st.Err()
		}
		return verdict{reason: st.Message(), elsewhere: grouped}, nil
	}
	slices.SortFunc(lower, (*unit).compare)
	s.rules.protect(lower)
	var victims []*unit
	for _, list := range [][]*unit{protectedOf(lower, true), protectedOf(lower, false)} {
		for _, u := range list {
			stays, err := s.reprieve(state, u, there)
			if err != nil {
				return verdict{}, err
			}
			if !stays {
				victims = append(victims, u)
			}
		}
	}
	if len(victims) == 0 {
		// The pods that are nominated here are in the way, not those that are here.
		return verdict{reason: noVictims, elsewhere: grouped}, nil
	}
	slices.SortFunc(victims, (*unit).compare)
	c := &candidate{node: node, price: priceOf(victims)}
	for _, u := range victims {
		c.price.violations += u.breaks
		c.victims = append(c.victims, u.pods...)
	}
	return verdict{candidate: c, elsewhere: grouped}, nil
}

// unitsOn are the units of lower priority with pods on the node. grouped says that pods of groups are there.
func (s *search) unitsOn(node *framework.NodeInfo) (lower []*unit, grouped bool) {
	var wholes map[framework.GroupKey]bool
	for _, p := range node.Pods {
		key, ok := p.Group()
		grouped = grouped || ok
		switch {
		case ok && s.rules.groups.whole(key):
			if wholes[key] {
				continue
			}
			if wholes == nil {
				wholes = map[framework.GroupKey]bool{}
			}
			wholes[key] = true
			if u := wholeGroup(key, s.rules.groups.get(key), s.snapshot); u.priority < s.pod.Priority() && !s.own(key) {
				lower = append(lower, u)
			}
		case p.Priority() < s.pod.Priority():
			lower = append(lower, lone(p, node))
		}
	}
	return lower, grouped
}

// own reports whether the pod is of the group.
func (s *search) own(key framework.GroupKey) bool {
	mine, ok := s.pod.Group()
	return ok && mine == key
}

func (s *search) remove(state *framework.CycleState, u *unit, node *framework.NodeInfo) error {
	for _, m := range u.pods {
		if m.Node.Index != node.Index {
			continue
		}
		if err := node.RemovePod(m.Pod.UID()); err != nil {
			return err
		}
		if st := s.plugin.handle.RunRemovePod(state, s.pod, m.Pod, node); !st.IsSuccess() {
			return st.Err()
		}
	}
	return nil
}

// reprieve puts a unit back if the pod fits all the same.
func (s *search) reprieve(state *framework.CycleState, u *unit, node *framework.NodeInfo) (bool, error) {
	for _, m := range u.pods {
		if m.Node.Index != node.Index {
			continue
		}
		node.AddPod(m.Pod)
		if st := s.plugin.handle.RunAddPod(state, s.pod, m.Pod, node); !st.IsSuccess() {
			return false, st.Err()
		}
	}
	st := s.plugin.handle.RunFilters(state, s.pod, node)
	switch {
	case st.IsSuccess():
		return true, nil
	case st.Code() == framework.Error:
		return false, st.Err()
	}
	return false, s.remove(state, u, node)
}

// startOf is when the pod began, in nanoseconds; one that has not begun is the newest of all.
func startOf(p *framework.PodInfo) int64 {
	t := p.Pod.GetStatus().GetStartTime()
	if t == nil {
		return 1<<63 - 1
	}
	return t.AsTime().UnixNano()
}

// message counts why nodes are no candidates, where none is, as people know it from `0/N nodes are available`. rejected is the
// number of all nodes.
func (s *search) message(rejected int) string {
	reasons := map[string]int{}
	if n := rejected - len(s.open); n > 0 {
		reasons[notHelpful] = n
	}
	for _, i := range s.open {
		reasons[s.plugin.found.verdicts[i].reason]++
	}
	var parts []string
	for why, n := range reasons {
		parts = append(parts, fmt.Sprintf("%d %s", n, why))
	}
	slices.Sort(parts)
	return fmt.Sprintf("preemption: 0/%d nodes are available: %s.", rejected, strings.Join(parts, ", "))
}
