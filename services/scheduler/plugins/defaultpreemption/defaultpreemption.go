// Package defaultpreemption makes room for a pod that fits nowhere by taking pods of lower priority off one node: as few
// and as unimportant ones as will do. It chooses without chance, and takes them away beside the cycle.
package defaultpreemption

import (
	"context"
	"fmt"
	"slices"
	"sync"

	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
	"trireme.dev/services/scheduler/framework"
)

// Name of the plugin.
const Name = "DefaultPreemption"

// Args are Kubernetes' DefaultPreemptionArgs. On how many of the nodes that could be made to fit the search ends, once one
// is among them that breaks no disruption budget: the larger of the two.
type Args struct {
	// MinCandidateNodesPercentage of the nodes that removing pods could help: 0..100.
	MinCandidateNodesPercentage int32 `json:"minCandidateNodesPercentage"`
	// MinCandidateNodesAbsolute number of nodes.
	MinCandidateNodesAbsolute int32 `json:"minCandidateNodesAbsolute"`
}

// DefaultArgs returns what applies where nothing is configured.
func DefaultArgs() *Args {
	return &Args{MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 100}
}

// Validate checks the arguments by themselves.
func (a *Args) Validate() error {
	switch {
	case a.MinCandidateNodesPercentage < 0 || a.MinCandidateNodesPercentage > 100:
		return fmt.Errorf("minCandidateNodesPercentage: %d is not in 0..100", a.MinCandidateNodesPercentage)
	case a.MinCandidateNodesAbsolute < 0:
		return fmt.Errorf("minCandidateNodesAbsolute: %d is negative", a.MinCandidateNodesAbsolute)
	case a.MinCandidateNodesPercentage == 0 && a.MinCandidateNodesAbsolute == 0:
		return fmt.Errorf("minCandidateNodesPercentage and minCandidateNodesAbsolute: both are 0")
	}
	return nil
}

// Plugin is a PostFilter and a PreEnqueue. Make it with New.
type Plugin struct {
	handle framework.Handle
	args   Args
	found  memory
	// unknown is reused from search to search.
	unknown []int32

	mu sync.Mutex
	// making are the pods for which room is being made, by uid; they are not tried meanwhile.
	making map[string]struct{}
}

// New returns the plugin.
func New(h framework.Handle, args *Args) (*Plugin, error) {
	if err := args.Validate(); err != nil {
		return nil, err
	}
	return &Plugin{handle: h, args: *args, making: make(map[string]struct{})}, nil
}

// Name implements framework.Plugin.
func (*Plugin) Name() string { return Name }

var making = framework.NewStatus(framework.UnschedulableAndUnresolvable, "waiting for the preemption for this pod to be finished")

// PreEnqueue implements framework.PreEnqueuePlugin.
func (p *Plugin) PreEnqueue(pod *framework.PodInfo) *framework.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.making[pod.UID()]; ok {
		return making
	}
	return nil
}

// EventsToRegister implements framework.EnqueueExtensions.
func (p *Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{{
		Event: framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete},
		Hint: func(pod *framework.PodInfo, _ *framework.Change) framework.Hint {
			if p.PreEnqueue(pod) == nil {
				return framework.Queue
			}
			return framework.QueueSkip
		},
	}}
}

const (
	noVictims  = "No preemption victims found for incoming pod"
	notHelpful = "Preemption is not helpful for scheduling"
)

// PostFilter implements framework.PostFilterPlugin.
func (p *Plugin) PostFilter(ctx context.Context, state *framework.CycleState, pod *framework.PodInfo, rejected *framework.Verdicts) (*framework.PostFilterResult, *framework.Status) {
	if why := p.ineligible(pod, rejected); why != "" {
		return nil, framework.NewStatus(framework.Unschedulable, "preemption: not eligible due to "+why)
	}
	s := search{plugin: p, state: state, pod: pod, snapshot: p.handle.Snapshot(), budgets: p.budgets(), open: rejected.Resolvable()}
	best, err := s.run()
	if err != nil {
		return nil, framework.AsStatus(err)
	}
	if best == nil {
		// Room that was being made somewhere is of no use any more.
		return &framework.PostFilterResult{Clear: true}, framework.NewStatus(framework.Unschedulable, s.message(rejected.Count()))
	}
	p.makeRoom(ctx, pod, best)
	return &framework.PostFilterResult{NominatedNode: best.node.Name(), Victims: best.victims}, nil
}

// ineligible says why a pod may not preempt; empty where it may.
func (p *Plugin) ineligible(pod *framework.PodInfo, rejected *framework.Verdicts) string {
	if pod.Pod.GetSpec().GetPreemptionPolicy() == "Never" {
		return "preemptionPolicy=Never."
	}
	name := p.handle.NominatedNode(pod.UID())
	if name == "" {
		name = pod.Pod.GetStatus().GetNominatedNodeName()
	}
	node := p.handle.Snapshot().Node(name)
	if node == nil || rejected.Status(node.Index).Code() == framework.UnschedulableAndUnresolvable {
		return ""
	}
	for _, other := range node.Pods {
		if other.Priority() < pod.Priority() && other.Preempted() {
			return "a terminating pod on the nominated node."
		}
	}
	return ""
}

// budgets that preemption spares where it can.
func (p *Plugin) budgets() []*policyv1.PodDisruptionBudget {
	budgets, ok := framework.Objects[*policyv1.PodDisruptionBudget](p.handle, "PodDisruptionBudget")
	if !ok {
		return nil
	}
	return budgets.List("", nil)
}

// makeRoom takes the victims away, the last of them after the others. Until then the pod is not tried; then it waits for
// the last one's end, which no event can come too early for.
func (p *Plugin) makeRoom(ctx context.Context, pod *framework.PodInfo, c *candidate) {
	for _, other := range slices.Clone(p.handle.Nominated(c.node.Name())) {
		// Room that was being made here for pods that matter less is taken from them.
		if other.Priority() < pod.Priority() && other.UID() != pod.UID() {
			p.handle.Nominate(other, "")
			p.handle.Activate(other)
		}
	}
	if p.handle.Evictor() == nil || len(c.victims) == 0 {
		return
	}
	victims, node := slices.Clone(c.victims), c.node.Name()
	p.mu.Lock()
	p.making[pod.UID()] = struct{}{}
	p.mu.Unlock()
	// What was begun is finished even where the scheduler stops leading meanwhile: half of it would be worth nothing.
	go p.evictAll(context.WithoutCancel(ctx), pod, node, victims)
}

func (p *Plugin) evictAll(ctx context.Context, pod *framework.PodInfo, node string, victims []*framework.PodInfo) {
	last := len(victims) - 1
	var (
		all    sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	for _, v := range victims[:last] {
		all.Go(func() {
			if err := p.evict(ctx, pod, node, v); err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	all.Wait()
	p.mu.Lock()
	delete(p.making, pod.UID())
	p.mu.Unlock()
	if failed == nil {
		failed = p.evict(ctx, pod, node, victims[last])
	}
	if failed != nil {
		p.handle.Event(pod.Pod, "Warning", "FailedPreemption", failed.Error())
		p.handle.Activate(pod)
	}
}

// evict takes one victim away, by the way that its state allows: one that is not bound yet is only let go of.
func (p *Plugin) evict(ctx context.Context, pod *framework.PodInfo, node string, victim *framework.PodInfo) error {
	message := fmt.Sprintf("Preempted by pod %s on node %s", pod.UID(), node)
	if w := p.handle.WaitingPod(victim.UID()); w != nil {
		w.Reject(Name, "preempted")
		return nil
	}
	if p.handle.CancelBinding(victim.UID(), "preempted") {
		return nil
	}
	if err := p.handle.Evictor().Evict(ctx, victim, p.handle.Profile()+": preempting to accommodate a higher priority pod"); err != nil {
		return err
	}
	p.handle.Event(victim.Pod, "Normal", "Preempted", message)
	return nil
}
