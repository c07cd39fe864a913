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
	snapshot *framework.Snapshot
	// rotation is where, in the order of nodes, the search for the winner among equals begins. It starts at the seed and
	// moves past each node that is chosen, so that equals take turns and the same seed and input give the same choices.
	rotation int
	verdicts framework.Verdicts
	// open, ahead and totals are reused from pod to pod.
	open, ahead []int32
	totals      []int64
	signature   framework.Signature
	batches     batches
	noBatching  bool
}

// NewDecider returns a decider over snapshot. seed sets where ties begin.
func NewDecider(fw *runtime.Framework, snapshot *cache.Snapshot, seed uint64) *Decider {
	fw.SetSnapshot(&snapshot.Snapshot)
	return &Decider{fw: fw, snapshot: &snapshot.Snapshot, rotation: int(seed % (1 << 31))}
}

// NoBatching has each pod looked at all by itself from now on, which must not change what is decided.
func (d *Decider) NoBatching() { d.noBatching = true }

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
	// Clear takes an earlier nomination back.
	Clear bool
	// Victims are the pods that give way to it on NominatedNode.
	Victims []*framework.PodInfo
	// Rejections count the nodes by why they were no good. Not to be changed.
	Rejections []Rejection
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
