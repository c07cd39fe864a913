// Package namespace empties namespaces that are being deleted, pods first, and then lets them go. It owns the finalizer
// `kubernetes` in Namespace.spec.
package namespace

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/informer"
	"trireme.dev/client/kind"
	"trireme.dev/client/reconcile"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	// finalizer keeps a namespace until it is empty.
	finalizer = "kubernetes"
	// again is when a namespace whose contents are on their way out is looked at once more.
	again = time.Second
)

// Controller reconciles namespaces.
type Controller struct {
	conn         grpc.ClientConnInterface
	kinds        []*kind.Kind // namespaced ones, pods first
	namespaces   *client.Resource[*corev1.Namespace]
	namespacesIn *informer.Informer[*corev1.Namespace]
}

// New returns the runner of the controller, its informer taken from the factory.
func New(factory *informer.Factory, conn grpc.ClientConnInterface, kinds *kind.Registry, logger *slog.Logger) *reconcile.Runner {
	c := &Controller{
		conn: conn, namespaces: client.For[*corev1.Namespace](conn),
		namespacesIn: informer.Of[*corev1.Namespace](factory, informer.Config{}),
	}
	for _, k := range kinds.All() {
		if k.Namespaced {
			c.kinds = append(c.kinds, k)
		}
	}
	slices.SortStableFunc(c.kinds, func(a, b *kind.Kind) int { return rank(a) - rank(b) })
	r := reconcile.New(reconcile.Config{
		Name: "namespace", Span: "syncNamespace", Workers: 2, Logger: logger,
		Inputs: []string{"Namespace"}, Outputs: []string{"Namespace/spec.finalizers", "shared: deletion of any kind"},
	}, c)
	c.namespacesIn.AddHandler(reconcile.EnqueueSelf[*corev1.Namespace](r))
	return r
}

// rank orders deletion: pods go while what they use is still there, and events last, since they tell of the rest.
func rank(k *kind.Kind) int {
	switch k.Name {
	case "Pod":
		return 0
	case "Event":
		return 2
	default:
		return 1
	}
}

// Reconcile empties a namespace that is being deleted, then removes its finalizer.
func (c *Controller) Reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	ns, ok := c.namespacesIn.Lister().Get("", key.Name)
	if !ok || ns.GetMetadata().GetDeletionTimestamp() == nil || !slices.Contains(ns.GetSpec().GetFinalizers(), finalizer) {
		return reconcile.Result{}, nil
	}
	ctx = reconcile.Writing(ctx, ns)
	for _, k := range c.kinds {
		left, err := c.empty(ctx, k, key.Name)
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("empty namespace %s of %s: %w", key.Name, k.Plural, err)
		}
		if left > 0 {
			return reconcile.Result{After: again}, nil
		}
	}
	released := proto.CloneOf(ns)
	released.Spec.Finalizers = slices.DeleteFunc(released.GetSpec().GetFinalizers(), func(f string) bool { return f == finalizer })
	if _, err := c.namespaces.Update(ctx, released); err != nil && !apierr.IsNotFound(err) {
		return reconcile.Result{}, fmt.Errorf("release namespace %s: %w", key.Name, err)
	}
	return reconcile.Result{}, nil
}

// empty deletes all objects of a kind and returns how many are left.
func (c *Controller) empty(ctx context.Context, k *kind.Kind, namespace string) (int, error) {
	resource := client.Dynamic(c.conn, k)
	if _, err := resource.DeleteCollection(ctx, &metav1.DeleteCollectionRequest{Namespace: namespace}); err != nil {
		return 0, err
	}
	list, err := resource.List(ctx, client.ListOptions{Namespace: namespace})
	if err != nil {
		return 0, err
	}
	return len(list.Items), nil
}
