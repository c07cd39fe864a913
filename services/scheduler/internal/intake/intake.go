// Package intake turns what the informers hear into what queue and cache know: it decides for each pod whether it waits,
// takes room on a node, or is none of the scheduler's business, and names each change so that the queue can tell whom it
// concerns. It writes nothing to the gateway.
package intake

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client"
	"trireme.dev/client/informer"
	"trireme.dev/kit/telemetry"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	storagev1 "trireme.dev/proto/gen/trireme/storage/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cache"
	"trireme.dev/services/scheduler/internal/queue"
	"trireme.dev/services/scheduler/internal/recording"
	"trireme.dev/services/scheduler/internal/runtime"
)

// Intake feeds a queue and a cache.
type Intake struct {
	// SchedulerNames of the pods that are ours.
	SchedulerNames []string
	Queue          *queue.Queue
	Cache          *cache.Cache
	// Framework of any profile: what is asked of it is the same for all.
	Framework *runtime.Framework
	Logger    *slog.Logger
	// Steps of the scheduler.
	Steps *recording.Steps
	// Copy is kept up to date; nil where nobody needs it.
	Copy *Copy

	pods *informer.Registration[*corev1.Pod]
}

// Register subscribes to all kinds that concern scheduling, and to those that plugins may ask for.
func (in *Intake) Register(f *informer.Factory) {
	for _, k := range kinds {
		if !k.silent || in.Copy != nil {
			k.watch(in, f)
		}
	}
}

// Change takes in a change of an object, in one step: before is nil where it came, after where it went. Neither is to be
// changed any more. initial says that it was there before the scheduler.
func (in *Intake) Change(before, after client.Object, initial bool) {
	now := after
	if now == nil {
		now = before
	}
	kind := nameOf(now)
	in.Steps.Begin()
	if in.Copy != nil {
		in.Copy.set(kind, now, after == nil)
	}
	switch now.(type) {
	case *corev1.Pod:
		in.pod(as[*corev1.Pod](before), as[*corev1.Pod](after), initial)
	case *corev1.Node:
		in.node(as[*corev1.Node](before), as[*corev1.Node](after))
	case *schedulingv1.PodGroup:
		in.group(as[*schedulingv1.PodGroup](before), as[*schedulingv1.PodGroup](after))
	case *schedulingv1.Queue:
		in.queueObject(as[*schedulingv1.Queue](before), as[*schedulingv1.Queue](after))
	case *corev1.Namespace:
		in.namespace(as[*corev1.Namespace](before), as[*corev1.Namespace](after))
	case *corev1.PersistentVolumeClaim, *corev1.PersistentVolume, *storagev1.StorageClass, *storagev1.CSINode:
		in.moved(framework.EventResource(kind), before, after)
	}
	in.Steps.EndChange(kind, now, after == nil, initial)
}

// as is the object as what it is; nil where there is none.
func as[T client.Object](o client.Object) T {
	t, _ := o.(T)
	return t
}

func (in *Intake) pod(before, after *corev1.Pod, initial bool) {
	switch {
	case before == nil:
		since := in.Steps.Now()
		if initial {
			// Pods that were there before the scheduler keep the order in which they came.
			since = after.GetMetadata().GetCreationTimestamp().AsTime()
		}
		in.addPod(after, since)
	case after == nil:
		in.deletePod(before)
	default:
		in.updatePod(before, after)
	}
}

func (in *Intake) node(before, after *corev1.Node) {
	switch {
	case before == nil:
		in.addNode(after)
	case after == nil:
		in.deleteNode(before)
	default:
		in.updateNode(before, after)
	}
}

func (in *Intake) group(before, after *schedulingv1.PodGroup) {
	if after == nil {
		in.deleteGroup(before)
		return
	}
	in.setGroup(before, after)
}

// class is what a pod is to the scheduler.
type class int

const (
	foreign  class = iota // ended, or being deleted before it was placed
	stranger              // waits for another scheduler
	pending               // waits for us
	assigned              // takes room on a node
)

func (in *Intake) classify(pod *corev1.Pod) class {
	switch phase := pod.GetStatus().GetPhase(); {
	case phase == "Succeeded" || phase == "Failed":
		return foreign
	case pod.GetSpec().GetNodeName() != "":
		return assigned
	case pod.GetMetadata().GetDeletionTimestamp() != nil:
		return foreign
	case slices.Contains(in.SchedulerNames, pod.GetSpec().GetSchedulerName()):
		return pending
	}
	return stranger
}

func (in *Intake) info(pod *corev1.Pod) *framework.PodInfo {
	var (
		info *framework.PodInfo
		err  error
	)
	if known := in.Cache.Pod(pod.GetMetadata().GetUid()); known != nil {
		info, err = known.Now(pod)
	} else {
		info, err = framework.NewPodInfo(pod)
	}
	if err != nil {
		in.Logger.Warn("pod has a quantity that cannot be read",
			slog.String(telemetry.KeyPod, framework.Key(pod)), slog.Any(telemetry.KeyError, err))
	}
	return info
}

func (in *Intake) addPod(pod *corev1.Pod, since time.Time) {
	switch in.classify(pod) {
	case stranger:
		if _, ok := framework.GroupOf(pod); ok {
			in.Queue.Stranger(in.info(pod))
		}
	case pending:
		info := in.info(pod)
		in.nominate(info)
		in.Queue.Add(info, since)
	case assigned:
		info := in.info(pod)
		in.Framework.Nominator().Forget(info.UID())
		in.Cache.AddPod(info)
		in.Queue.Delete(info.UID())
		in.move(framework.AssignedPod, framework.Add, nil, info)
	}
}

func (in *Intake) updatePod(before, after *corev1.Pod) {
	if before.GetMetadata().GetUid() != after.GetMetadata().GetUid() {
		in.deletePod(before)
		in.addPod(after, in.Steps.Now())
		return
	}
	was, is := in.classify(before), in.classify(after)
	switch {
	case was == pending && is == pending:
		in.updatePending(after)
	case was == assigned && is == assigned:
		in.updateAssigned(before, after)
	case is == assigned, is == pending:
		// From waiting to bound the cache goes first: the room must not look free in between.
		in.addPod(after, in.Steps.Now())
	case is == foreign:
		in.deletePod(before)
	case is == stranger && was != stranger:
		in.deletePod(before)
		in.addPod(after, in.Steps.Now())
	}
}

func (in *Intake) updatePending(after *corev1.Pod) {
	info := in.info(after)
	if in.Cache.IsAssumed(info.UID()) {
		// News from before its binding, which may be done with already: only of use if it still waits for the outcome.
		in.Queue.Update(info)
		return
	}
	in.nominate(info)
	in.Queue.Add(info, in.Steps.Now())
}

// nominate takes over where room is being made for a waiting pod. A status that does not say so does not take back what
// has been decided and not been written yet.
func (in *Intake) nominate(pod *framework.PodInfo) {
	nominator := in.Framework.Nominator()
	node := pod.Pod.GetStatus().GetNominatedNodeName()
	if node == "" {
		node = nominator.Node(pod.UID())
	}
	if node != "" {
		nominator.Nominate(pod, node)
	}
}

func (in *Intake) updateAssigned(before, after *corev1.Pod) {
	om, nm := before.GetMetadata(), after.GetMetadata()
	if om.GetGeneration() == nm.GetGeneration() && maps.Equal(om.GetLabels(), nm.GetLabels()) &&
		(om.GetDeletionTimestamp() == nil) == (nm.GetDeletionTimestamp() == nil) &&
		sameTime(before.GetStatus().GetStartTime(), after.GetStatus().GetStartTime()) {
		return // of its status plugins look at the time of its start only
	}
	old, info := in.info(before), in.info(after)
	in.Cache.AddPod(info)
	var action framework.Action
	if queue.ScaledDown(old, info) {
		action |= framework.UpdatePodScaleDown
	}
	if !maps.Equal(om.GetLabels(), nm.GetLabels()) {
		action |= framework.UpdatePodLabel
	}
	if action != 0 {
		in.move(framework.AssignedPod, action, old, info)
	}
}

func sameTime(a, b *timestamppb.Timestamp) bool {
	return (a == nil) == (b == nil) && a.GetSeconds() == b.GetSeconds() && a.GetNanos() == b.GetNanos()
}

// deletePod handles a pod that is gone, or none of ours any more, given its last state.
func (in *Intake) deletePod(last *corev1.Pod) {
	uid := last.GetMetadata().GetUid()
	in.Queue.Delete(uid)
	in.Framework.Nominator().Forget(uid)
	if w := in.Framework.WaitingPod(uid); w != nil {
		w.Reject("", "the pod was deleted")
	}
	// An assumed pod gives back its room at once, while its doomed binding ends.
	if in.Cache.RemovePod(uid) {
		in.move(framework.AssignedPod, framework.Delete, in.info(last), nil)
	}
}

func (in *Intake) move(resource framework.EventResource, action framework.Action, old, pod *framework.PodInfo) {
	in.Queue.Move(framework.Change{
		Event:  framework.ClusterEvent{Resource: resource, Action: action},
		OldPod: old, NewPod: pod,
	}, nil)
}

func (in *Intake) addNode(node *corev1.Node) {
	in.Cache.SetNode(node)
	in.Queue.Move(framework.Change{
		Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add}, NewNode: node,
	}, nil)
}

func (in *Intake) updateNode(before, after *corev1.Node) {
	action := nodeChange(before, after)
	if action == 0 {
		if !sameImages(before.GetStatus().GetImages(), after.GetStatus().GetImages()) {
			in.Cache.SetNode(after) // nobody waits for an image
		}
		return // a heartbeat
	}
	in.Cache.SetNode(after)
	in.Queue.Move(framework.Change{
		Event: framework.ClusterEvent{Resource: framework.Node, Action: action}, OldNode: before, NewNode: after,
	}, nil)
}

func (in *Intake) deleteNode(last *corev1.Node) {
	in.Cache.RemoveNode(last.GetMetadata().GetName())
	in.Queue.Move(framework.Change{
		Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Delete}, OldNode: last,
	}, nil)
}

// nodeChange says in what way a node changed, as far as scheduling goes.
func nodeChange(before, after *corev1.Node) framework.Action {
	var action framework.Action
	if !maps.Equal(before.GetStatus().GetAllocatable(), after.GetStatus().GetAllocatable()) {
		action |= framework.UpdateNodeAllocatable
	}
	if !maps.Equal(before.GetMetadata().GetLabels(), after.GetMetadata().GetLabels()) {
		action |= framework.UpdateNodeLabel
	}
	if !sameTaints(before.GetSpec(), after.GetSpec()) {
		action |= framework.UpdateNodeTaint
	}
	if !sameConditions(before.GetStatus().GetConditions(), after.GetStatus().GetConditions()) {
		action |= framework.UpdateNodeCondition
	}
	if !maps.Equal(before.GetMetadata().GetAnnotations(), after.GetMetadata().GetAnnotations()) {
		action |= framework.UpdateNodeAnnotation
	}
	return action
}

func sameTaints(a, b *corev1.NodeSpec) bool {
	// A cordon is a taint in all but name.
	if a.GetUnschedulable() != b.GetUnschedulable() || len(a.GetTaints()) != len(b.GetTaints()) {
		return false
	}
	for i, t := range a.GetTaints() {
		if !proto.Equal(t, b.GetTaints()[i]) {
			return false
		}
	}
	return true
}

func sameImages(a, b []*corev1.ContainerImage) bool {
	if len(a) != len(b) {
		return false
	}
	for i, image := range a {
		if image.GetSizeBytes() != b[i].GetSizeBytes() || !slices.Equal(image.GetNames(), b[i].GetNames()) {
			return false
		}
	}
	return true
}

// sameConditions compares what conditions say, not when they said it.
func sameConditions(a, b []*corev1.NodeCondition) bool {
	if len(a) != len(b) {
		return false
	}
	for i, c := range a {
		if c.GetType() != b[i].GetType() || c.GetStatus() != b[i].GetStatus() {
			return false
		}
	}
	return true
}

func (in *Intake) setGroup(before, after *schedulingv1.PodGroup) {
	in.Queue.SetGroup(after)
	action := framework.Add
	if before != nil {
		action = framework.UpdateOther
	}
	in.Queue.Move(framework.Change{
		Event: framework.ClusterEvent{Resource: framework.PodGroup, Action: action}, OldGroup: before, NewGroup: after,
	}, nil)
}

func (in *Intake) deleteGroup(last *schedulingv1.PodGroup) {
	meta := last.GetMetadata()
	in.Queue.DeleteGroup(framework.GroupKey{Namespace: meta.GetNamespace(), Name: meta.GetName()})
	in.Queue.Move(framework.Change{
		Event: framework.ClusterEvent{Resource: framework.PodGroup, Action: framework.Delete}, OldGroup: last,
	}, nil)
}
