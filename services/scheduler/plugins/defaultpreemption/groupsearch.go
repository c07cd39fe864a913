package defaultpreemption

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"trireme.dev/services/scheduler/framework"
)

// plan is how room is made for a group in one placement.
type plan struct {
	placement *framework.Placement
	// assignments of as many of the group's pods as it needs.
	assignments []framework.Assignment
	victims     []*unit // the first to be spared first
	price       price
}

// groupSearch looks for the cheapest way to make room for a group. It moves pods in nodes in thought; restore puts them
// back.
type groupSearch struct {
	plugin  *Plugin
	group   *framework.Queued
	nodes   *framework.Snapshot
	attempt framework.GroupAttempt
	rules   *rules
	units   *units
	need    int // pods
	// classes are equal for pods of the group about which filters always say the same; nil where a pod has no such class,
	// because other pods decide about it too.
	classes map[string]string // by uid
	number  int               // of the placement
	// order has the pods of nodes as they were, by position; nil for those that were left alone.
	order [][]*framework.PodInfo
	taken []*unit // since the last restore, some of them back again
}

func newGroupSearch(p *Plugin, group *framework.Queued, nodes *framework.Snapshot, attempt framework.GroupAttempt) *groupSearch {
	groups := p.groups()
	return &groupSearch{
		plugin: p, group: group, nodes: nodes, attempt: attempt,
		rules: newRules(p.budgets(), groups, nodes), units: unitsBelow(group.Priority(), group.GroupKey, nodes, groups),
		need: max(group.MinCount()-group.Scheduled, 1), classes: classesOf(p.handle, group.Pods),
		order: make([][]*framework.PodInfo, len(nodes.Nodes())),
	}
}

func classesOf(h framework.Handle, pods []*framework.PodInfo) map[string]string {
	out := make(map[string]string, len(pods))
	var signature framework.Signature
	for _, p := range pods {
		if !h.Sign(p, &signature) {
			return nil
		}
		out[p.UID()] = string(signature.Bytes())
	}
	return out
}

// run returns the cheapest plan, the first by the placement's name of equals; nil where there is none. Once it has enough
// plans, as many as of nodes for a pod, and one of them breaks no rule, it looks no further.
func (s *groupSearch) run() (best *plan, err error) {
	defer s.restore()
	enough := s.plugin.args.enough(len(s.attempt.Placements))
	plans, spare := 0, 0
	for _, p := range s.attempt.Placements {
		if plans >= enough && spare > 0 {
			break
		}
		found, err := s.plan(p)
		s.restore()
		if err != nil {
			return nil, err
		}
		if found == nil {
			continue
		}
		plans++
		if found.price.violations == 0 {
			spare++
		}
		if best == nil || found.before(best) {
			best = found
		}
	}
	if best != nil {
		err = s.polish(best)
	}
	return best, err
}

func (p *plan) before(o *plan) bool {
	return cmp.Or(p.price.compare(&o.price), strings.Compare(p.placement.Name, o.placement.Name)) < 0
}

// plan makes room in one placement: it takes away the least important units, as few as will do; has the group placed; and
// puts back all that can stay beside it.
func (s *groupSearch) plan(placement *framework.Placement) (*plan, error) {
	s.number++
	s.nodes.Within(placement)
	list := s.units.within(s.nodes.Positions(), s.number)
	s.rules.protect(list)
	others := protectedOf(list, false)
	list = append(others, protectedOf(list, true)...)
	least := s.least(list)
	s.nodes.Within(nil)
	placed, count, err := s.fewest(placement, list, least, len(others))
	if placed == nil || err != nil {
		return nil, err
	}
	out := &plan{placement: placement, assignments: placed}
	if err := s.spare(out, list[:count]); err != nil {
		return nil, err
	}
	out.price = priceOf(out.victims)
	out.price.violations = s.rules.violations(out.victims)
	return out, nil
}

// spare puts units back, the last to go first, where the group can stay on its nodes all the same. The others are the victims.
func (s *groupSearch) spare(p *plan, list []*unit) (err error) {
	for _, a := range p.assignments {
		s.nodes.Assume(a.Pod, a.Node)
	}
	defer func() {
		for _, a := range slices.Backward(p.assignments) {
			err = errors.Join(err, s.nodes.Forget(a.Pod, a.Node))
		}
	}()
	for _, u := range slices.Backward(list) {
		stays, err := s.reprieve(p, u)
		if err != nil {
			return err
		}
		if !stays {
			p.victims = append(p.victims, u)
		}
	}
	return nil
}

// fewest takes away as many of the units as the group needs gone, counted from the first, and returns where the group's pods
// go then; none where it does not fit even without all of them. At least so many have to go, by the sum of what pods ask for;
// the first so many are unprotected.
func (s *groupSearch) fewest(placement *framework.Placement, list []*unit, least, unprotected int) (placed []framework.Assignment, count int, err error) {
	gone := 0
	fits := func(n int) (bool, error) {
		for ; gone < n; gone++ {
			if err := s.take(list[gone]); err != nil {
				return false, err
			}
		}
		for ; gone > n; gone-- {
			s.put(list[gone-1])
		}
		p, ok, err := s.try(placement)
		if ok {
			placed, count = p, n
		}
		return ok, err
	}
	too := 0 // few
	for n, step := least, s.need; placed == nil; n, step = n+step, 2*step {
		if too < unprotected && least <= unprotected {
			n = min(n, unprotected) // rules are not broken where without that it fits
		}
		if n = min(n, len(list)); n == too {
			return nil, 0, nil
		}
		ok, err := fits(n)
		if err != nil {
			return nil, 0, err
		}
		if !ok {
			too = n
		}
	}
	too = max(too, least-1)
	for count-too > 1 {
		middle := (too + count) / 2
		ok, err := fits(middle)
		if err != nil {
			return nil, 0, err
		}
		if !ok {
			too = middle
		}
	}
	for ; gone < count; gone++ {
		if err := s.take(list[gone]); err != nil {
			return nil, 0, err
		}
	}
	return placed, count, nil
}

// least is how many of the units, from the first on, have to go so that the nodes that they are on, or were free anyway, could
// hold the group by what pods ask for.
func (s *groupSearch) least(list []*unit) int {
	want := s.group.Pods[0].Request.Clone()
	for _, p := range s.group.Pods[1:] {
		want.Min(&p.Request)
	}
	total := int64(0)
	free := s.free(&want, &total)
	for n, u := range list {
		if total >= int64(s.need) {
			return max(n, 1)
		}
		for _, m := range u.pods {
			if !s.nodes.InPlacement(m.Node.Index) {
				continue
			}
			f := &free[m.Node.Index]
			total -= f.Times(&want)
			f.Add(&m.Pod.Request)
			f.AllowedPods++
			total += f.Times(&want)
		}
	}
	return len(list)
}

// free is what nodes have left, by position, and total how often what is wanted fits into it.
func (s *groupSearch) free(want *framework.Resource, total *int64) []framework.Resource {
	out := make([]framework.Resource, len(s.nodes.Nodes()))
	for _, i := range s.nodes.Positions() {
		n := s.nodes.Nodes()[i]
		out[i] = n.Allocatable.Clone()
		out[i].Sub(&n.Requested)
		out[i].AllowedPods -= int64(len(n.Pods))
		*total += out[i].Times(want)
	}
	return out
}

// try places the group, and returns as many of its pods as it needs.
func (s *groupSearch) try(placement *framework.Placement) ([]framework.Assignment, bool, error) {
	placed, st := s.attempt.Try(placement)
	switch {
	case st.IsSuccess():
		return placed.Assignments[:s.need], true, nil
	case st.IsRejected():
		return nil, false, nil
	}
	return nil, false, st.Err()
}

// reprieve puts a unit back if the group, which is on its nodes, can stay there all the same.
func (s *groupSearch) reprieve(p *plan, u *unit) (bool, error) {
	s.put(u)
	for _, a := range s.beside(p, u) {
		if err := s.nodes.Forget(a.Pod, a.Node); err != nil {
			return false, err
		}
		st := s.attempt.Judge(p.placement, a.Pod, s.nodes.Node(a.Node))
		s.nodes.Assume(a.Pod, a.Node)
		switch {
		case st.IsRejected():
			return false, s.take(u)
		case !st.IsSuccess():
			return false, st.Err()
		}
	}
	return true, nil
}

// beside are those of the placed pods for which a unit can make a difference: those on the same nodes; where there are queues,
// whose shares it counts towards, one of each class too; all where other pods decide about them anyway.
func (s *groupSearch) beside(p *plan, u *unit) []framework.Assignment {
	if s.classes == nil {
		return p.assignments
	}
	var out []framework.Assignment
	classes := map[string]struct{}{}
	queues := len(s.nodes.Books().Queues) > 0
	for _, a := range p.assignments {
		near := slices.ContainsFunc(u.pods, func(m framework.Member) bool { return m.Node.Name() == a.Node })
		if !near && queues {
			class := s.classes[a.Pod.UID()]
			_, had := classes[class]
			classes[class] = struct{}{}
			near = !had
		}
		if near {
			out = append(out, a)
		}
	}
	return out
}

// maxPolish bounds how many pods are placed while a plan is being polished.
const maxPolish = 20_000

// polish spares victims without which the group would fit as well if it went to other nodes of the placement, until there is
// none: to spare one may make another needless.
func (s *groupSearch) polish(p *plan) error {
	for _, u := range p.victims {
		if err := s.take(u); err != nil {
			return err
		}
	}
	tries := maxPolish / s.need
	for spared := true; spared; {
		spared = false
		victims := make([]*unit, 0, len(p.victims))
		for _, u := range p.victims {
			if tries--; tries < 0 {
				victims = append(victims, u)
				continue
			}
			s.put(u)
			placed, ok, err := s.try(p.placement)
			if err != nil {
				return err
			}
			if ok {
				p.assignments, spared = placed, true
				continue
			}
			if err := s.take(u); err != nil {
				return err
			}
			victims = append(victims, u)
		}
		p.victims = victims
	}
	return nil
}

// take takes a unit away in thought.
func (s *groupSearch) take(u *unit) error {
	for _, m := range u.pods {
		if i := m.Node.Index; s.order[i] == nil {
			s.order[i] = slices.Clone(m.Node.Pods)
		}
		if err := s.nodes.Forget(m.Pod, m.Node.Name()); err != nil {
			return err
		}
	}
	u.away = true
	s.taken = append(s.taken, u)
	return nil
}

// put puts it back.
func (s *groupSearch) put(u *unit) {
	for _, m := range u.pods {
		s.nodes.Assume(m.Pod, m.Node.Name())
	}
	u.away = false
}

// restore leaves the nodes as they were before the search.
func (s *groupSearch) restore() {
	for _, u := range s.taken {
		if u.away {
			s.put(u)
		}
	}
	s.taken = s.taken[:0]
	for i, pods := range s.order {
		if pods != nil {
			copy(s.nodes.Nodes()[i].Pods, pods)
			s.order[i] = nil
		}
	}
}
