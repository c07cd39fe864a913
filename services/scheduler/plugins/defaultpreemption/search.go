package defaultpreemption

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"trireme.dev/client/selector"
	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
	"trireme.dev/services/scheduler/framework"
)

// candidate is a node on which the pod fits once the victims are gone.
type candidate struct {
	node    *framework.NodeInfo
	victims []*framework.PodInfo // most important first
	// What it costs, in the order in which candidates are compared.
	violations int   // of disruption budgets
	highest    int32 // priority of the victims
	sum        int64 // of the victims' priorities, shifted to be positive
	start      int64 // when the last of those with the highest priority began that began first on its node
}

// search looks for the best candidate in one attempt at one pod.
type search struct {
	plugin   *Plugin
	state    *framework.CycleState
	pod      *framework.PodInfo
	snapshot *framework.Snapshot
	budgets  []*policyv1.PodDisruptionBudget
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
		if c.violations == 0 {
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
		known.verdicts[i] = v
		if v.candidate != nil {
			take(v.candidate)
		}
	}
	return best, nil
}

// better reports whether a is to be preferred to b: A.7.6 of the specification, and the name of the node in the end.
func better(a, b *candidate) bool {
	return cmp.Or(
		cmp.Compare(a.violations, b.violations),
		cmp.Compare(a.highest, b.highest),
		cmp.Compare(a.sum, b.sum),
		cmp.Compare(len(a.victims), len(b.victims)),
		cmp.Compare(b.start, a.start), // the later the better
		strings.Compare(a.node.Name(), b.node.Name()),
	) < 0
}

// verdict is what came of a node: a candidate, or why it is none.
type verdict struct {
	candidate *candidate
	reason    string
}

// judge takes all pods of lower priority off a copy of the node and, if the pod then fits, puts back as many as can stay:
// first those whose budgets their going would break, the important ones before others.
func (s *search) judge(node *framework.NodeInfo) (verdict, error) {
	var lower []*framework.PodInfo
	for _, p := range node.Pods {
		if p.Priority() < s.pod.Priority() {
			lower = append(lower, p)
		}
	}
	if len(lower) == 0 {
		return verdict{reason: noVictims}, nil
	}
	state, there := s.state.Clone(), node.Clone()
	for _, p := range lower {
		if err := s.remove(state, p, there); err != nil {
			return verdict{}, err
		}
	}
	if st := s.plugin.handle.RunFilters(state, s.pod, there); !st.IsSuccess() {
		if st.Code() == framework.Error {
			return verdict{}, st.Err()
		}
		return verdict{reason: st.Message()}, nil
	}
	slices.SortStableFunc(lower, importance)
	protected, others := s.violating(lower)
	c := &candidate{node: node}
	for k, list := range [][]*framework.PodInfo{protected, others} {
		for _, p := range list {
			stays, err := s.reprieve(state, p, there)
			if err != nil {
				return verdict{}, err
			}
			if stays {
				continue
			}
			c.victims = append(c.victims, p)
			if k == 0 {
				c.violations++
			}
		}
	}
	if len(c.victims) == 0 {
		// The pods that are nominated here are in the way, not those that are here.
		return verdict{reason: noVictims}, nil
	}
	slices.SortStableFunc(c.victims, importance)
	c.rate()
	return verdict{candidate: c}, nil
}

func (s *search) remove(state *framework.CycleState, p *framework.PodInfo, node *framework.NodeInfo) error {
	if err := node.RemovePod(p.UID()); err != nil {
		return err
	}
	return s.plugin.handle.RunRemovePod(state, s.pod, p, node).Err()
}

// reprieve puts a pod back if the other one fits all the same.
func (s *search) reprieve(state *framework.CycleState, p *framework.PodInfo, node *framework.NodeInfo) (bool, error) {
	node.AddPod(p)
	if st := s.plugin.handle.RunAddPod(state, s.pod, p, node); !st.IsSuccess() {
		return false, st.Err()
	}
	st := s.plugin.handle.RunFilters(state, s.pod, node)
	switch {
	case st.IsSuccess():
		return true, nil
	case st.Code() == framework.Error:
		return false, st.Err()
	}
	return false, s.remove(state, p, node)
}

// violating parts the pods, most important first, into those whose going would break a disruption budget and the others.
// A pod that a budget already counts as disrupted costs it nothing.
func (s *search) violating(pods []*framework.PodInfo) (protected, others []*framework.PodInfo) {
	allowed := make([]int32, len(s.budgets))
	selectors := make([]*selector.Labels, len(s.budgets))
	for i, b := range s.budgets {
		allowed[i] = b.GetStatus().GetDisruptionsAllowed()
		// One that cannot be read, which the gateway does not let happen, protects nothing; nor does an empty one.
		if l, err := selector.FromLabelSelector(b.GetSpec().GetSelector()); err == nil && !l.IsEverything() {
			selectors[i] = l
		}
	}
	for _, p := range pods {
		broken := false
		for i, b := range s.budgets {
			if selectors[i] == nil || b.GetMetadata().GetNamespace() != p.Namespace() || !selectors[i].Matches(p.Labels()) {
				continue
			}
			if _, disrupted := b.GetStatus().GetDisruptedPods()[p.Pod.GetMetadata().GetName()]; disrupted {
				continue
			}
			allowed[i]--
			broken = broken || allowed[i] < 0
		}
		if broken {
			protected = append(protected, p)
		} else {
			others = append(others, p)
		}
	}
	return protected, others
}

// importance orders pods: by priority, then by how long they have been running, then by name.
func importance(a, b *framework.PodInfo) int {
	return cmp.Or(
		cmp.Compare(b.Priority(), a.Priority()),
		cmp.Compare(startOf(a), startOf(b)),
		strings.Compare(a.Name(), b.Name()),
	)
}

// startOf is when the pod began, in nanoseconds; one that has not begun is the newest of all.
func startOf(p *framework.PodInfo) int64 {
	t := p.Pod.GetStatus().GetStartTime()
	if t == nil {
		return 1<<63 - 1
	}
	return t.AsTime().UnixNano()
}

// rate sums up what the candidate costs.
func (c *candidate) rate() {
	c.highest = c.victims[0].Priority()
	c.start = 1<<63 - 1
	for _, v := range c.victims {
		c.sum += int64(v.Priority()) + 1<<31
		if v.Priority() == c.highest {
			c.start = min(c.start, startOf(v))
		}
	}
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
