// Package disruption counts, for every PodDisruptionBudget, how many of its pods may be taken away now. It owns the
// budget's status, into which the gateway writes only as it evicts; it evicts nothing itself.
package disruption

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/event"
	"trireme.dev/client/informer"
	"trireme.dev/client/reconcile"
	"trireme.dev/client/selector"
	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
)

// Controller reconciles PodDisruptionBudgets.
type Controller struct {
	budgets       *client.Resource[*policyv1.PodDisruptionBudget]
	budgetsIn     *informer.Informer[*policyv1.PodDisruptionBudget]
	podsIn        *informer.Informer[*corev1.Pod]
	setsIn        *informer.Informer[*appsv1.ReplicaSet]
	deploymentsIn *informer.Informer[*appsv1.Deployment]
	events        *event.Recorder
	logger        *slog.Logger
}

// Deps are what the controller works with.
type Deps struct {
	Budgets *client.Resource[*policyv1.PodDisruptionBudget]
	Events  *event.Recorder
	Logger  *slog.Logger
}

// New returns the runner of the controller, its informers taken from the factory.
func New(factory *informer.Factory, deps Deps) *reconcile.Runner {
	c := &Controller{
		budgets: deps.Budgets, events: deps.Events, logger: deps.Logger,
		budgetsIn:     informer.Of[*policyv1.PodDisruptionBudget](factory, informer.Config{}),
		podsIn:        informer.Of[*corev1.Pod](factory, informer.Config{}),
		setsIn:        informer.Of[*appsv1.ReplicaSet](factory, informer.Config{}),
		deploymentsIn: informer.Of[*appsv1.Deployment](factory, informer.Config{}),
	}
	r := reconcile.New(reconcile.Config{
		Name: "disruption", Span: "syncPodDisruptionBudget", Workers: 2, Logger: deps.Logger,
		Inputs: []string{"PodDisruptionBudget", "Pod", "ReplicaSet", "Deployment"}, Outputs: []string{"PodDisruptionBudget/status"},
	}, c)
	c.budgetsIn.AddHandler(reconcile.EnqueueSelf[*policyv1.PodDisruptionBudget](r))
	c.podsIn.AddHandler(reconcile.EnqueueMapped(r, c.budgetsOf))
	// A number of replicas concerns the budgets of the namespace: there are few, and it changes seldom.
	c.setsIn.AddHandler(scaled(r, c, (*appsv1.ReplicaSet).GetSpec))
	c.deploymentsIn.AddHandler(scaled(r, c, (*appsv1.Deployment).GetSpec))
	return r
}

// budgetsOf are the budgets that cover a pod.
func (c *Controller) budgetsOf(pod *corev1.Pod) []reconcile.Key {
	var keys []reconcile.Key
	for _, b := range c.budgetsIn.Lister().List(pod.GetMetadata().GetNamespace(), nil) {
		if covered, err := selector.FromLabelSelector(b.GetSpec().GetSelector()); err == nil && covered.Matches(pod.GetMetadata().GetLabels()) {
			keys = append(keys, reconcile.KeyOf(b))
		}
	}
	return keys
}

// scaled enqueues the budgets of a namespace where an object's number of replicas changes.
func scaled[T client.Object, S interface{ GetReplicas() int32 }](r *reconcile.Runner, c *Controller, spec func(T) S) informer.Handler[T] {
	all := func(object T) {
		for _, b := range c.budgetsIn.Lister().List(object.GetMetadata().GetNamespace(), nil) {
			r.Enqueue(reconcile.KeyOf(b))
		}
	}
	return informer.Handler[T]{
		Add: func(object T, _ bool) { all(object) },
		Update: func(old, object T) {
			if spec(old).GetReplicas() != spec(object).GetReplicas() {
				all(object)
			}
		},
		Delete: all,
	}
}

// Reconcile counts a budget's pods and writes its status where that changes it.
func (c *Controller) Reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	budget, ok := c.budgetsIn.Lister().Get(key.Namespace, key.Name)
	if !ok {
		return reconcile.Result{}, nil
	}
	covered, err := selector.FromLabelSelector(budget.GetSpec().GetSelector())
	if err != nil {
		return reconcile.Result{}, reconcile.Terminal(fmt.Errorf("selector of %s: %w", key, err))
	}
	pods := c.podsIn.Lister().List(key.Namespace, covered)
	now := time.Now()
	meant := c.scales(pods)
	status, again, lost := Count(budget, pods, meant, now)
	if len(meant.unmanaged) > 0 && meant.err == nil && counts(budget) {
		c.events.Event(budget, event.Warning, "UnmanagedPods", fmt.Sprintf("Pods selected by this PodDisruptionBudget (selector: %s) were found to be unmanaged: "+
			"%v. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior.", covered, meant.unmanaged))
	}
	if len(pods) == 0 {
		c.events.Event(budget, event.Normal, "NoPods", "No matching pods found")
	}
	for _, pod := range lost {
		c.events.Event(pod, event.Warning, "NotDeleted", "Pod was expected by PDB "+key.String()+" to be deleted but it wasn't")
	}
	if err := c.write(ctx, budget, status); err != nil || again.IsZero() {
		if apierr.IsConflict(err) {
			return reconcile.Result{After: time.Millisecond}, nil // something was evicted meanwhile; the informer is about to show it
		}
		return reconcile.Result{}, err
	}
	return reconcile.Result{After: again.Sub(now)}, nil
}

// counts reports whether the budget depends on how many pods are meant to be there.
func counts(b *policyv1.PodDisruptionBudget) bool {
	return b.GetSpec().GetMaxUnavailable() != nil || b.GetSpec().GetMinAvailable().GetStringValue() != ""
}

func (c *Controller) write(ctx context.Context, budget *policyv1.PodDisruptionBudget, status *policyv1.PodDisruptionBudgetStatus) error {
	if proto.Equal(budget.GetStatus(), status) {
		return nil
	}
	next := proto.CloneOf(budget)
	next.Status = status
	_, err := c.budgets.UpdateStatus(reconcile.Writing(ctx, budget), next)
	if apierr.IsNotFound(err) {
		return nil
	}
	return err
}

// scales adds up the replicas of the pods' controllers: of a ReplicaSet that a Deployment manages, the Deployment's.
func (c *Controller) scales(pods []*corev1.Pod) scales {
	var out scales
	seen := map[string]bool{}
	add := func(uid string, replicas int32) {
		if !seen[uid] {
			seen[uid] = true
			out.total += replicas
		}
	}
	for _, pod := range pods {
		meta := pod.GetMetadata()
		owner := reconcile.ControllerOf(pod)
		if owner == nil {
			out.unmanaged = append(out.unmanaged, meta.GetName())
			continue
		}
		set, ok := c.setsIn.Lister().Get(meta.GetNamespace(), owner.GetName())
		if owner.GetKind() != "ReplicaSet" || !ok || set.GetMetadata().GetUid() != owner.GetUid() {
			out.err = fmt.Errorf("found no controllers for pod %q", meta.GetName())
			continue
		}
		if parent := reconcile.ControllerOf(set); parent.GetKind() == "Deployment" {
			d, ok := c.deploymentsIn.Lister().Get(meta.GetNamespace(), parent.GetName())
			if ok && d.GetMetadata().GetUid() == parent.GetUid() {
				add(parent.GetUid(), d.GetSpec().GetReplicas())
				continue
			}
		}
		add(owner.GetUid(), set.GetSpec().GetReplicas())
	}
	return out
}

func clone(s *policyv1.PodDisruptionBudgetStatus) *policyv1.PodDisruptionBudgetStatus {
	if s == nil {
		return &policyv1.PodDisruptionBudgetStatus{}
	}
	return proto.CloneOf(s)
}
