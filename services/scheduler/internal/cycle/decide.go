package cycle

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cache"
	"trireme.dev/services/scheduler/internal/runtime"
)

// NoNodes stands for a plugin in the rejection of a pod that found no nodes at all: a new node is what it waits for.
const NoNodes = "NoNodes"

// Decider decides where pods go. It reads a snapshot and runs plugins; no clock has a say in it, and it writes nothing but
// a Watch.
type Decider struct {
	fw       *runtime.Framework
	snapshot *cache.Snapshot
	// rotation is where, in the order of nodes, the search for the winner among equals begins. It starts at the seed and
	// moves past each node that is chosen, so that equals take turns and the same seed and input give the same choices.
	rotation int
	rejected []*framework.Status // by node, reused from pod to pod
}

// NewDecider returns a decider over snapshot. seed sets where ties begin.
func NewDecider(fw *runtime.Framework, snapshot *cache.Snapshot, seed uint64) *Decider {
	fw.SetSnapshot(snapshot)
	return &Decider{fw: fw, snapshot: snapshot, rotation: int(seed % (1 << 31))}
}

// Decision is what came of one attempt.
type Decision struct {
	// Placed are the pods that go to nodes, together. Empty where the attempt failed.
	Placed []framework.Assignment
	// Failed are the pods that go nowhere, each with a message.
	Failed []Failure
	// Plugins that rejected, and those of them that said Pending, by name.
	Plugins, Pending []string
	// Message is what a group as a whole lacks; empty where it lacks nothing.
	Message string
	// Err is set where the attempt ended with an unexpected error; nothing is placed then.
	Err error
}

// Failure is a pod that was not placed.
type Failure struct {
	Pod *framework.PodInfo
	// Message for people: 0/3 nodes are available: ...
	Message string
	// NominatedNode is where a plugin makes room for the pod.
	NominatedNode string
}

// Decide places the pods of q one after the other in the snapshot, each seeing those before it. It is all or nothing:
// unless as many as the group needs fit, none is placed. What it did to the snapshot it undoes. watch is told how long
// each step took, and may be nil.
func (d *Decider) Decide(ctx context.Context, q *framework.Queued, watch *Watch) (out Decision) {
	rotation := d.rotation
	var placed []framework.Assignment
	defer func() {
		// A plugin of a third party may panic; that is this attempt's misfortune and nobody else's.
		if p := recover(); p != nil {
			out = Decision{Err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
		for _, a := range slices.Backward(placed) {
			if err := d.snapshot.Forget(a.Pod, a.Node); err != nil {
				out = Decision{Err: fmt.Errorf("undo in snapshot: %w", err)}
			}
		}
		if len(out.Placed) == 0 {
			d.rotation = rotation
		}
	}()

	plugins, pending := make(map[string]struct{}), make(map[string]struct{})
	var failures []*fitError
	for _, pod := range q.Pods {
		state := framework.NewCycleState()
		w := watch.pod(pod, state)
		node, fail, err := d.place(ctx, state, pod, !q.IsGroup(), w)
		w.decided(node, fail)
		if err != nil {
			return Decision{Err: fmt.Errorf("pod %s: %w", pod.Name(), err)}
		}
		if fail != nil {
			failures = append(failures, fail)
			maps.Copy(plugins, fail.plugins)
			maps.Copy(pending, fail.pending)
			continue
		}
		d.snapshot.Assume(pod, node)
		placed = append(placed, framework.Assignment{Pod: pod, Node: node, State: state})
	}

	out.Plugins, out.Pending = slices.Sorted(maps.Keys(plugins)), slices.Sorted(maps.Keys(pending))
	if len(placed) > 0 && len(placed)+q.Scheduled >= q.MinCount() {
		out.Placed = slices.Clone(placed)
		for _, f := range failures {
			out.Failed = append(out.Failed, f.failure(f.message("")))
		}
		return out
	}
	if !q.IsGroup() {
		for _, f := range failures {
			out.Failed = append(out.Failed, f.failure(f.message("")))
		}
		return out
	}
	out.Message = groupMessage(q, len(placed), failures)
	for _, pod := range q.Pods {
		out.Failed = append(out.Failed, Failure{Pod: pod, Message: out.Message})
	}
	return out
}

// place finds the node for one pod: the first of those with the best score, counted from the rotation.
func (d *Decider) place(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, mayPreempt bool, w *podWatch) (string, *fitError, error) {
	nodes := d.snapshot.Nodes()
	fail := newFitError(pod, len(nodes))
	if len(nodes) == 0 {
		fail.plugins[NoNodes] = struct{}{}
		return "", fail, nil
	}
	d.rejected = append(d.rejected[:0], make([]*framework.Status, len(nodes))...)

	begun := w.begin()
	narrowed, st := d.fw.RunPreFilter(state, pod, d.snapshot)
	w.end(preFilter, begun, st.Code())
	if !st.IsSuccess() {
		if !st.IsRejected() {
			return "", nil, st.Err()
		}
		fail.preFilter = st
		fail.add(st)
		for i := range d.rejected {
			d.rejected[i] = st
		}
		return "", fail, d.postFilter(ctx, state, pod, mayPreempt, fail, w)
	}
	for _, p := range narrowed.Plugins {
		if len(narrowed.Names) < len(nodes) {
			fail.plugins[p] = struct{}{}
		}
	}

	begun = w.begin()
	feasible, err := d.filter(state, pod, nodes, narrowed, w)
	w.filtered(begun, len(nodes), len(feasible), d.rejected, err)
	if err != nil {
		return "", nil, err
	}
	if len(feasible) == 0 {
		for _, st := range d.rejected {
			fail.count(st)
		}
		return "", fail, d.postFilter(ctx, state, pod, mayPreempt, fail, w)
	}
	chosen := feasible[0]
	if len(feasible) > 1 {
		infos := make([]*framework.NodeInfo, len(feasible))
		for i, n := range feasible {
			infos[i] = nodes[n]
		}
		begun = w.begin()
		st := d.fw.RunPreScore(state, pod, infos)
		w.end(preScore, begun, st.Code())
		if !st.IsSuccess() {
			return "", nil, st.Err()
		}
		begun = w.begin()
		scores, st := d.fw.RunScore(state, pod, infos)
		w.end(score, begun, st.Code())
		if !st.IsSuccess() {
			return "", nil, st.Err()
		}
		chosen = pick(feasible, scores, d.rotation%len(nodes))
	}
	d.rotation = (chosen + 1) % len(nodes)
	return nodes[chosen].Name(), nil, nil
}

// filter returns the indices of the nodes that the pod can run on and leaves the reasons of the others in d.rejected.
func (d *Decider) filter(state *framework.CycleState, pod *framework.PodInfo, nodes []*framework.NodeInfo, narrowed runtime.Narrowed, w *podWatch) ([]int, error) {
	run := runtime.RunFilters
	filters := d.fw.Filters(state)
	var leftOut *framework.Status
	if narrowed.Names != nil {
		leftOut = framework.NewStatus(framework.UnschedulableAndUnresolvable, narrowed.Message())
	}
	feasible := make([]int, 0, len(nodes))
	for i, node := range nodes {
		if narrowed.Names != nil {
			if _, ok := narrowed.Names[node.Name()]; !ok {
				d.rejected[i] = leftOut
				continue
			}
		}
		if w.measures() {
			run = runtime.RunFilters
			if i%timedNodes == 0 {
				run = runtime.TimeFilters
			}
		}
		st := run(filters, state, pod, node)
		if st.IsSuccess() {
			feasible = append(feasible, i)
			continue
		}
		if !st.IsRejected() {
			return nil, st.Err()
		}
		d.rejected[i] = st
	}
	return feasible, nil
}

// pick returns the first index from start on, round the end, that has the best score. indices are ascending.
func pick(indices []int, scores []int64, start int) int {
	best := slices.Max(scores)
	first := -1
	for i, n := range indices {
		if scores[i] != best {
			continue
		}
		if n >= start {
			return n
		}
		if first < 0 {
			first = n
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
	result, st := d.fw.RunPostFilter(ctx, state, pod, nodeStatuses{d.snapshot.Nodes(), d.rejected})
	w.end(postFilter, begun, st.Code())
	if st.Code() == framework.Error {
		return st.Err()
	}
	fail.postFilter = st.Message()
	if result != nil {
		fail.nominated = result.NominatedNode
	}
	return nil
}

// nodeStatuses implements framework.NodeStatuses.
type nodeStatuses struct {
	nodes    []*framework.NodeInfo
	rejected []*framework.Status
}

// Each implements framework.NodeStatuses.
func (s nodeStatuses) Each(fn func(string, *framework.Status)) {
	for i, n := range s.nodes {
		if st := s.rejected[i]; st != nil {
			fn(n.Name(), st)
		}
	}
}

// Get implements framework.NodeStatuses.
func (s nodeStatuses) Get(node string) *framework.Status {
	i := slices.IndexFunc(s.nodes, func(n *framework.NodeInfo) bool { return n.Name() == node })
	if i < 0 {
		return nil
	}
	return s.rejected[i]
}
