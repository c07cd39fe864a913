package explain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/rpc"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/queue"
)

// Explain implements schedulingv1.SchedulerServiceServer.
func (x *Explainer) Explain(ctx context.Context, req *schedulingv1.ExplainRequest) (*schedulingv1.ExplainResponse, error) {
	if err := x.allowed(ctx); err != nil {
		return nil, err
	}
	pod, ok := x.Pods.Get(req.GetNamespace(), req.GetName())
	if !ok {
		return nil, apierr.NotFound("Pod", req.GetNamespace()+"/"+req.GetName())
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	a := &answer{x: x, now: time.Now(), max: req.GetMaxNodes(), out: &schedulingv1.ExplainResponse{}}
	a.s = situation{pod: pod, now: a.now}
	for _, p := range x.Profiles {
		a.s.profiles = append(a.s.profiles, p.SchedulerName)
	}
	if err := a.fill(ctx); err != nil {
		return nil, err
	}
	a.out.State, a.out.NodeName, a.out.Summary = a.s.state, a.s.node, summarize(&a.s)
	return a.out, nil
}

// allowed lets people who may everything in, and the gateway, which has asked that already.
func (x *Explainer) allowed(ctx context.Context) error {
	if caller, ok := rpc.CallerFrom(ctx); ok && caller.User != "system:trireme-apiserver" && caller.User != "system:anonymous" &&
		!slices.Contains(caller.Groups, "system:masters") {
		return apierr.Forbidden("", "", caller.User+" is not in system:masters, whose business this is")
	}
	if !x.Leads() {
		return apierr.Unavailable("this scheduler does not lead")
	}
	return nil
}

// answer is one explanation in the making.
type answer struct {
	x   *Explainer
	now time.Time
	max int32
	s   situation
	out *schedulingv1.ExplainResponse
}

func (a *answer) fill(ctx context.Context) error {
	pod := a.s.pod
	uid, phase := pod.GetMetadata().GetUid(), pod.GetStatus().GetPhase()
	a.s.nominated = a.x.Nominator.Node(uid)
	a.out.NominatedNodeName = a.s.nominated
	profile, ours := a.x.profileOf(pod)
	bound := pod.GetSpec().GetNodeName()
	where, waits := a.x.Queue.Where(uid)
	if !waits && bound == "" {
		a.s.node = a.x.Cache.NodeOf(uid)
	}
	switch {
	case phase == "Succeeded" || phase == "Failed":
		a.s.state, a.s.node = schedulingv1.PodState_POD_STATE_ENDED, bound
		return nil
	case bound != "":
		a.s.state, a.s.node = schedulingv1.PodState_POD_STATE_SCHEDULED, bound
	case pod.GetMetadata().GetDeletionTimestamp() != nil:
		a.s.state = schedulingv1.PodState_POD_STATE_ENDED
		return nil
	case !ours:
		a.s.state = schedulingv1.PodState_POD_STATE_FOREIGN
		return nil
	case !waits:
		a.s.state = schedulingv1.PodState_POD_STATE_IN_FLIGHT
	default:
		a.s.state = stateOf(where.Part)
		a.queue(&where)
	}
	if key, ok := framework.GroupOf(pod); ok {
		a.group(key)
	}
	if !waits {
		return nil
	}
	if where.Part == queue.PartInFlight {
		a.s.node = a.x.Cache.NodeOf(uid)
	}
	a.attempts(&where)
	if a.s.state == schedulingv1.PodState_POD_STATE_GATED {
		return nil // whether it fits is not what matters
	}
	return a.judge(ctx, profile, &where)
}

func stateOf(part string) schedulingv1.PodState {
	switch part {
	case queue.PartActive:
		return schedulingv1.PodState_POD_STATE_ACTIVE
	case queue.PartBackoff, queue.PartError:
		return schedulingv1.PodState_POD_STATE_BACKOFF
	case queue.PartGated:
		return schedulingv1.PodState_POD_STATE_GATED
	case queue.PartInFlight:
		return schedulingv1.PodState_POD_STATE_IN_FLIGHT
	}
	return schedulingv1.PodState_POD_STATE_UNSCHEDULABLE
}

// queue tells where the pod waits.
func (a *answer) queue(w *queue.Where) {
	a.out.AttemptCount = int32(w.Attempts)
	for _, e := range w.Wakes {
		a.out.Wakes = append(a.out.Wakes, &schedulingv1.WakeEvent{Event: e.Event, Plugin: e.Plugin})
	}
	if w.Part == queue.PartInFlight {
		return
	}
	a.s.ahead, a.s.until = w.Ahead, w.Until
	a.out.Queue = &schedulingv1.QueuePosition{Ahead: int32(w.Ahead), Since: timestamppb.New(w.Since)}
	if !w.Until.IsZero() {
		a.out.Queue.NextRetry = timestamppb.New(w.Until)
	}
	if w.Gate != nil {
		a.s.gate, a.s.gatePlugin = w.Gate.Message(), w.Gate.Plugin()
		a.out.Queue.Gate, a.out.Queue.GatePlugin = a.s.gate, a.s.gatePlugin
	}
}

// attempts tells of those that are remembered.
func (a *answer) attempts(w *queue.Where) {
	uid := a.s.pod.GetMetadata().GetUid()
	for i, t := range a.x.Attempts.of(&w.Entity, uid) {
		out := &schedulingv1.Attempt{
			Number: int32(t.number), Time: timestamppb.New(t.begun), Took: durationpb.New(t.took), Plugins: t.plugins,
		}
		switch f := t.of(uid); {
		case t.err != nil:
			out.Message = firstLine(t.err.Error())
			if i == 0 {
				a.s.failure = out.Message
			}
		case f != nil:
			out.Message = f.Message
			out.Reasons = reasonCounts(causesOf(f.Rejections))
			if f.NominatedNode != "" {
				out.Preemption = fmt.Sprintf("makes room on node %s: %s", f.NominatedNode, few(names(f.Victims)))
			}
		default:
			continue // it came to the group later
		}
		a.out.Attempts = append(a.out.Attempts, out)
	}
}

// judge tells what would come of an attempt now.
func (a *answer) judge(ctx context.Context, profile framework.Profile, w *queue.Where) error {
	t, err := a.x.try(ctx, profile)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(w.Entity.Pods, func(p *framework.PodInfo) bool { return p.UID() == a.s.pod.GetMetadata().GetUid() })
	if i < 0 {
		return nil // it is being held back just now
	}
	pod, begun := w.Entity.Pods[i], time.Now()
	if w.Entity.IsGroup() && a.s.group != nil {
		a.s.judged, err = a.judgeGroup(t, &w.Entity, pod)
		a.s.leaving = a.leaving(t, w.Entity.Pods...)
	} else {
		a.s.judged, err = t.judge(pod)
	}
	if err != nil {
		a.s.failure = firstLine(err.Error())
		return nil
	}
	j := a.s.judged
	now := &schedulingv1.Attempt{Time: timestamppb.New(a.now), Reasons: j.counts(), Nodes: j.clip(a.max)}
	for _, c := range j.causes {
		if c.plugin != "" && !slices.Contains(now.Plugins, c.plugin) {
			now.Plugins = append(now.Plugins, c.plugin)
		}
	}
	switch {
	case len(j.victims) > 0:
		now.Preemption = "would do without " + few(j.victims)
	case len(j.fits) > 0:
		now.NodeName = j.fits[0].GetNodeName()
	case !w.Entity.IsGroup():
		a.preempt(t, j, pod, now)
		if node, at, ok := t.start(j, pod, a.x.Pods); ok {
			a.out.PredictedNode, a.out.PredictedStart = node, timestamppb.New(at)
		}
	}
	now.Took = durationpb.New(time.Since(begun))
	a.out.Attempts = slices.Insert(a.out.Attempts, 0, now)
	return nil
}

// preempt tells whether other pods could give way, or do so already.
func (a *answer) preempt(t *trial, j *judgement, pod *framework.PodInfo, now *schedulingv1.Attempt) {
	a.s.leaving = a.leaving(t, pod)
	result, st := t.fw.RunPostFilter(t.ctx, j.state, pod, &j.verdicts)
	now.Preemption = st.Message()
	if result == nil || result.NominatedNode == "" || !st.IsSuccess() {
		return
	}
	j.room, j.victims = result.NominatedNode, names(result.Victims)
	now.Preemption = fmt.Sprintf("node %s would do without %s", result.NominatedNode, few(j.victims))
}

// leaving are the pods that end on the nodes on which room is being made for pods.
func (a *answer) leaving(t *trial, pods ...*framework.PodInfo) []string {
	var out []string
	seen := map[string]struct{}{}
	for _, pod := range pods {
		node := t.snapshot.Node(a.x.Nominator.Node(pod.UID()))
		if node == nil {
			continue
		}
		if _, ok := seen[node.Name()]; ok {
			continue
		}
		seen[node.Name()] = struct{}{}
		for _, p := range node.Pods {
			if p.Terminating() && p.Priority() < pod.Priority() {
				out = append(out, p.Name())
			}
		}
	}
	return out
}
