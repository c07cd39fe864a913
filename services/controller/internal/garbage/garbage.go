// Package garbage deletes objects whose owners are all gone, in the background, and lets objects go that were deleted
// with propagation Foreground or Orphan once their dependents are gone or cut loose. It reads metadata of every kind
// and writes nothing but deletions, owner references that point nowhere, and those two finalizers.
package garbage

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/informer"
	"trireme.dev/client/kind"
	"trireme.dev/client/reconcile"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Collector is the garbage collector. Its keys are UIDs.
type Collector struct {
	conn   grpc.ClientConnInterface
	kinds  *kind.Registry
	graph  *graph
	logger *slog.Logger
}

// notOwned are kinds that nobody owns by reference and that change too often to be worth watching.
var notOwned = map[string]bool{"Event": true}

// New returns the runner of the collector, its informers taken from the factory: one for each kind of the registry.
func New(factory *informer.Factory, conn grpc.ClientConnInterface, kinds *kind.Registry, logger *slog.Logger) *reconcile.Runner {
	c := &Collector{conn: conn, kinds: kinds, graph: newGraph(), logger: logger}
	config := reconcile.Config{Name: "garbage", Workers: 5, Logger: logger, Outputs: []string{"shared: deletion of any kind"}}
	for _, k := range kinds.All() {
		if !notOwned[k.Name] {
			config.Inputs = append(config.Inputs, k.Name)
		}
	}
	r := reconcile.New(config, c)
	for _, k := range kinds.All() {
		if !notOwned[k.Name] {
			informer.OfKind(factory, k, informer.Config{}).AddHandler(c.handler(r, k))
		}
	}
	return r
}

func (c *Collector) handler(r *reconcile.Runner, k *kind.Kind) informer.Handler[client.Object] {
	put := func(o client.Object) {
		c.graph.put(k, o)
		if len(o.GetMetadata().GetOwnerReferences()) > 0 || waitsFor(o.GetMetadata()) != "" {
			r.Enqueue(reconcile.Key{Name: o.GetMetadata().GetUid()})
		}
	}
	return informer.Handler[client.Object]{
		Add:    func(o client.Object, _ bool) { put(o) },
		Update: func(_, o client.Object) { put(o) },
		Delete: func(last client.Object) {
			for _, uid := range c.graph.remove(last.GetMetadata().GetUid()) {
				r.Enqueue(reconcile.Key{Name: uid})
			}
		},
	}
}

// Reconcile deletes the object of a UID if it has owners and none of them exists. Where some do, it removes the
// references to those that do not.
func (c *Collector) Reconcile(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
	o, ok := c.graph.get(key.Name)
	if ok && o.waits != "" {
		return c.letGo(ctx, key.Name, o)
	}
	if !ok || len(o.owners) == 0 {
		return reconcile.Result{}, nil
	}
	var solid, dangling []*metav1.OwnerReference
	for _, owner := range o.owners {
		exists, err := c.exists(ctx, o, owner)
		if err != nil {
			return reconcile.Result{}, err
		}
		if exists {
			solid = append(solid, owner)
		} else {
			dangling = append(dangling, owner)
		}
	}
	switch {
	case len(dangling) == 0:
		return reconcile.Result{}, nil
	case len(solid) == 0:
		if stale, err := c.stale(ctx, key.Name, o); err != nil || stale {
			return reconcile.Result{After: lookAgain}, err
		}
		return reconcile.Result{}, c.delete(ctx, key.Name, o, "Background")
	default:
		return reconcile.Result{}, c.strip(ctx, key.Name, o, solid)
	}
}

// stale tells whether an object has other owners than the graph knows of: one that was just orphaned is no garbage.
func (c *Collector) stale(ctx context.Context, uid string, o object) (bool, error) {
	live, err := client.Dynamic(c.conn, o.kind).Get(ctx, o.namespace, o.name)
	if apierr.IsNotFound(err) || err == nil && live.GetMetadata().GetUid() != uid {
		return false, nil // the deletion finds that out as well
	}
	if err != nil {
		return false, fmt.Errorf("owners of %s: %w", o.kind.Key(o.namespace, o.name), err)
	}
	return !slices.EqualFunc(live.GetMetadata().GetOwnerReferences(), o.owners, func(a, b *metav1.OwnerReference) bool { return a.GetUid() == b.GetUid() }), nil
}

// exists tells whether an owner does. What the graph does not know is asked of the gateway: it may be too new, or of a
// kind that is not watched.
func (c *Collector) exists(ctx context.Context, o object, owner *metav1.OwnerReference) (bool, error) {
	if known, ok := c.graph.get(owner.GetUid()); ok && (!known.kind.Namespaced || known.namespace == o.namespace) {
		return true, nil
	}
	k, ok := c.kinds.ByManifest(owner.GetApiVersion(), owner.GetKind())
	if !ok {
		// An owner of a kind that we do not know may well exist.
		return true, nil
	}
	namespace := ""
	if k.Namespaced {
		namespace = o.namespace
	}
	live, err := client.Dynamic(c.conn, k).Get(ctx, namespace, owner.GetName())
	if apierr.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("owner %s of %s: %w", k.Key(namespace, owner.GetName()), o.kind.Key(o.namespace, o.name), err)
	}
	return live.GetMetadata().GetUid() == owner.GetUid(), nil
}

func (c *Collector) delete(ctx context.Context, uid string, o object, propagation string) error {
	_, err := client.Dynamic(c.conn, o.kind).Delete(ctx, o.namespace, o.name, &metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{Uid: proto.String(uid)}, PropagationPolicy: propagation,
	})
	if apierr.IsNotFound(err) || apierr.IsConflict(err) {
		return nil // gone already, and perhaps another has its name
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", o.kind.Key(o.namespace, o.name), err)
	}
	c.logger.Debug("deleted for want of an owner", slog.String("kind", o.kind.Name), slog.String("key", o.kind.Key(o.namespace, o.name)))
	return nil
}

func (c *Collector) strip(ctx context.Context, uid string, o object, solid []*metav1.OwnerReference) error {
	err := c.change(ctx, uid, o, func(m *metav1.ObjectMeta) { m.OwnerReferences = solid })
	if err != nil {
		return fmt.Errorf("remove dangling owners of %s: %w", o.kind.Key(o.namespace, o.name), err)
	}
	return nil
}

// change updates the metadata of an object as it is now. One that is gone is success.
func (c *Collector) change(ctx context.Context, uid string, o object, apply func(*metav1.ObjectMeta)) error {
	resource := client.Dynamic(c.conn, o.kind)
	live, err := resource.Get(ctx, o.namespace, o.name)
	if apierr.IsNotFound(err) || err == nil && live.GetMetadata().GetUid() != uid {
		return nil
	}
	if err != nil {
		return err
	}
	apply(live.GetMetadata())
	if _, err := resource.Update(ctx, live); err != nil && !apierr.IsNotFound(err) {
		return err
	}
	return nil
}
