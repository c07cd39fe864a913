package cycle

import (
	"context"
	"slices"

	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/runtime"
)

// place finds the node for one pod among those of the snapshot's placement: the first of those with the best score, counted
// from the rotation.
func (d *Decider) place(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, mayPreempt bool, w *podWatch) (string, *fitError, error) {
	d.fw.Begin(pod)
	nodes, positions := d.snapshot.Columns(), d.snapshot.Positions()
	fail := d.failing(pod, len(positions))
	if len(positions) == 0 {
		fail.reject(NoNodes)
		return "", fail, nil
	}

	begun := w.begin()
	narrowed, st := d.fw.RunPreFilter(state, pod, d.snapshot)
	w.end(preFilter, begun, st.Code())
	if !st.IsSuccess() {
		if !st.IsRejected() {
			return "", nil, st.Err()
		}
		fail.preFilter = st
		fail.add(st)
		fail.rejections = append(fail.rejections, Rejection{st, len(positions)})
		d.verdicts.Reset(nodes.Nodes)
		d.verdicts.From(st.Plugin())
		r := d.verdicts.Reason(st)
		for _, i := range positions {
			d.verdicts.Reject(i, r)
		}
		return "", fail, d.postFilter(ctx, state, pod, mayPreempt, fail, w)
	}
	for _, p := range narrowed.Plugins {
		if len(narrowed.Names) < len(positions) {
			fail.reject(p)
		}
	}

	own, st := d.nominated(state, pod, narrowed)
	switch {
	case own == nil:
	case st.IsSuccess():
		return d.choose(own.Index), nil, nil
	case !st.IsRejected():
		return "", nil, st.Err()
	}
	b, err := d.batched(state, pod, positions, narrowed, w)
	if err != nil {
		return "", nil, err
	}
	if b == nil || own != nil && b.fits(own.Index) {
		return d.search(ctx, state, pod, positions, narrowed, mayPreempt, fail, w)
	}
	w.looked(len(positions), b.ranking.Feasible(), &b.verdicts)
	if i, found := b.best(d.turn()); found {
		return d.choose(i), nil, nil
	}
	d.verdicts.CopyFrom(&b.verdicts)
	if own != nil { // the batch does not know that the room there is this pod's own
		d.verdicts.Accept(own.Index)
		d.verdicts.From(st.Plugin())
		d.verdicts.Reject(own.Index, d.verdicts.Reason(st))
	}
	d.verdicts.Histogram(fail.count)
	return "", fail, d.postFilter(ctx, state, pod, mayPreempt, fail, w)
}

// search looks at all nodes for one pod.
func (d *Decider) search(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, positions []int32, narrowed runtime.Narrowed, mayPreempt bool, fail *fitError, w *podWatch) (string, *fitError, error) {
	nodes := d.snapshot.Columns()
	begun := w.begin()
	feasible, err := d.filter(state, pod, nodes, positions, narrowed)
	w.filtered(begun, len(positions), len(feasible), &d.verdicts, err)
	if err != nil {
		return "", nil, err
	}
	if len(feasible) == 0 {
		d.verdicts.Histogram(fail.count)
		return "", fail, d.postFilter(ctx, state, pod, mayPreempt, fail, w)
	}
	feasible = d.some(feasible)
	chosen := feasible[0]
	if len(feasible) > 1 {
		begun = w.begin()
		st := d.fw.RunPreScore(state, pod, nodes, feasible)
		w.end(preScore, begun, st.Code())
		if !st.IsSuccess() {
			return "", nil, st.Err()
		}
		begun = w.begin()
		scores, st := d.fw.RunScore(state, pod, nodes, feasible, d.totals)
		w.end(score, begun, st.Code())
		if !st.IsSuccess() {
			return "", nil, st.Err()
		}
		d.totals = scores
		chosen = pick(feasible, scores, d.turn())
	}
	return d.choose(chosen), nil, nil
}

// partial reports whether the profile wants only a share of the nodes considered.
func (d *Decider) partial() bool {
	p := d.fw.PercentageOfNodesToScore()
	return p > 0 && p < 100
}

// minConsidered is how many feasible nodes are scored whatever the share is.
const minConsidered = 100

// some leaves as many of the feasible nodes as the profile wants considered: the first from the rotation on, round the end.
func (d *Decider) some(feasible []int32) []int32 {
	if !d.partial() {
		return feasible
	}
	most := max(minConsidered, len(d.snapshot.Positions())*int(d.fw.PercentageOfNodesToScore())/100)
	if len(feasible) <= most {
		return feasible
	}
	start, _ := slices.BinarySearch(feasible, d.turn())
	out := make([]int32, most)
	for k := range out {
		out[k] = feasible[(start+k)%len(feasible)]
	}
	slices.Sort(out)
	return out
}

// failing is where it is noted why a pod fits nowhere. One that was not needed serves the next pod.
func (d *Decider) failing(pod *framework.PodInfo, nodes int) *fitError {
	if d.spare == nil {
		d.spare = &fitError{}
	}
	*d.spare = fitError{pod: pod, nodes: nodes}
	return d.spare
}

// turn is the position at which the search among equals begins.
func (d *Decider) turn() int32 { return int32(d.rotation % len(d.snapshot.Nodes())) }

// choose moves the rotation past the node.
func (d *Decider) choose(position int32) string {
	nodes := d.snapshot.Nodes()
	d.rotation = (int(position) + 1) % len(nodes)
	return nodes[position].Name()
}

// nominated tries the node alone on which room was made for the pod; nil where there is none.
func (d *Decider) nominated(state *framework.CycleState, pod *framework.PodInfo, narrowed runtime.Narrowed) (*framework.NodeInfo, *framework.Status) {
	name := d.fw.NominatedNode(pod.UID())
	if name == "" {
		return nil, nil
	}
	node := d.snapshot.Node(name)
	if node == nil || !d.snapshot.InPlacement(node.Index) || !narrowed.Has(name) {
		return nil, nil
	}
	return node, d.fw.RunFilters(state, pod, node)
}

// filter returns the positions of the nodes that the pod can run on, ascending and valid until the next call, and leaves the
// reasons of the others in d.verdicts.
func (d *Decider) filter(state *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, positions []int32, narrowed runtime.Narrowed) ([]int32, error) {
	d.verdicts.Reset(nodes.Nodes)
	d.open = append(d.open[:0], positions...)
	open := narrow(d.open, narrowed, nodes, &d.verdicts)
	open, st := d.fw.RunFilterPass(state, pod, nodes, open, &d.verdicts)
	if !st.IsSuccess() {
		return nil, st.Err()
	}
	open, st = d.yield(state, pod, pod.UID(), open, &d.verdicts)
	return open, st.Err()
}

// yield takes those nodes out of open that do not do with the pods on them for which room is being made there and that go
// before pod, but for the one with the uid except.
func (d *Decider) yield(state *framework.CycleState, pod *framework.PodInfo, except string, open []int32, v *framework.Verdicts) ([]int32, *framework.Status) {
	if d.fw.Nominator().Len() == 0 {
		return open, nil
	}
	d.room.update(d.fw.Nominator(), d.snapshot)
	left := open[:0]
	for _, i := range open {
		ahead := runtime.Ahead(pod, d.room.pods[i], except)
		if len(ahead) == 0 {
			left = append(left, i)
			continue
		}
		st := d.fw.RunFiltersWith(state, pod, d.snapshot.Nodes()[i], ahead)
		switch {
		case st.IsSuccess():
			left = append(left, i)
		case !st.IsRejected():
			return nil, st
		default:
			v.From(st.Plugin())
			v.Reject(i, v.Reason(st))
		}
	}
	return left, nil
}

// narrow leaves the nodes that PreFilter did, in the memory of open, and rejects the others.
func narrow(open []int32, narrowed runtime.Narrowed, nodes *framework.Columns, verdicts *framework.Verdicts) []int32 {
	if narrowed.Names == nil {
		return open
	}
	verdicts.From("")
	left := verdicts.Reason(framework.NewStatus(framework.UnschedulableAndUnresolvable, narrowed.Message()))
	rest := open[:0]
	for _, i := range open {
		if narrowed.Has(nodes.Nodes[i].Name()) {
			rest = append(rest, i)
		} else {
			verdicts.Reject(i, left)
		}
	}
	return rest
}

// pick returns the first position from start on, round the end, that has the best score. positions ascend.
func pick(positions []int32, scores []int64, start int32) int32 {
	best := slices.Max(scores)
	first := int32(-1)
	for k, i := range positions {
		if scores[k] != best {
			continue
		}
		if i >= start {
			return i
		}
		if first < 0 {
			first = i
		}
	}
	return first
}

// postFilter gives plugins the chance to make room. Members of a gang are not preempted for one by one.
func (d *Decider) postFilter(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, may bool, fail *fitError, w *podWatch) error {
	if !may || !d.fw.MakesRoom() {
		return nil
	}
	begun := w.begin()
	result, st := d.fw.RunPostFilter(ctx, state, pod, &d.verdicts)
	w.end(postFilter, begun, st.Code())
	if st.Code() == framework.Error {
		return st.Err()
	}
	fail.postFilter = st.Message()
	if result != nil {
		fail.nominated, fail.clear, fail.victims = result.NominatedNode, result.Clear, result.Victims
	}
	return nil
}
