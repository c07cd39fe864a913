package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cycle"
)

// mirrorAnnotation marks the image of a pod that its node has from elsewhere.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// Plan implements schedulingv1.SchedulerServiceServer.
func (x *Explainer) Plan(ctx context.Context, req *schedulingv1.PlanRequest) (*schedulingv1.PlanResponse, error) {
	if err := x.allowed(ctx); err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	p := &plan{x: x, groups: map[framework.GroupKey]*schedulingv1.PodGroup{}, from: map[string]string{}, trials: map[string]*trial{}, out: &schedulingv1.PlanResponse{}}
	if err := p.prepare(ctx, req); err != nil {
		return nil, err
	}
	for i := range p.entities {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := p.place(ctx, &p.entities[i]); err != nil {
			return nil, err
		}
	}
	return p.out, nil
}

// plan is one what-if in the making: a copy of the cluster, changed as asked for, and what is to be placed there, in order.
type plan struct {
	x        *Explainer
	groups   map[framework.GroupKey]*schedulingv1.PodGroup // of the request
	from     map[string]string                             // node that a pod leaves, by uid
	entities []framework.Queued
	// base is the copy; trials are deciders over it by profile.
	base   *trial
	trials map[string]*trial
	out    *schedulingv1.PlanResponse
}

func (p *plan) prepare(ctx context.Context, req *schedulingv1.PlanRequest) error {
	var err error
	if p.base, err = p.x.try(ctx, p.x.Profiles[0]); err != nil {
		return err
	}
	p.trials[p.x.Profiles[0].SchedulerName] = p.base
	for i, g := range req.GetPodGroups() {
		meta := g.GetMetadata()
		if meta.GetName() == "" {
			return invalid(fmt.Sprintf("podGroups[%d].metadata.name", i), "Required value")
		}
		p.groups[framework.GroupKey{Namespace: meta.GetNamespace(), Name: meta.GetName()}] = g
	}
	if err := p.addNodes(req.GetAddNodes()); err != nil {
		return err
	}
	moved, err := p.drain(req.GetDrainNodes())
	if err != nil {
		return err
	}
	p.add(moved)
	if req.GetWaiting() {
		for _, q := range p.x.Queue.Waiting() {
			// Those that are assumed are where they go to already.
			p.add(slices.DeleteFunc(q.Pods, func(pod *framework.PodInfo) bool { return p.x.Cache.NodeOf(pod.UID()) != "" }))
		}
	}
	asked, err := podsOf(req.GetPods())
	if err != nil {
		return err
	}
	p.add(asked)
	return nil
}

func invalid(field, message string) error {
	return apierr.Invalid("", "", apierr.Violation{Field: field, Message: message})
}

// podsOf derives the pods of a request. They are new, whatever they say.
func podsOf(pods []*corev1.Pod) ([]*framework.PodInfo, error) {
	var out []*framework.PodInfo
	for i, given := range pods {
		pod := proto.CloneOf(given)
		meta := pod.GetMetadata()
		switch {
		case meta.GetName() == "":
			return nil, invalid(fmt.Sprintf("pods[%d].metadata.name", i), "Required value")
		case pod.GetSpec() == nil:
			return nil, invalid(fmt.Sprintf("pods[%d].spec", i), "Required value")
		case pod.GetSpec().GetNodeName() != "":
			return nil, invalid(fmt.Sprintf("pods[%d].spec.nodeName", i), "it is on a node already")
		}
		meta.Uid = fmt.Sprintf("planned-%d", i)
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			return nil, invalid(fmt.Sprintf("pods[%d]", i), err.Error())
		}
		out = append(out, info)
	}
	return out, nil
}

func (p *plan) addNodes(nodes []*corev1.Node) error {
	snapshot := p.base.snapshot
	for i, n := range nodes {
		name := n.GetMetadata().GetName()
		switch {
		case name == "":
			return invalid(fmt.Sprintf("addNodes[%d].metadata.name", i), "Required value")
		case snapshot.Node(name) != nil:
			return invalid(fmt.Sprintf("addNodes[%d].metadata.name", i), fmt.Sprintf("there is a node %s already", name))
		}
		var info framework.NodeInfo
		if err := info.SetNode(n); err != nil {
			return invalid(fmt.Sprintf("addNodes[%d].status.allocatable", i), err.Error())
		}
		snapshot.Put(&info)
	}
	snapshot.Settle()
	return nil
}

// drain takes nodes away and returns the pods that have to go elsewhere, the important ones first. Those of DaemonSets, and
// those that have ended, do not.
func (p *plan) drain(nodes []string) ([]*framework.PodInfo, error) {
	snapshot := p.base.snapshot
	var out []*framework.PodInfo
	for _, name := range slices.Compact(slices.Sorted(slices.Values(nodes))) {
		n := snapshot.Node(name)
		if n == nil {
			return nil, apierr.NotFound("Node", name)
		}
		for _, pod := range n.Pods {
			if stays(pod.Pod) {
				continue
			}
			moved := proto.CloneOf(pod.Pod)
			moved.GetSpec().NodeName, moved.Status = nil, nil
			info, err := framework.NewPodInfo(moved)
			if err != nil {
				return nil, err
			}
			p.from[info.UID()] = name
			out = append(out, info)
		}
		snapshot.Drop(name)
	}
	snapshot.Settle()
	slices.SortStableFunc(out, func(a, b *framework.PodInfo) int {
		return cmp.Or(cmp.Compare(b.Priority(), a.Priority()), strings.Compare(a.Name(), b.Name()))
	})
	return out, nil
}

// stays reports whether a pod has nowhere else to go.
func stays(pod *corev1.Pod) bool {
	if pod.GetMetadata().GetAnnotations()[mirrorAnnotation] != "" || pod.GetMetadata().GetDeletionTimestamp() != nil {
		return true
	}
	return slices.ContainsFunc(pod.GetMetadata().GetOwnerReferences(), func(o *metav1.OwnerReference) bool {
		return o.GetController() && o.GetKind() == "DaemonSet"
	})
}

// add appends pods to what is to be placed; those of a gang come together, where the first of them is.
func (p *plan) add(pods []*framework.PodInfo) {
	for _, pod := range pods {
		key, grouped := pod.Group()
		q := framework.Queued{Pods: []*framework.PodInfo{pod}}
		if grouped {
			q.Group = p.groupOf(key)
			grouped = q.Group == nil || q.Group.GetSpec().GetSchedulingPolicy().GetGang() != nil
		}
		if !grouped {
			q.Group = nil
			p.entities = append(p.entities, q)
			continue
		}
		q.GroupKey = key
		i := slices.IndexFunc(p.entities, func(e framework.Queued) bool { return e.GroupKey == key })
		if i < 0 {
			p.entities = append(p.entities, q)
			continue
		}
		p.entities[i].Pods = append(p.entities[i].Pods, pod)
	}
}

func (p *plan) groupOf(key framework.GroupKey) *schedulingv1.PodGroup {
	if g := p.groups[key]; g != nil {
		return g
	}
	if g, ok := p.x.Groups.Get(key.Namespace, key.Name); ok {
		return g
	}
	return nil
}

// scheduled counts the members of a group that are on nodes of the copy.
func (p *plan) scheduled(key framework.GroupKey) int {
	count := 0
	for _, n := range p.base.snapshot.Nodes() {
		for _, pod := range n.Pods {
			if k, ok := pod.Group(); ok && k == key {
				count++
			}
		}
	}
	return count
}

// of is the trial of a profile, over the one copy.
func (p *plan) of(ctx context.Context, pod *corev1.Pod) (*trial, error) {
	profile, ok := p.x.profileOf(pod)
	if !ok {
		return nil, nil
	}
	if t := p.trials[profile.SchedulerName]; t != nil {
		return t, nil
	}
	fw, err := p.x.framework(profile, p.base.fw.Nominator())
	if err != nil {
		return nil, err
	}
	t := &trial{ctx: ctx, fw: fw, snapshot: p.base.snapshot}
	t.decider = cycle.NewDecider(fw, t.snapshot, 0)
	p.trials[profile.SchedulerName] = t
	return t, nil
}

// place places one pod or gang for those that follow to see.
func (p *plan) place(ctx context.Context, q *framework.Queued) error {
	t, err := p.of(ctx, q.Pods[0].Pod)
	if err != nil {
		return err
	}
	if t == nil {
		p.refuse(q, "another scheduler's: "+q.Pods[0].Pod.GetSpec().GetSchedulerName())
		return nil
	}
	for _, pod := range q.Pods {
		if st := t.fw.RunPreEnqueue(pod); !st.IsSuccess() {
			p.unplaced(pod, st.Message())
		}
	}
	q.Pods = slices.DeleteFunc(slices.Clone(q.Pods), func(pod *framework.PodInfo) bool { return !t.fw.RunPreEnqueue(pod).IsSuccess() })
	if len(q.Pods) == 0 {
		return nil
	}
	if q.IsGroup() {
		q.Scheduled = p.scheduled(q.GroupKey)
		if st := t.fw.RunPreEnqueueGroup(q); !st.IsSuccess() {
			p.refuse(q, st.Message())
			return nil
		}
	}
	d := t.decider.Decide(ctx, q, nil)
	if d.Err != nil {
		p.refuse(q, firstLine(d.Err.Error()))
		return nil
	}
	for _, a := range d.Placed {
		t.snapshot.Assume(a.Pod, a.Node)
		t.fw.Nominator().Forget(a.Pod.UID())
		p.placed(a.Pod, a.Node, nil)
	}
	// Victims give way at once, so that those that follow see the room.
	for _, v := range d.Victims {
		if err := t.snapshot.Forget(v.Pod, v.Node.Name()); err != nil {
			return fmt.Errorf("victim %s: %w", v.Pod.Name(), err)
		}
	}
	told := map[string]bool{} // of whom the first pod that they give way to tells
	for _, f := range d.Failed {
		if f.NominatedNode == "" {
			p.unplaced(f.Pod, f.Message)
			continue
		}
		t.snapshot.Assume(f.Pod, f.NominatedNode)
		victims := slices.DeleteFunc(slices.Clone(f.Victims), func(v framework.Member) bool { return told[v.Pod.UID()] })
		for _, v := range victims {
			told[v.Pod.UID()] = true
		}
		p.placed(f.Pod, f.NominatedNode, names(victims))
	}
	return nil
}

func (p *plan) placed(pod *framework.PodInfo, node string, victims []string) {
	p.out.Placed++
	p.out.Pods = append(p.out.Pods, &schedulingv1.PlannedPod{
		Namespace: pod.Namespace(), Name: pod.Pod.GetMetadata().GetName(), NodeName: node, FromNode: p.from[pod.UID()], Victims: victims,
	})
}

func (p *plan) unplaced(pod *framework.PodInfo, message string) {
	p.out.Unplaced++
	p.out.Pods = append(p.out.Pods, &schedulingv1.PlannedPod{
		Namespace: pod.Namespace(), Name: pod.Pod.GetMetadata().GetName(), Message: message, FromNode: p.from[pod.UID()],
	})
}

func (p *plan) refuse(q *framework.Queued, message string) {
	for _, pod := range q.Pods {
		p.unplaced(pod, message)
	}
}
