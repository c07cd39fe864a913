// Package defaultpreemption makes room for a pod that fits nowhere by taking pods of lower priority off one node, and for a
// group by taking them off the nodes of one placement: as few and as unimportant ones as will do. It chooses without chance,
// and takes them away beside the cycle.
package defaultpreemption

import (
	"context"
	"fmt"
	"slices"
	"sync"

	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
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

// enough is on how many candidates of so many the search ends.
func (a *Args) enough(of int) int {
	return max(of*int(a.MinCandidateNodesPercentage)/100, int(a.MinCandidateNodesAbsolute), 1)
}

// Plugin is a PostFilter and a PodGroupPostFilter, and a PreEnqueue of pods and groups. Make it with New.
type Plugin struct {
	handle framework.Handle
	args   Args
	found  memory
	// unknown is reused from search to search.
	unknown []int32

	mu sync.Mutex
	// making are the pods for which room is being made, by uid, and the groups; they are not tried meanwhile.
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
	if p.isMaking(pod.UID()) {
		return making
	}
	return nil
}

func (p *Plugin) isMaking(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.making[id]
	return ok
}

// EventsToRegister implements framework.EnqueueExtensions.
func (p *Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{{
		Event: framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Delete},
		Hint: func(pod *framework.PodInfo, _ *framework.Change) framework.Hint {
			key, grouped := pod.Group()
			if p.isMaking(pod.UID()) || grouped && p.isMaking(idOf(key)) {
				return framework.QueueSkip
			}
			return framework.Queue
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
	s.rules = newRules(s.budgets, p.groups(), s.snapshot)
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
	node := p.handle.Snapshot().Node(p.nominatedNode(pod))
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

// nominatedNode is where room is being made for a pod; empty for nowhere.
func (p *Plugin) nominatedNode(pod *framework.PodInfo) string {
	if name := p.handle.NominatedNode(pod.UID()); name != "" {
		return name
	}
	return pod.Pod.GetStatus().GetNominatedNodeName()
}

// budgets that preemption spares where it can.
func (p *Plugin) budgets() []*policyv1.PodDisruptionBudget {
	budgets, ok := framework.Objects[*policyv1.PodDisruptionBudget](p.handle, "PodDisruptionBudget")
	if !ok {
		return nil
	}
	return budgets.List("", nil)
}

// makeRoom has the victims of a candidate taken away.
func (p *Plugin) makeRoom(ctx context.Context, pod *framework.PodInfo, c *candidate) {
	p.clearNominations(c.node.Name(), pod)
	p.takeAway(ctx, preemptor{
		id: pod.UID(), pods: []*framework.PodInfo{pod}, what: fmt.Sprintf("pod %s on node %s", pod.UID(), c.node.Name()),
	}, c.victims)
}

// clearNominations takes room that was being made on the node from pods that matter less than pod.
func (p *Plugin) clearNominations(node string, pod *framework.PodInfo) {
	for _, other := range slices.Clone(p.handle.Nominated(node)) {
		if other.Priority() < pod.Priority() && other.UID() != pod.UID() {
			p.handle.Nominate(other, "")
			p.handle.Activate(other)
		}
	}
}

// preemptor is who pods give way to: a pod, or the pods of a group.
type preemptor struct {
	id   string // in making
	pods []*framework.PodInfo
	what string // for people
}

// takeAway takes the victims away, the last of them after the others; groups that go as a whole say so before. Until then the
// preemptor is not tried; then it waits for the last one's end, which no event can come too early for.
func (p *Plugin) takeAway(ctx context.Context, by preemptor, victims []framework.Member) {
	if p.handle.Evictor() == nil || len(victims) == 0 {
		return
	}
	p.mu.Lock()
	p.making[by.id] = struct{}{}
	p.mu.Unlock()
	// What was begun is finished even where the scheduler stops leading meanwhile: half of it would be worth nothing.
	ctx = context.WithoutCancel(ctx)
	wholes, last := p.wholeGroups(victims), len(victims)-1
	p.handle.Beside(by.pods[0], func() error {
		for _, g := range wholes {
			if err := p.handle.Evictor().MarkGroup(ctx, g, p.reason()); err != nil {
				return err
			}
		}
		return p.evictAll(ctx, by, victims[:last])
	}, func(err error) {
		p.mu.Lock()
		delete(p.making, by.id)
		p.mu.Unlock()
		if err != nil {
			p.failed(by, err)
			return
		}
		p.handle.Beside(by.pods[0], func() error { return p.evict(ctx, by, victims[last].Pod) }, func(err error) {
			if err != nil {
				p.failed(by, err)
			}
		})
	})
}

// wholeGroups are those of the victims' groups that go as a whole.
func (p *Plugin) wholeGroups(victims []framework.Member) []*schedulingv1.PodGroup {
	groups := p.groups()
	var out []*schedulingv1.PodGroup
	seen := map[framework.GroupKey]bool{}
	for _, v := range victims {
		if key, ok := v.Pod.Group(); ok && !seen[key] && groups.whole(key) {
			seen[key] = true
			out = append(out, groups.get(key))
		}
	}
	return out
}

// reason is why victims go, in the words of Kubernetes.
func (p *Plugin) reason() string {
	return p.handle.Profile() + ": preempting to accommodate a higher priority pod"
}

// failed has the preemptor try again, now that room was not made.
func (p *Plugin) failed(by preemptor, err error) {
	p.handle.Event(by.pods[0].Pod, "Warning", "FailedPreemption", err.Error())
	p.handle.Activate(by.pods...)
}

// maxEvictions are under way at once for one preemptor.
const maxEvictions = 32

// evictAll takes the victims away beside each other, and returns the last error.
func (p *Plugin) evictAll(ctx context.Context, by preemptor, victims []framework.Member) error {
	var (
		all    sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	room := make(chan struct{}, maxEvictions)
	for _, v := range victims {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			if err := p.evict(ctx, by, v.Pod); err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return failed
}

// evict takes one victim away, by the way that its state allows: one that is not bound yet is only let go of.
func (p *Plugin) evict(ctx context.Context, by preemptor, victim *framework.PodInfo) error {
	if w := p.handle.WaitingPod(victim.UID()); w != nil {
		w.Reject(Name, "preempted")
		return nil
	}
	if p.handle.CancelBinding(victim.UID(), "preempted") {
		return nil
	}
	if err := p.handle.Evictor().Evict(ctx, victim, p.reason()); err != nil {
		return err
	}
	p.handle.Event(victim.Pod, "Normal", "Preempted", "Preempted by "+by.what)
	return nil
}
