package defaultpreemption

import (
	"trireme.dev/client/selector"
	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
)

// groups reads PodGroup objects; nil where the scheduler knows none.
type groups func(framework.GroupKey) *schedulingv1.PodGroup

func (p *Plugin) groups() groups {
	lister, ok := framework.Objects[*schedulingv1.PodGroup](p.handle, "PodGroup")
	if !ok {
		return nil
	}
	return func(key framework.GroupKey) *schedulingv1.PodGroup {
		g, _ := lister.Get(key.Namespace, key.Name)
		return g
	}
}

// get returns a group's object; nil where there is none.
func (g groups) get(key framework.GroupKey) *schedulingv1.PodGroup {
	if g == nil {
		return nil
	}
	return g(key)
}

// whole reports whether the pods of the group may only be disrupted together. Those of a group without an object may go
// one by one.
func (g groups) whole(key framework.GroupKey) bool {
	return g.get(key).GetSpec().GetDisruptionMode().GetAll() != nil
}

// rules are what preemption honours where it can: disruption budgets, and that a gang of which single pods may go keeps its
// quorum.
type rules struct {
	budgets []rule
	groups  groups
	nodes   *framework.Snapshot
	spares  map[framework.GroupKey]int // of the groups that came up, as they were before anything was taken away in thought
}

// rule is one budget.
type rule struct {
	namespace string
	selector  *selector.Labels
	allowed   int
	disrupted map[string]bool // pods, by name, that it counts already
}

func newRules(budgets []*policyv1.PodDisruptionBudget, groups groups, nodes *framework.Snapshot) *rules {
	r := &rules{groups: groups, nodes: nodes, spares: map[framework.GroupKey]int{}}
	for _, b := range budgets {
		// One that cannot be read, which the gateway does not let happen, protects nothing; nor does an empty one.
		l, err := selector.FromLabelSelector(b.GetSpec().GetSelector())
		if err != nil || l.IsEverything() {
			continue
		}
		out := rule{namespace: b.GetMetadata().GetNamespace(), selector: l, allowed: int(b.GetStatus().GetDisruptionsAllowed()), disrupted: map[string]bool{}}
		for name := range b.GetStatus().GetDisruptedPods() {
			out.disrupted[name] = true
		}
		r.budgets = append(r.budgets, out)
	}
	return r
}

// allowances are what is left of the rules while units are taken away one after the other.
type allowances struct {
	rules *rules
	left  []int // by budget
	spare map[framework.GroupKey]int
}

func (r *rules) allowances() *allowances {
	a := &allowances{rules: r, left: make([]int, len(r.budgets)), spare: map[framework.GroupKey]int{}}
	for i := range r.budgets {
		a.left[i] = r.budgets[i].allowed
	}
	return a
}

// take accounts for a unit that goes, and returns how many of its pods break a rule by that.
func (a *allowances) take(u *unit) int {
	broken := 0
	for _, m := range u.pods {
		if a.takePod(m.Pod, u.whole) {
			broken++
		}
	}
	return broken
}

func (a *allowances) takePod(p *framework.PodInfo, whole bool) bool {
	broken := false
	for i := range a.rules.budgets {
		b := &a.rules.budgets[i]
		if b.namespace != p.Namespace() || !b.selector.Matches(p.Labels()) || b.disrupted[p.Pod.GetMetadata().GetName()] {
			continue
		}
		a.left[i]--
		broken = broken || a.left[i] < 0
	}
	if key, ok := p.Group(); ok && !whole && !p.Terminating() {
		spare, known := a.spare[key]
		if !known {
			spare = a.rules.spare(key)
		}
		a.spare[key] = spare - 1
		broken = broken || spare <= 0
	}
	return broken
}

// spare is how many pods of a group may go before it has fewer than it needs. A gang that has fewer already, or a group that
// is no gang, has no quorum to lose.
func (r *rules) spare(key framework.GroupKey) int {
	spare, known := r.spares[key]
	if !known {
		spare = r.countSpare(key)
		r.spares[key] = spare
	}
	return spare
}

func (r *rules) countSpare(key framework.GroupKey) int {
	gang := r.groups.get(key).GetSpec().GetSchedulingPolicy().GetGang()
	members := r.nodes.Members(key)
	stay := 0
	for _, m := range members {
		if !m.Pod.Terminating() {
			stay++
		}
	}
	if gang == nil || stay < int(gang.GetMinCount()) {
		return len(members)
	}
	return stay - int(gang.GetMinCount())
}

// protect notes which of the units, if they go in this order, break a rule.
func (r *rules) protect(list []*unit) {
	left := r.allowances()
	for _, u := range list {
		u.breaks = left.take(u)
	}
}

// protectedOf are those of the units that break a rule, or the others.
func protectedOf(list []*unit, protected bool) []*unit {
	var out []*unit
	for _, u := range list {
		if (u.breaks > 0) == protected {
			out = append(out, u)
		}
	}
	return out
}

// violations counts the pods of the units that break a rule.
func (r *rules) violations(list []*unit) int {
	left, sum := r.allowances(), 0
	for _, u := range list {
		sum += left.take(u)
	}
	return sum
}
