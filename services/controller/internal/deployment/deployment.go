// Package deployment rolls a Deployment's template out by way of ReplicaSets. It owns its ReplicaSets and the
// Deployment's status; it never touches a pod.
//
// What to do next is decided by Compute, which is pure; this file reads the present state and carries a plan out.
package deployment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/event"
	"trireme.dev/client/informer"
	"trireme.dev/client/reconcile"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/controller/internal/writes"
)

// Controller reconciles Deployments.
type Controller struct {
	deps          Deps
	deploymentsIn *informer.Informer[*appsv1.Deployment]
	setsIn        *informer.Informer[*appsv1.ReplicaSet]
	podsIn        *informer.Informer[*corev1.Pod]
	written       *writes.Tracker
	// reported are writes of the Deployment itself: acting on a copy from before them could only conflict.
	reported *writes.Tracker
}

// Deps are what the controller works with.
type Deps struct {
	Deployments *client.Resource[*appsv1.Deployment]
	Sets        *client.Resource[*appsv1.ReplicaSet]
	Events      *event.Recorder
	Logger      *slog.Logger
}

// New returns the runner of the controller, its informers taken from the factory.
func New(factory *informer.Factory, deps Deps) *reconcile.Runner {
	c := &Controller{
		deps: deps, written: writes.NewTracker(), reported: writes.NewTracker(),
		deploymentsIn: informer.Of[*appsv1.Deployment](factory, informer.Config{}),
		setsIn:        informer.Of[*appsv1.ReplicaSet](factory, informer.Config{}),
		podsIn:        informer.Of[*corev1.Pod](factory, informer.Config{}),
	}
	reconcile.IndexByController(c.setsIn)
	reconcile.IndexByController(c.podsIn)
	r := reconcile.New(reconcile.Config{
		Name: "deployment", Span: "syncDeployment", Workers: 5, Logger: deps.Logger,
		Inputs: []string{"Deployment", "ReplicaSet", "Pod"}, Outputs: []string{"ReplicaSet", "Deployment/status"},
	}, c)
	c.deploymentsIn.AddHandler(reconcile.EnqueueSelf[*appsv1.Deployment](r))
	c.setsIn.AddHandler(reconcile.EnqueueOwner[*appsv1.ReplicaSet](r, "Deployment"))
	// Recreate waits for pods to be gone, which no set's status tells.
	c.podsIn.AddHandler(informer.Handler[*corev1.Pod]{Delete: func(last *corev1.Pod) {
		if key, ok := reconcile.OwnerKey(last, "ReplicaSet"); ok {
			if rs, ok := c.setsIn.Lister().Get(key.Namespace, key.Name); ok {
				if owner, ok := reconcile.OwnerKey(rs, "Deployment"); ok {
					r.Enqueue(owner)
				}
			}
		}
	}})
	return r
}

// Reconcile takes the next step of a Deployment.
func (c *Controller) Reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	if err := c.written.Seen(ctx, key, c.setsIn); err != nil {
		return reconcile.Result{}, err
	}
	if err := c.reported.Seen(ctx, key, c.deploymentsIn); err != nil {
		return reconcile.Result{}, err
	}
	d, ok := c.deploymentsIn.Lister().Get(key.Namespace, key.Name)
	if !ok {
		return reconcile.Result{}, nil
	}
	sets := c.setsIn.Lister().ByIndex(reconcile.ByController, d.GetMetadata().GetUid())
	plan, err := Compute(Input{Deployment: d, Sets: sets, OldPods: c.oldPods(d, sets), Now: time.Now()})
	if err != nil {
		return reconcile.Result{}, reconcile.Terminal(err)
	}
	if err := c.carryOut(ctx, key, d, plan); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{After: plan.After}, nil
}

func (c *Controller) oldPods(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) int {
	n := 0
	_, olds := split(d, sets)
	for _, rs := range olds {
		n += len(c.podsIn.Lister().ByIndex(reconcile.ByController, rs.GetMetadata().GetUid()))
	}
	return n
}

func (c *Controller) carryOut(ctx context.Context, key reconcile.Key, d *appsv1.Deployment, plan Plan) error {
	if plan.Create != nil {
		if err := c.create(ctx, key, d, plan.Create); err != nil {
			return err
		}
	}
	for _, rs := range plan.Update {
		stored, err := c.deps.Sets.Update(reconcile.Writing(ctx, d), rs)
		if err != nil {
			return fmt.Errorf("update ReplicaSet %s: %w", rs.GetMetadata().GetName(), err)
		}
		c.written.Wrote(key, stored)
		c.recordScaling(d, rs)
	}
	for _, rs := range plan.Delete {
		_, err := c.deps.Sets.Delete(reconcile.Writing(ctx, d), rs.GetMetadata().GetNamespace(), rs.GetMetadata().GetName(), &metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{
				Uid: proto.String(rs.GetMetadata().GetUid()), ResourceVersion: proto.String(rs.GetMetadata().GetResourceVersion()),
			},
		})
		if err != nil && !apierr.IsNotFound(err) {
			return fmt.Errorf("delete ReplicaSet %s: %w", rs.GetMetadata().GetName(), err)
		}
	}
	return c.report(ctx, key, d, plan)
}

// recordScaling says that a set was scaled; from which size, the informer still shows.
func (c *Controller) recordScaling(d *appsv1.Deployment, rs *appsv1.ReplicaSet) {
	name := rs.GetMetadata().GetName()
	before, _ := c.setsIn.Lister().Get(rs.GetMetadata().GetNamespace(), name)
	from, to := before.GetSpec().GetReplicas(), rs.GetSpec().GetReplicas()
	direction := "up"
	switch {
	case from == to:
		return
	case from > to:
		direction = "down"
	}
	c.deps.Events.Event(d, event.Normal, "ScalingReplicaSet", fmt.Sprintf("Scaled %s replica set %s from %d to %d", direction, name, from, to))
}

// create makes the set of a new template. A name that is taken is either our own set, not seen yet, or another template
// of the same hash: then the Deployment's collision count makes another name.
func (c *Controller) create(ctx context.Context, key reconcile.Key, d *appsv1.Deployment, rs *appsv1.ReplicaSet) error {
	ctx = reconcile.Writing(ctx, d)
	stored, err := c.deps.Sets.Create(ctx, rs)
	if apierr.IsAlreadyExists(err) {
		return c.collision(ctx, key, d, rs)
	}
	if err != nil {
		return fmt.Errorf("create ReplicaSet %s: %w", rs.GetMetadata().GetName(), err)
	}
	reconcile.Created(ctx, stored)
	c.written.Wrote(key, stored)
	c.deps.Events.Event(d, event.Normal, "ScalingReplicaSet",
		fmt.Sprintf("Scaled up replica set %s from 0 to %d", rs.GetMetadata().GetName(), rs.GetSpec().GetReplicas()))
	return nil
}

func (c *Controller) collision(ctx context.Context, key reconcile.Key, d *appsv1.Deployment, rs *appsv1.ReplicaSet) error {
	existing, err := c.deps.Sets.Get(ctx, rs.GetMetadata().GetNamespace(), rs.GetMetadata().GetName())
	if err != nil {
		return fmt.Errorf("ReplicaSet %s that exists already: %w", rs.GetMetadata().GetName(), err)
	}
	owner := reconcile.ControllerOf(existing)
	if owner.GetUid() == d.GetMetadata().GetUid() && sameTemplate(d, existing) {
		c.written.Wrote(key, existing)
		return nil
	}
	counted := proto.CloneOf(d)
	if counted.Status == nil {
		counted.Status = &appsv1.DeploymentStatus{}
	}
	counted.Status.CollisionCount = proto.Int32(d.GetStatus().GetCollisionCount() + 1)
	stored, err := c.deps.Deployments.UpdateStatus(reconcile.Writing(ctx, d), counted)
	if err != nil {
		return fmt.Errorf("count a name collision: %w", err)
	}
	c.reported.Wrote(key, stored)
	return errors.New("name of the ReplicaSet is taken by another template: choosing another")
}

// report writes the Deployment's revision and status where they changed.
func (c *Controller) report(ctx context.Context, key reconcile.Key, d *appsv1.Deployment, plan Plan) error {
	update := proto.CloneOf(d)
	if d.GetMetadata().GetAnnotations()[revisionAnnotation] != plan.Revision && d.GetMetadata().GetDeletionTimestamp() == nil {
		update.Metadata.Annotations = with(update.GetMetadata().GetAnnotations(), revisionAnnotation, plan.Revision)
		stored, err := c.deps.Deployments.Update(reconcile.Writing(ctx, d), update)
		if apierr.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("annotate with the revision: %w", err)
		}
		c.reported.Wrote(key, stored)
		update = stored
	}
	if proto.Equal(plan.Status, d.GetStatus()) {
		return nil
	}
	update.Status = plan.Status
	stored, err := c.deps.Deployments.UpdateStatus(reconcile.Writing(ctx, d), update)
	if apierr.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	c.reported.Wrote(key, stored)
	return nil
}
