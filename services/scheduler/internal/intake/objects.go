package intake

import (
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/informer"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	storagev1 "trireme.dev/proto/gen/trireme/storage/v1"
	"trireme.dev/services/scheduler/framework"
)

// Objects returns the listers that plugins may ask for, by kind. Register watches them too, so that their changes wake
// whom they concern; those of Service and ReplicaSet, from which pods get only wishes by default, and
// those of disruption budgets, which preemption can do without, concern nobody.
func Objects(f *informer.Factory) map[string]any {
	return map[string]any{
		"Namespace":  informer.Of[*corev1.Namespace](f, informer.Config{}).Lister(),
		"Service":    informer.Of[*corev1.Service](f, informer.Config{}).Lister(),
		"ReplicaSet": informer.Of[*appsv1.ReplicaSet](f, informer.Config{}).Lister(),

		"PersistentVolumeClaim": informer.Of[*corev1.PersistentVolumeClaim](f, informer.Config{}).Lister(),
		"PersistentVolume":      informer.Of[*corev1.PersistentVolume](f, informer.Config{}).Lister(),
		"StorageClass":          informer.Of[*storagev1.StorageClass](f, informer.Config{}).Lister(),
		"CSINode":               informer.Of[*storagev1.CSINode](f, informer.Config{}).Lister(),

		"PodGroup":            informer.Of[*schedulingv1.PodGroup](f, informer.Config{}).Lister(),
		"PodDisruptionBudget": informer.Of[*policyv1.PodDisruptionBudget](f, informer.Config{}).Lister(),
	}
}

// registerObjects subscribes to the kinds of Objects.
func (in *Intake) registerObjects(f *informer.Factory) {
	watch[*corev1.PersistentVolumeClaim](in, f, framework.PersistentVolumeClaim)
	watch[*corev1.PersistentVolume](in, f, framework.PersistentVolume)
	watch[*storagev1.StorageClass](in, f, framework.StorageClass)
	watch[*storagev1.CSINode](in, f, framework.CSINode)
	informer.Of[*schedulingv1.Queue](f, informer.Config{}).AddHandler(informer.Handler[*schedulingv1.Queue]{
		Add:    func(q *schedulingv1.Queue, _ bool) { in.QueueObject(nil, q) },
		Update: in.QueueObject,
		Delete: func(q *schedulingv1.Queue) { in.QueueObject(q, nil) },
	})
	informer.Of[*corev1.Namespace](f, informer.Config{}).AddHandler(informer.Handler[*corev1.Namespace]{
		Add:    func(n *corev1.Namespace, _ bool) { in.setNamespace(nil, n) },
		Update: in.setNamespace,
		Delete: func(n *corev1.Namespace) {
			in.Cache.RemoveNamespace(n.GetMetadata().GetName())
			in.moved(framework.Namespace, framework.Delete, n, nil)
		},
	})
}

// watch has the changes of a kind wake whom they concern. Updates of the status alone count as well: of some kinds it is
// what matters.
func watch[T client.Object](in *Intake, f *informer.Factory, resource framework.EventResource) {
	informer.Of[T](f, informer.Config{}).AddHandler(informer.Handler[T]{
		Add:    func(o T, _ bool) { in.moved(resource, framework.Add, nil, o) },
		Update: func(old, o T) { in.moved(resource, framework.UpdateOther, old, o) },
		Delete: func(o T) { in.moved(resource, framework.Delete, o, nil) },
	})
}

func (in *Intake) moved(resource framework.EventResource, action framework.Action, old, now client.Object) {
	in.Queue.Move(framework.Change{
		Event: framework.ClusterEvent{Resource: resource, Action: action}, Old: old, New: now,
	}, nil)
}

func (in *Intake) setNamespace(before, after *corev1.Namespace) {
	in.Cache.SetNamespace(after.GetMetadata().GetName(), after.GetMetadata().GetLabels())
	if before.GetMetadata().GetLabels()[framework.LabelQueue] != after.GetMetadata().GetLabels()[framework.LabelQueue] {
		in.Queue.Retag()
	}
	switch {
	case before == nil:
		in.moved(framework.Namespace, framework.Add, nil, after)
	case !proto.Equal(&corev1.Namespace{Metadata: before.GetMetadata()}, &corev1.Namespace{Metadata: after.GetMetadata()}):
		in.moved(framework.Namespace, framework.UpdateOther, before, after)
	}
}

// QueueObject takes in a change of a Queue object: before is nil where it came, after where it went.
func (in *Intake) QueueObject(before, after *schedulingv1.Queue) {
	switch {
	case after == nil:
		in.Cache.RemoveQueue(before.GetMetadata().GetName())
		in.Queue.Retag()
		in.moved(framework.QueueObject, framework.Delete, before, nil)
		return
	case before != nil && proto.Equal(before.GetSpec(), after.GetSpec()):
		in.Cache.QueueStatus(after)
		return
	}
	in.Cache.SetQueue(after)
	in.Queue.Retag()
	if before == nil {
		in.moved(framework.QueueObject, framework.Add, nil, after)
		return
	}
	in.moved(framework.QueueObject, framework.UpdateOther, before, after)
}
