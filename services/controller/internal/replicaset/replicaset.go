// Package replicaset keeps as many pods of a template as a ReplicaSet asks for. It owns the pods that it makes and the
// ReplicaSet's status; it never changes a ReplicaSet's spec, and never touches a pod's.
package replicaset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/event"
	"trireme.dev/client/informer"
	"trireme.dev/client/reconcile"
	"trireme.dev/client/selector"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/controller/internal/writes"
)

const (
	// burst bounds how many pods one reconciliation makes or deletes, as in Kubernetes.
	burst = 500
	// firstBatch of pods; each batch that succeeds doubles the next, so that a template that cannot work costs one
	// request and not five hundred.
	firstBatch = 1
	// orphans is an index of the pods without a controller, by namespace.
	orphans = "replicaset/orphans"
)

// Controller reconciles ReplicaSets.
type Controller struct {
	sets    *client.Resource[*appsv1.ReplicaSet]
	pods    *client.Resource[*corev1.Pod]
	setsIn  *informer.Informer[*appsv1.ReplicaSet]
	podsIn  *informer.Informer[*corev1.Pod]
	events  *event.Recorder
	written *writes.Tracker
	// reported are writes of the ReplicaSet itself: acting on a copy from before them could only conflict.
	reported *writes.Tracker
	logger   *slog.Logger
}

// Deps are what the controller works with.
type Deps struct {
	Sets   *client.Resource[*appsv1.ReplicaSet]
	Pods   *client.Resource[*corev1.Pod]
	Events *event.Recorder
	Logger *slog.Logger
}

// New returns the runner of the controller, its informers taken from the factory.
func New(factory *informer.Factory, deps Deps) *reconcile.Runner {
	c := &Controller{
		sets: deps.Sets, pods: deps.Pods, events: deps.Events, logger: deps.Logger,
		written: writes.NewTracker(), reported: writes.NewTracker(),
		setsIn: informer.Of[*appsv1.ReplicaSet](factory, informer.Config{}),
		podsIn: informer.Of[*corev1.Pod](factory, informer.Config{}),
	}
	reconcile.IndexByController(c.podsIn)
	c.podsIn.AddIndex(orphans, func(p *corev1.Pod) []string {
		if reconcile.ControllerOf(p) == nil {
			return []string{p.GetMetadata().GetNamespace()}
		}
		return nil
	})
	r := reconcile.New(reconcile.Config{
		Name: "replicaset", Span: "syncReplicaSet", Workers: 5, Logger: deps.Logger,
		Inputs: []string{"ReplicaSet", "Pod"}, Outputs: []string{"Pod", "ReplicaSet/status"},
	}, c)
	c.setsIn.AddHandler(reconcile.EnqueueSelf[*appsv1.ReplicaSet](r))
	c.podsIn.AddHandler(reconcile.EnqueueMapped(r, c.setsOf))
	return r
}

// setsOf are the ReplicaSets that a pod may concern: its owner, or all that would adopt it.
func (c *Controller) setsOf(pod *corev1.Pod) []reconcile.Key {
	if reconcile.ControllerOf(pod) != nil {
		if key, ok := reconcile.OwnerKey(pod, "ReplicaSet"); ok {
			return []reconcile.Key{key}
		}
		return nil
	}
	var keys []reconcile.Key
	for _, rs := range c.setsIn.Lister().List(pod.GetMetadata().GetNamespace(), nil) {
		if wanted, err := selector.FromLabelSelector(rs.GetSpec().GetSelector()); err == nil && wanted.Matches(pod.GetMetadata().GetLabels()) {
			keys = append(keys, reconcile.KeyOf(rs))
		}
	}
	return keys
}

// Reconcile brings the number of pods to what the ReplicaSet asks for, then writes its status.
func (c *Controller) Reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	if err := c.written.Seen(ctx, key, c.podsIn); err != nil {
		return reconcile.Result{}, err
	}
	if err := c.reported.Seen(ctx, key, c.setsIn); err != nil {
		return reconcile.Result{}, err
	}
	rs, ok := c.setsIn.Lister().Get(key.Namespace, key.Name)
	if !ok {
		return reconcile.Result{}, nil
	}
	pods, err := c.claim(ctx, key, rs)
	if err != nil {
		return reconcile.Result{}, err
	}
	active := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !Active(p) })

	var failed error
	if rs.GetMetadata().GetDeletionTimestamp() == nil {
		failed = c.manage(ctx, key, rs, active)
	}
	status, wait := Status(rs, pods, failed, time.Now())
	if !proto.Equal(status, rs.GetStatus()) {
		update := proto.CloneOf(rs)
		update.Status = status
		stored, err := c.sets.UpdateStatus(reconcile.Writing(ctx, rs), update)
		if err != nil && !apierr.IsNotFound(err) {
			return reconcile.Result{}, errors.Join(failed, fmt.Errorf("status: %w", err))
		}
		if err == nil {
			c.reported.Wrote(key, stored)
		}
	}
	return reconcile.Result{After: wait}, failed
}

// claim returns the pods that are the ReplicaSet's: it adopts orphans that its selector matches, and releases pods
// that it matches no longer.
func (c *Controller) claim(ctx context.Context, key reconcile.Key, rs *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	wanted, err := selector.FromLabelSelector(rs.GetSpec().GetSelector())
	if err != nil {
		return nil, reconcile.Terminal(fmt.Errorf("selector: %w", err))
	}
	deleting := rs.GetMetadata().GetDeletionTimestamp() != nil
	var mine []*corev1.Pod
	for _, pod := range c.podsIn.Lister().ByIndex(reconcile.ByController, rs.GetMetadata().GetUid()) {
		if wanted.Matches(pod.GetMetadata().GetLabels()) || deleting {
			mine = append(mine, pod)
			continue
		}
		released := proto.CloneOf(pod)
		released.Metadata.OwnerReferences = slices.DeleteFunc(released.GetMetadata().GetOwnerReferences(),
			func(o *metav1.OwnerReference) bool { return o.GetUid() == rs.GetMetadata().GetUid() })
		if err := c.write(reconcile.Writing(ctx, rs), key, "release", released); err != nil {
			return nil, err
		}
	}
	if deleting {
		return mine, nil
	}
	var adopted []*corev1.Pod
	for _, pod := range c.podsIn.Lister().ByIndex(orphans, rs.GetMetadata().GetNamespace()) {
		if wanted.Matches(pod.GetMetadata().GetLabels()) && Active(pod) {
			adopted = append(adopted, pod)
		}
	}
	if len(adopted) == 0 {
		return mine, nil
	}
	// The copy at hand may be of a ReplicaSet that is gone; adopting for it would make its garbage of foreign pods.
	live, err := c.sets.Get(ctx, key.Namespace, key.Name)
	if err != nil {
		return nil, fmt.Errorf("before adopting: %w", err)
	}
	if live.GetMetadata().GetUid() != rs.GetMetadata().GetUid() || live.GetMetadata().GetDeletionTimestamp() != nil {
		return mine, nil
	}
	for _, pod := range adopted {
		adopted := proto.CloneOf(pod)
		adopted.Metadata.OwnerReferences = append(adopted.GetMetadata().GetOwnerReferences(), ownedBy(rs))
		if err := c.write(reconcile.Writing(ctx, rs), key, "adopt", adopted); err != nil {
			return nil, err
		}
		mine = append(mine, adopted)
	}
	return mine, nil
}

// write updates a pod's owners. A pod that is gone meanwhile is nobody's.
func (c *Controller) write(ctx context.Context, key reconcile.Key, what string, pod *corev1.Pod) error {
	stored, err := c.pods.Update(ctx, pod)
	if apierr.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s pod %s: %w", what, pod.GetMetadata().GetName(), err)
	}
	c.written.Wrote(key, stored)
	return nil
}

// manage makes or deletes pods.
func (c *Controller) manage(ctx context.Context, key reconcile.Key, rs *appsv1.ReplicaSet, active []*corev1.Pod) error {
	switch missing := int(rs.GetSpec().GetReplicas()) - len(active); {
	case missing > 0:
		return slowStart(min(missing, burst), func() error { return c.create(ctx, key, rs) })
	case missing < 0:
		victims := Victims(active, min(-missing, burst), time.Now())
		errs := make([]error, len(victims))
		var deleting sync.WaitGroup
		for i, pod := range victims {
			deleting.Go(func() { errs[i] = c.delete(ctx, key, rs, pod) })
		}
		deleting.Wait()
		return errors.Join(errs...)
	}
	return nil
}

// slowStart calls create n times in batches that double as long as they succeed, and stops after the first batch in
// which one fails.
func slowStart(n int, create func() error) error {
	for batch := firstBatch; n > 0; batch *= 2 {
		batch = min(batch, n)
		errs := make([]error, batch)
		var creating sync.WaitGroup
		for i := range batch {
			creating.Go(func() { errs[i] = create() })
		}
		creating.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		n -= batch
	}
	return nil
}

func (c *Controller) create(ctx context.Context, key reconcile.Key, rs *appsv1.ReplicaSet) error {
	ctx = reconcile.Writing(ctx, rs)
	pod, err := c.pods.Create(ctx, NewPod(rs))
	if err != nil {
		c.events.Event(rs, event.Warning, "FailedCreate", "Error creating: "+err.Error())
		return fmt.Errorf("create pod: %w", err)
	}
	reconcile.Created(ctx, pod)
	c.written.Wrote(key, pod)
	c.events.Event(rs, event.Normal, "SuccessfulCreate", "Created pod: "+pod.GetMetadata().GetName())
	return nil
}

func (c *Controller) delete(ctx context.Context, key reconcile.Key, rs *appsv1.ReplicaSet, pod *corev1.Pod) error {
	m := pod.GetMetadata()
	gone, err := c.pods.Delete(reconcile.Writing(ctx, rs), m.GetNamespace(), m.GetName(), &metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{Uid: proto.String(m.GetUid())},
	})
	if apierr.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.events.Event(rs, event.Warning, "FailedDelete", "Error deleting: "+err.Error())
		return fmt.Errorf("delete pod %s: %w", m.GetName(), err)
	}
	c.written.Wrote(key, gone)
	c.events.Event(rs, event.Normal, "SuccessfulDelete", "Deleted pod: "+m.GetName())
	return nil
}

// NewPod is a pod of the ReplicaSet's template, not yet named.
func NewPod(rs *appsv1.ReplicaSet) *corev1.Pod {
	template := proto.CloneOf(rs.GetSpec().GetTemplate())
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{
			GenerateName:    rs.GetMetadata().GetName() + "-",
			Namespace:       rs.GetMetadata().GetNamespace(),
			Labels:          template.GetMetadata().GetLabels(),
			Annotations:     template.GetMetadata().GetAnnotations(),
			Finalizers:      template.GetMetadata().GetFinalizers(),
			OwnerReferences: []*metav1.OwnerReference{ownedBy(rs)},
		},
		Spec: template.GetSpec(),
	}
}

func ownedBy(rs *appsv1.ReplicaSet) *metav1.OwnerReference {
	return &metav1.OwnerReference{
		ApiVersion: "apps/v1", Kind: "ReplicaSet",
		Name: rs.GetMetadata().GetName(), Uid: rs.GetMetadata().GetUid(),
		Controller: proto.Bool(true), BlockOwnerDeletion: proto.Bool(true),
	}
}

// Status counts pods. wait is when a pod that is ready will have been so for long enough; zero where none will.
func Status(rs *appsv1.ReplicaSet, pods []*corev1.Pod, failed error, now time.Time) (status *appsv1.ReplicaSetStatus, wait time.Duration) {
	status = &appsv1.ReplicaSetStatus{
		ObservedGeneration:   rs.GetMetadata().GetGeneration(),
		Conditions:           rs.GetStatus().GetConditions(),
		TerminatingReplicas:  proto.Int32(0),
		FullyLabeledReplicas: 0,
	}
	labels := selector.FromMap(rs.GetSpec().GetTemplate().GetMetadata().GetLabels())
	minReady := time.Duration(rs.GetSpec().GetMinReadySeconds()) * time.Second
	for _, p := range pods {
		if p.GetMetadata().GetDeletionTimestamp() != nil {
			*status.TerminatingReplicas++
			continue
		}
		if !Active(p) {
			continue
		}
		status.Replicas++
		if labels.Matches(p.GetMetadata().GetLabels()) {
			status.FullyLabeledReplicas++
		}
		if _, ready := readySince(p); ready {
			status.ReadyReplicas++
		}
		if ok, more := available(p, minReady, now); ok {
			status.AvailableReplicas++
		} else if more > 0 && (wait == 0 || more < wait) {
			wait = more
		}
	}
	status.Conditions = failureCondition(status.GetConditions(), failed, now)
	return status, wait
}

// failureCondition says that pods cannot be made or deleted, for as long as that is so.
func failureCondition(conditions []*appsv1.ReplicaSetCondition, failed error, now time.Time) []*appsv1.ReplicaSetCondition {
	const kind = "ReplicaFailure"
	i := slices.IndexFunc(conditions, func(c *appsv1.ReplicaSetCondition) bool { return c.GetType() == kind })
	others := slices.DeleteFunc(slices.Clone(conditions), func(c *appsv1.ReplicaSetCondition) bool { return c.GetType() == kind })
	if failed == nil {
		if len(others) == 0 {
			return nil
		}
		return others
	}
	if i >= 0 && conditions[i].GetMessage() == failed.Error() {
		return conditions
	}
	return append(others, &appsv1.ReplicaSetCondition{
		Type: kind, Status: "True", Reason: "FailedCreate", Message: failed.Error(), LastTransitionTime: timestamppb.New(now.Truncate(time.Second)),
	})
}
