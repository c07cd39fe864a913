package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/rpc"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
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
	a.out.NominatedNodeName = a.x.Nominator.Node(uid)
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

// group tells how the pod's group stands; nothing of one that is no gang and has no say.
func (a *answer) group(key framework.GroupKey) {
	object, exists := a.x.Groups.Get(key.Namespace, key.Name)
	q := framework.Queued{GroupKey: key}
	if exists {
		q.Group = object
	}
	members := a.x.Queue.GroupMembers(key)
	held := 0
	for _, m := range members {
		if w, ok := a.x.Queue.Where(m.UID()); ok && len(m.Pod.GetSpec().GetSchedulingGates()) > 0 && w.Part == queue.PartGated {
			held++
		}
	}
	g := &group{
		name: key.String(), exists: exists, min: q.MinCount(), waiting: len(members), scheduled: a.x.Cache.Scheduled(key), held: held, fit: -1,
	}
	a.out.PodGroup = &schedulingv1.PodGroupExplanation{
		Name: key.Name, Exists: exists, MinCount: int32(g.min), Waiting: int32(g.waiting), Scheduled: int32(g.scheduled),
	}
	if !exists || object.GetSpec().GetSchedulingPolicy().GetGang() != nil {
		a.s.group = g
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
			for _, r := range f.Rejections {
				for _, reason := range r.Status.Reasons() {
					out.Reasons = append(out.Reasons, &schedulingv1.ReasonCount{
						Count: int32(r.Nodes), Plugin: r.Status.Plugin(), Reason: reason, Resolvable: r.Status.Code() == framework.Unschedulable,
					})
				}
			}
			out.Reasons = merged(out.Reasons)
			if f.NominatedNode != "" {
				out.Preemption = fmt.Sprintf("makes room on node %s: %s", f.NominatedNode, few(names(f.Victims)))
			}
		default:
			continue // it came to the group later
		}
		a.out.Attempts = append(a.out.Attempts, out)
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func names(pods []framework.Member) []string {
	var out []string
	for _, m := range pods {
		out = append(out, m.Pod.Name())
	}
	return out
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
	pod := w.Entity.Pods[i]
	begun := time.Now()
	j, err := t.judge(pod)
	if err != nil {
		a.s.failure = firstLine(err.Error())
		return nil
	}
	now := &schedulingv1.Attempt{Time: timestamppb.New(a.now), Reasons: j.counts(), Nodes: j.clip(a.max)}
	for _, c := range j.causes {
		if c.plugin != "" && !slices.Contains(now.Plugins, c.plugin) {
			now.Plugins = append(now.Plugins, c.plugin)
		}
	}
	if len(j.fits) > 0 {
		now.NodeName = j.fits[0].GetNodeName()
	}
	a.s.judged = a.judged(t, j, pod)
	switch {
	case w.Entity.IsGroup() && a.s.group != nil:
		about, subject, err := a.wholeGroup(t, &w.Entity)
		if err != nil {
			return err
		}
		if about != nil {
			a.s.judged = a.judged(t, about, subject)
			if subject != pod {
				a.s.group.example = subject.Name()
			}
			a.preemptForGroup(t, &w.Entity, now)
		}
	case len(j.fits) == 0:
		a.preempt(t, j, pod, now)
		if node, at, ok := t.start(j, pod, a.x.Pods); ok {
			a.out.PredictedNode, a.out.PredictedStart = node, timestamppb.New(at)
		}
	}
	now.Took = durationpb.New(time.Since(begun))
	a.out.Attempts = slices.Insert(a.out.Attempts, 0, now)
	return nil
}

func (a *answer) judged(t *trial, j *judgement, pod *framework.PodInfo) *judged {
	out := &judged{nodes: j.nodes, causes: j.causes, shortage: j.shortage}
	for _, v := range j.fits {
		out.fits = append(out.fits, v.GetNodeName())
	}
	out.unmatched = unmatched(t.snapshot.Nodes(), pod.Pod.GetSpec())
	return out
}

// unmatched are the labels of a node selector that no node has, as key=value.
func unmatched(nodes []*framework.NodeInfo, spec *corev1.PodSpec) []string {
	var out []string
	for key, value := range spec.GetNodeSelector() {
		if !slices.ContainsFunc(nodes, func(n *framework.NodeInfo) bool { return n.Labels()[key] == value }) {
			out = append(out, key+"="+value)
		}
	}
	slices.Sort(out)
	return out
}

// preempt tells whether other pods could give way.
func (a *answer) preempt(t *trial, j *judgement, pod *framework.PodInfo, now *schedulingv1.Attempt) {
	result, st := t.fw.RunPostFilter(t.ctx, j.state, pod, &j.verdicts)
	now.Preemption = st.Message()
	if result == nil || result.NominatedNode == "" || !st.IsSuccess() {
		return
	}
	a.s.judged.room, a.s.judged.victims = result.NominatedNode, names(result.Victims)
	now.Preemption = fmt.Sprintf("node %s would do without %s", result.NominatedNode, few(a.s.judged.victims))
}

// preemptForGroup tells whether other pods could give way to a group.
func (a *answer) preemptForGroup(t *trial, q *framework.Queued, now *schedulingv1.Attempt) {
	d := t.decider.Decide(t.ctx, q, nil)
	if len(d.Victims) == 0 {
		return
	}
	a.s.judged.victims = names(d.Victims)
	now.Preemption = "the group would fit without " + few(a.s.judged.victims)
}

// wholeGroup places the members one after the other, within each of the group's placements, and returns the judgement of the
// first that fits nowhere in the best of them; none where enough fit.
func (a *answer) wholeGroup(t *trial, q *framework.Queued) (*judgement, *framework.PodInfo, error) {
	placements, st := t.fw.Placements(framework.NewCycleState(), q, &t.snapshot.Snapshot)
	if !st.IsSuccess() {
		a.s.failure = st.Message()
		return nil, nil, nil
	}
	restricted := len(placements) > 0 && placements[0].Positions != nil
	if len(placements) == 0 {
		placements = []*framework.Placement{nil}
	}
	if restricted {
		a.s.group.domains = len(placements)
	}
	var (
		best    *judgement
		subject *framework.PodInfo
	)
	for _, p := range placements {
		t.snapshot.Within(p)
		fit, failing, err := t.fill(q)
		if err != nil {
			return nil, nil, err
		}
		if fit.count > a.s.group.fit {
			a.s.group.fit, best, subject = fit.count, fit.judgement, failing
		}
		if restricted {
			v := &schedulingv1.PlacementVerdict{Name: p.Name, Fitted: int32(fit.count)}
			if fit.judgement != nil && fit.count+q.Scheduled < q.MinCount() {
				v.Message = failing.Name() + ": " + inShort(fit.judgement)
			}
			a.out.PodGroup.Placements = append(a.out.PodGroup.Placements, v)
		}
	}
	t.snapshot.Within(nil)
	return best, subject, nil
}

// inShort is a judgement in one line.
func inShort(j *judgement) string {
	if len(j.causes) == 0 {
		return "no nodes"
	}
	out := finding(&j.causes[0], j.nodes, true)
	for i := range j.causes[1:] {
		out += ", " + finding(&j.causes[i+1], j.nodes, false)
	}
	return out
}

// filled is how many of a group found places, and why the first of the others did not.
type filled struct {
	count     int
	judgement *judgement
}

// fill places the members of a group in the snapshot as long as they fit, and takes them away again.
func (t *trial) fill(q *framework.Queued) (out filled, failing *framework.PodInfo, err error) {
	var placed []framework.Assignment
	defer func() {
		for _, a := range slices.Backward(placed) {
			if undo := t.snapshot.Forget(a.Pod, a.Node); undo != nil {
				err = undo
			}
		}
	}()
	hopeless := map[string]struct{}{} // signatures
	var signature framework.Signature
	for _, pod := range q.Pods {
		signed := t.fw.Sign(pod, &signature)
		if _, ok := hopeless[string(signature.Bytes())]; signed && ok {
			continue
		}
		d := t.decider.Decide(t.ctx, &framework.Queued{Pods: []*framework.PodInfo{pod}}, nil)
		if d.Err != nil {
			return out, nil, d.Err
		}
		if len(d.Placed) == 0 {
			if signed {
				hopeless[string(signature.Bytes())] = struct{}{}
			}
			if failing == nil {
				if out.judgement, err = t.judge(pod); err != nil {
					return out, nil, err
				}
				failing = pod
			}
			continue
		}
		t.snapshot.Assume(pod, d.Placed[0].Node)
		placed = append(placed, framework.Assignment{Pod: pod, Node: d.Placed[0].Node})
		out.count++
	}
	return out, failing, nil
}
