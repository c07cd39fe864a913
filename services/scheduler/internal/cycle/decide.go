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
	// open and totals are reused from pod to pod.
	open       []int32
	totals     []int64
	signature  framework.Signature
	batches    batches
	room       room
	noBatching bool
	spare      *fitError
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
	// Victims are the pods that give way to those for which room is being made, with their nodes.
	Victims []framework.Member
	// Placements that were tried for a group, in that order.
	Placements []PlacementVerdict
	// Closest is the placement in which most of a group's pods found places, where those were not enough.
	Closest *framework.Placed
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
	// Victims are the pods that give way to it, with their nodes; of a group, those on NominatedNode.
	Victims []framework.Member
	// Rejections count the nodes by why they were no good. Not to be changed.
	Rejections []Rejection
}

// Decide places the pods of q. It is all or nothing: unless as many as the group needs fit, none is placed. What it did to
// the snapshot it undoes. watch is told how long each step took, and may be nil.
func (d *Decider) Decide(ctx context.Context, q *framework.Queued, watch *Watch) (out Decision) {
	rotation := d.rotation
	defer func() {
		// A plugin of a third party may panic; that is this attempt's misfortune and nobody else's.
		if p := recover(); p != nil {
			point, plugin := d.fw.Running()
			out = Decision{Err: fmt.Errorf("panic in %s of plugin %s: %v\n%s", point, plugin, p, debug.Stack())}
		}
		if len(out.Placed) == 0 {
			d.rotation = rotation
		}
	}()

	if q.IsGroup() {
		return d.group(ctx, q, watch)
	}
	pod, state := q.Pods[0], framework.NewCycleState()
	w := watch.pod(pod, state)
	node, fail, err := d.place(ctx, state, pod, true, w)
	w.decided(node, fail)
	switch {
	case err != nil:
		return Decision{Err: fmt.Errorf("pod %s: %w", pod.Name(), err)}
	case fail == nil:
		return Decision{Placed: []framework.Assignment{{Pod: pod, Node: node, State: state}}}
	}
	d.spare = nil
	return Decision{
		Victims: fail.victims, Failed: []Failure{fail.failure(fail.message(""))}, Plugins: sortedKeys(fail.plugins), Pending: sortedKeys(fail.pending),
	}
}

func union(a, b map[string]struct{}) map[string]struct{} {
	if a == nil {
		a = make(map[string]struct{}, len(b))
	}
	maps.Copy(a, b)
	return a
}

func sortedKeys(m map[string]struct{}) []string {
	if len(m) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}
