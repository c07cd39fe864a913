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
	nodes, positions := d.snapshot.Columns(), d.snapshot.Positions()
	fail := newFitError(pod, len(positions))
	if len(positions) == 0 {
		fail.plugins[NoNodes] = struct{}{}
		return "", fail, nil
	}
	d.verdicts.Reset(nodes.Nodes)

	begun := w.begin()
	narrowed, st := d.fw.RunPreFilter(state, pod, d.snapshot)
	w.end(preFilter, begun, st.Code())
	if !st.IsSuccess() {
		if !st.IsRejected() {
			return "", nil, st.Err()
		}
		fail.preFilter = st
		fail.add(st)
		d.verdicts.From(st.Plugin())
		r := d.verdicts.Reason(st)
		for _, i := range positions {
			d.verdicts.Reject(i, r)
		}
		return "", fail, d.postFilter(ctx, state, pod, mayPreempt, fail, w)
	}
	for _, p := range narrowed.Plugins {
		if len(narrowed.Names) < len(positions) {
			fail.plugins[p] = struct{}{}
		}
	}

	if i, ok := d.nominated(state, pod, narrowed); ok {
		return d.choose(i), nil, nil
	}
	begun = w.begin()
	feasible, err := d.filter(state, pod, nodes, positions, narrowed)
	w.filtered(begun, len(positions), len(feasible), &d.verdicts, err)
	if err != nil {
		return "", nil, err
	}
	if len(feasible) == 0 {
		d.verdicts.Histogram(fail.count)
		return "", fail, d.postFilter(ctx, state, pod, mayPreempt, fail, w)
	}
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

// turn is the position at which the search among equals begins.
func (d *Decider) turn() int32 { return int32(d.rotation % len(d.snapshot.Nodes())) }

// choose moves the rotation past the node.
func (d *Decider) choose(position int32) string {
	nodes := d.snapshot.Nodes()
	d.rotation = (int(position) + 1) % len(nodes)
	return nodes[position].Name()
}

// nominated tries the node alone on which room was made for the pod.
func (d *Decider) nominated(state *framework.CycleState, pod *framework.PodInfo, narrowed runtime.Narrowed) (int32, bool) {
	name := d.fw.NominatedNode(pod.UID())
	if name == "" {
		return 0, false
	}
	node := d.snapshot.Node(name)
	if node == nil || !d.snapshot.InPlacement(node.Index) || !narrowed.Has(name) {
		return 0, false
	}
	return node.Index, d.fw.RunFilters(state, pod, node).IsSuccess()
}

// filter returns the positions of the nodes that the pod can run on, ascending and valid until the next call, and leaves the
// reasons of the others in d.verdicts.
func (d *Decider) filter(state *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, positions []int32, narrowed runtime.Narrowed) ([]int32, error) {
	open := d.open[:0]
	if narrowed.Names == nil {
		open = append(open, positions...)
	} else {
		d.verdicts.From("")
		left := d.verdicts.Reason(framework.NewStatus(framework.UnschedulableAndUnresolvable, narrowed.Message()))
		for _, i := range positions {
			if narrowed.Has(nodes.Nodes[i].Name()) {
				open = append(open, i)
			} else {
				d.verdicts.Reject(i, left)
			}
		}
	}
	d.open = open
	open, ahead := d.split(pod, open)
	open, st := d.fw.RunFilterPass(state, pod, nodes, open, &d.verdicts)
	if !st.IsSuccess() {
		return nil, st.Err()
	}
	if len(ahead) == 0 {
		return open, nil
	}
	for _, i := range ahead {
		st := d.fw.RunFilters(state, pod, nodes.Nodes[i])
		switch {
		case st.IsSuccess():
			open = append(open, i)
		case !st.IsRejected():
			return nil, st.Err()
		default:
			d.verdicts.From(st.Plugin())
			d.verdicts.Reject(i, d.verdicts.Reason(st))
		}
	}
	slices.Sort(open)
	return open, nil
}

// split takes out the nodes on which room is being made for pods that go before this one: each of them is judged twice.
func (d *Decider) split(pod *framework.PodInfo, open []int32) (rest, ahead []int32) {
	ahead = d.ahead[:0]
	d.fw.Nominator().Each(func(name string, pods []*framework.PodInfo) {
		if node := d.snapshot.Node(name); node != nil && len(d.fw.Ahead(pod, pods)) > 0 {
			if _, ok := slices.BinarySearch(open, node.Index); ok {
				ahead = append(ahead, node.Index)
			}
		}
	})
	d.ahead = ahead
	if len(ahead) == 0 {
		return open, nil
	}
	slices.Sort(ahead)
	rest, next := open[:0], 0
	for _, i := range open {
		if next < len(ahead) && ahead[next] == i {
			next++
			continue
		}
		rest = append(rest, i)
	}
	return rest, ahead
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
	if !may {
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
		fail.nominated, fail.clear = result.NominatedNode, result.Clear
	}
	return nil
}
