package explain

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cycle"
	"trireme.dev/services/scheduler/internal/queue"
)

// group tells how the pod's group stands. One that is no gang has no say in what becomes of the pod.
func (a *answer) group(key framework.GroupKey) {
	object, exists := a.x.Groups.Get(key.Namespace, key.Name)
	q := framework.Queued{GroupKey: key}
	if exists {
		q.Group = object
	}
	members := a.x.Queue.GroupMembers(key)
	g := &group{name: key.String(), exists: exists, min: q.MinCount(), waiting: len(members), scheduled: a.x.Cache.Scheduled(key)}
	for _, m := range members {
		if w, ok := a.x.Queue.Where(m.UID()); ok && len(m.Pod.GetSpec().GetSchedulingGates()) > 0 && w.Part == queue.PartGated {
			g.held++
		}
	}
	a.out.PodGroup = &schedulingv1.PodGroupExplanation{
		Name: key.Name, Exists: exists, MinCount: int32(g.min), Waiting: int32(g.waiting), Scheduled: int32(g.scheduled),
	}
	if !exists || object.GetSpec().GetSchedulingPolicy().GetGang() != nil {
		a.s.group = g
	}
}

// judgeGroup places the group in thought, as the cycle would, and judges the first member that finds no place where most do,
// with those that do on their nodes; pod where all do.
func (a *answer) judgeGroup(t *trial, q *framework.Queued, pod *framework.PodInfo) (*judgement, error) {
	g := a.s.group
	if _, st := t.fw.RunPlacementGenerate(framework.NewCycleState(), q, &t.snapshot.Snapshot); st.IsRejected() {
		c := causeOf(st)
		c.count, c.whole = len(t.snapshot.Positions()), true
		g.tried = true
		return &judgement{nodes: c.count, causes: []cause{c}}, nil
	}
	d := t.decider.Decide(t.ctx, q, nil)
	if d.Err != nil {
		return nil, d.Err
	}
	g.tried, g.fit = true, len(d.Placed)
	a.placements(d.Placements)
	defer func() { a.out.PodGroup.Fitted = proto.Int32(int32(g.fit)) }()
	if d.Closest == nil {
		return t.judge(pod)
	}
	g.fit = len(d.Closest.Assignments)
	if name := d.Closest.Placement.Name; name != "" {
		g.closest, g.domains = name, len(d.Placements)
	}
	i := slices.IndexFunc(d.Placements, func(v cycle.PlacementVerdict) bool { return v.Name == d.Closest.Placement.Name })
	if left := d.Placements[i].Left; left != nil {
		pod, g.left, a.out.PodGroup.Left = left, left, left.Pod.GetMetadata().GetName()
	}
	t.snapshot.Within(d.Closest.Placement)
	for _, placed := range d.Closest.Assignments {
		t.snapshot.Assume(placed.Pod, placed.Node)
	}
	j, err := t.judge(pod)
	if j != nil {
		j.victims = names(d.Victims)
	}
	return j, err
}

// placements tells of each domain that was tried, by name.
func (a *answer) placements(verdicts []cycle.PlacementVerdict) {
	verdicts = slices.Clone(verdicts)
	slices.SortFunc(verdicts, func(x, y cycle.PlacementVerdict) int { return strings.Compare(x.Name, y.Name) })
	for _, v := range verdicts {
		if v.Name == "" {
			return // the group may be anywhere
		}
		out := &schedulingv1.PlacementVerdict{Name: v.Name, Fitted: int32(v.Fitted)}
		if v.Left != nil {
			nodes := 0
			for _, r := range v.Rejections {
				nodes += r.Nodes
			}
			out.Message = findings(causesOf(v.Rejections), nodes, nil)
		}
		a.out.PodGroup.Placements = append(a.out.PodGroup.Placements, out)
	}
}
