package cycle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/runtime"
)

// PlacementVerdict is what came of one placement for a group.
type PlacementVerdict struct {
	// Name of the placement; empty for all nodes.
	Name string
	// Fitted is how many of the group's waiting pods fitted.
	Fitted int
	// Message says why that does not do, or is not all; empty where all fitted.
	Message string
	// Left is the first pod that fitted nowhere there, nil where there is none, and Rejections count the nodes by why.
	Left       *framework.PodInfo
	Rejections []Rejection
}

// trial is a group as it was placed in thought within one placement.
type trial struct {
	framework.Placed
	failures []*fitError
	// raw scores of the placement, by plugin; nil where nobody asked.
	raw []int64
	// rotation after it.
	rotation int
	// begin and end of what a Watch noted.
	begin, end int
}

// fits reports whether as many pods found a place as the group needs.
func (t *trial) fits(q *framework.Queued) bool {
	n := len(t.Assignments)
	return n > 0 && n+q.Scheduled >= q.MinCount()
}

func (t *trial) verdict() PlacementVerdict {
	v := PlacementVerdict{Name: t.Placement.Name, Fitted: len(t.Assignments)}
	if len(t.failures) > 0 {
		f := t.failures[0]
		v.Message, v.Left, v.Rejections = f.message(f.pod.Pod.GetMetadata().GetName()), f.pod, f.rejections
	}
	return v
}

// group decides about a group: it is placed in thought within its placements, each by itself, and goes to the best of those
// in which it fits. No more than what can be bound at once is tried; the rest has its turn after that.
func (d *Decider) group(ctx context.Context, q *framework.Queued, watch *Watch) Decision {
	if len(q.Pods) > framework.MaxGroupPods {
		part := *q
		part.Pods = q.Pods[:framework.MaxGroupPods]
		q = &part
	}
	state := framework.NewCycleState()
	placements, st := d.fw.RunPlacementGenerate(state, q, d.snapshot)
	if st.Code() == framework.Error {
		return Decision{Err: st.Err()}
	}
	if !st.IsSuccess() {
		return unplaced(q, []string{st.Plugin()}, nil, fmt.Sprintf("pod group %s needs %d pods placed together: %s", q.GroupKey, q.MinCount(), st.Message()))
	}
	g := groupSearch{d: d, q: q, state: state, watch: watch, placements: placements}
	if len(placements) > 1 {
		g.bounds = d.fw.PlacementBounds(state, q, placements, d.snapshot)
	}
	if err := g.run(ctx); err != nil {
		return Decision{Err: err}
	}
	best, err := g.choose()
	if err != nil {
		return Decision{Err: err}
	}
	if best == nil {
		if placements[0].Name != "" {
			g.plugins = union(g.plugins, map[string]struct{}{d.fw.PlacementGenerator(): {}}) // a new placement may do
		}
		out := unplaced(q, sortedKeys(g.plugins), sortedKeys(g.pending), g.message())
		out.Placements, out.Closest = g.verdicts, &g.most.Placed
		if err := g.makeRoom(ctx, &out); err != nil {
			return Decision{Err: err}
		}
		return out
	}
	d.rotation = best.rotation
	out := Decision{Placed: best.Assignments, Placements: g.verdicts}
	var plugins, pending map[string]struct{}
	for _, f := range best.failures {
		plugins, pending = union(plugins, f.plugins), union(pending, f.pending)
		out.Failed = append(out.Failed, f.failure(f.message("")))
	}
	out.Plugins, out.Pending = sortedKeys(plugins), sortedKeys(pending)
	return out
}

// unplaced is the decision to place none of a group's pods.
func unplaced(q *framework.Queued, plugins, pending []string, message string) Decision {
	out := Decision{Plugins: plugins, Pending: pending, Message: message, Failed: make([]Failure, 0, len(q.Pods))}
	for _, pod := range q.Pods {
		out.Failed = append(out.Failed, Failure{Pod: pod, Message: message})
	}
	return out
}

// groupSearch tries the placements of one group.
type groupSearch struct {
	d          *Decider
	q          *framework.Queued
	state      *framework.CycleState
	watch      *Watch
	placements []*framework.Placement
	bounds     *runtime.Bounds // nil where all are to be tried

	fitting  []trial
	most     *trial // of those that do not fit, the first with the most pods placed
	verdicts []PlacementVerdict
	// plugins that rejected pods, in any placement.
	plugins, pending map[string]struct{}
}

// run tries one placement after the other: those first that can have the highest score, so that it can end with one that
// no other can surpass.
func (g *groupSearch) run(ctx context.Context) error {
	d := g.d
	order := make([]int, len(g.placements))
	for k := range order {
		order[k] = k
	}
	if g.bounds != nil {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(g.bounds.Total[b], g.bounds.Total[a]) })
	}
	classes := d.classes(g.q.Pods)
	rotation := d.rotation
	for n, k := range order {
		begin := g.watch.mark()
		d.rotation = rotation
		t, err := d.try(ctx, g, g.placements[k], classes)
		d.rotation = rotation
		if err != nil {
			return err
		}
		g.verdicts = append(g.verdicts, t.verdict())
		if !t.fits(g.q) {
			for _, f := range t.failures {
				g.plugins, g.pending = union(g.plugins, f.plugins), union(g.pending, f.pending)
			}
			if g.most == nil || len(t.Assignments) > len(g.most.Assignments) {
				g.most = &trial{Placed: t.Placed, failures: t.failures}
			}
			if n < len(order)-1 || len(g.fitting) > 0 {
				g.watch.drop(begin) // where it fits nowhere, the last placement stands for all
			}
			continue
		}
		t.begin, t.end = begin, g.watch.mark()
		g.fitting = append(g.fitting, t)
		if g.bounds != nil && g.bounds.Reached(d.fw, k, t.raw) {
			break
		}
	}
	return nil
}

// choose returns the best of the placements in which the group fits, the first by name of several; nil where there is none.
func (g *groupSearch) choose() (*trial, error) {
	switch len(g.fitting) {
	case 0:
		return nil, nil
	case 1:
		t := &g.fitting[0]
		g.watch.only(t.begin, t.end)
		return t, nil
	}
	slices.SortStableFunc(g.fitting, func(a, b trial) int { return strings.Compare(a.Placement.Name, b.Placement.Name) })
	placed, raw := make([]framework.Placed, len(g.fitting)), make([][]int64, len(g.fitting))
	for k, t := range g.fitting {
		placed[k], raw[k] = t.Placed, t.raw
	}
	total, st := g.d.fw.RankPlacements(g.state, g.q, placed, raw)
	if !st.IsSuccess() {
		return nil, st.Err()
	}
	best := 0
	for k, score := range total {
		if score > total[best] {
			best = k
		}
	}
	t := &g.fitting[best]
	g.watch.only(t.begin, t.end)
	return t, nil
}

// try places the pods one after the other within a placement, each seeing those before it, and takes them away again.
func (d *Decider) try(ctx context.Context, g *groupSearch, placement *framework.Placement, classes []int32) (t trial, err error) {
	t.Placement = placement
	t.Assignments = make([]framework.Assignment, 0, len(g.q.Pods))
	d.snapshot.Within(placement)
	defer func() {
		d.snapshot.SetMates(nil)
		for _, a := range slices.Backward(t.Assignments) {
			if undo := d.snapshot.Forget(a.Pod, a.Node); undo != nil {
				err = fmt.Errorf("undo in snapshot: %w", undo)
			}
		}
		d.snapshot.Within(nil)
	}()
	known := map[int32]rejected{} // by class
	for i, pod := range g.q.Pods {
		state := framework.NewCycleState()
		w := g.watch.pod(pod, state)
		if r, ok := known[classes[i]]; ok && r.holds(d, pod) {
			fail := *r.fail
			fail.pod = pod
			w.decided("", &fail)
			t.failures = append(t.failures, &fail)
			continue
		}
		node, fail, err := d.place(ctx, state, pod, false, w)
		w.decided(node, fail)
		if err != nil {
			return t, fmt.Errorf("pod %s: %w", pod.Name(), err)
		}
		if fail != nil {
			d.spare = nil
			t.failures = append(t.failures, fail)
			if classes[i] != 0 {
				known[classes[i]] = rejected{fail, d.snapshot.Version()}
			}
			continue
		}
		d.snapshot.Assume(pod, node)
		t.Assignments = append(t.Assignments, framework.Assignment{Pod: pod, Node: node, State: state})
		d.snapshot.SetMates(t.Assignments)
	}
	t.Unplaced, t.rotation = len(t.failures), d.rotation
	if len(g.placements) > 1 && t.fits(g.q) {
		raw, st := d.fw.RunPlacementScore(g.state, g.q, &t.Placed, d.snapshot)
		if !st.IsSuccess() {
			return t, st.Err()
		}
		t.raw = raw
	}
	return t, nil
}

// rejected is why a pod fits nowhere, which holds for its equals until a node changes.
type rejected struct {
	fail    *fitError
	version uint64
}

func (r rejected) holds(d *Decider, pod *framework.PodInfo) bool {
	return r.version == d.snapshot.Version() && r.fail.pod.Priority() == pod.Priority() && d.fw.NominatedNode(pod.UID()) == ""
}

// classes are the same number for pods of the same signature, 0 for those that have none.
func (d *Decider) classes(pods []*framework.PodInfo) []int32 {
	out := make([]int32, len(pods))
	if d.noBatching || d.partial() || len(pods) < 2 {
		return out
	}
	numbers := map[string]int32{}
	for i, pod := range pods {
		if !d.fw.Sign(pod, &d.signature) {
			continue
		}
		key := d.signature.Bytes()
		n, ok := numbers[string(key)]
		if !ok {
			n = int32(len(numbers)) + 1
			numbers[string(key)] = n
		}
		out[i] = n
	}
	return out
}

// shownPlacements is how many a message names.
const shownPlacements = 3

// message says what the group lacks, for each of the placements that come closest.
func (g *groupSearch) message() string {
	if len(g.placements) == 1 && g.placements[0].Name == "" {
		return groupMessage(g.q, len(g.most.Assignments), g.most.failures) + g.never()
	}
	best := slices.Clone(g.verdicts)
	slices.SortStableFunc(best, func(a, b PlacementVerdict) int {
		return cmp.Or(cmp.Compare(b.Fitted, a.Fitted), strings.Compare(a.Name, b.Name))
	})
	var b strings.Builder
	fmt.Fprintf(&b, "pod group %s needs %d pods placed together; ", g.q.GroupKey, g.q.MinCount())
	if g.q.Scheduled > 0 {
		fmt.Fprintf(&b, "%d scheduled, ", g.q.Scheduled)
	}
	fmt.Fprintf(&b, "0/%d placements are available: ", len(best))
	for i, v := range best {
		if i == shownPlacements {
			fmt.Fprintf(&b, "; in %d more, at most %d fit", len(best)-i, v.Fitted)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %d of %d pods fit (%s)", v.Name, v.Fitted, len(g.q.Pods), strings.TrimSuffix(v.Message, "."))
	}
	b.WriteString(g.never())
	return b.String()
}

// never says that the group could not be placed even if its placements were empty; nothing where it could. It is sure of what
// it says, and may overlook a group that cannot.
func (g *groupSearch) never() string {
	nodes := g.d.snapshot.Nodes()
	if len(nodes) == 0 {
		return ""
	}
	least := g.q.Pods[0].Request.Clone()
	for _, p := range g.q.Pods[1:] {
		least.Min(&p.Request)
	}
	need := int64(g.q.MinCount() - g.q.Scheduled)
	usable := g.usable()
	var most, where = int64(-1), ""
	for _, p := range g.placements {
		g.d.snapshot.Within(p)
		var room int64
		for _, i := range g.d.snapshot.Positions() {
			if usable[i] {
				room += nodes[i].Allocatable.Times(&least)
			}
		}
		g.d.snapshot.Within(nil)
		if room >= need {
			return ""
		}
		if room > most {
			most, where = room, p.Name
		}
	}
	if where != "" {
		return fmt.Sprintf("; even if empty, no placement would hold more than %d: %s", most, where)
	}
	return fmt.Sprintf("; even if empty, all nodes together would hold no more than %d", most)
}

// maxUsableClasses bounds for how many different pods usable looks at the nodes.
const maxUsableClasses = 8

// usable marks, by position, the nodes that one of the pods could go to as far as the filters go that look at nodes alone.
// Where many of the pods differ it marks them all.
func (g *groupSearch) usable() []bool {
	d := g.d
	all := make([]bool, len(d.snapshot.Nodes()))
	classes, seen := d.classes(g.q.Pods), map[int32]bool{}
	var v framework.Verdicts
	for i, pod := range g.q.Pods {
		if classes[i] != 0 && seen[classes[i]] {
			continue
		}
		seen[classes[i]] = true
		state := framework.NewCycleState()
		narrowed, st := d.fw.RunPreFilter(state, pod, d.snapshot)
		var open []int32
		if st.IsSuccess() {
			v.Reset(d.snapshot.Nodes())
			open, st = d.fw.RunNodeFilterPass(state, pod, d.snapshot.Columns(), slices.Clone(d.snapshot.Positions()), &v)
		}
		if len(seen) > maxUsableClasses || classes[i] == 0 && len(g.q.Pods) > maxUsableClasses || !st.IsSuccess() {
			for i := range all {
				all[i] = true
			}
			return all
		}
		for _, i := range open {
			all[i] = all[i] || narrowed.Has(d.snapshot.Nodes()[i].Name())
		}
	}
	return all
}
