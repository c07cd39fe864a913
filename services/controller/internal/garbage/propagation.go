package garbage

import (
	"context"
	"fmt"
	"slices"
	"time"

	"trireme.dev/client"
	"trireme.dev/client/reconcile"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// The finalizers that the gateway puts on objects deleted with propagation Foreground and Orphan.
const (
	foreground = "foregroundDeletion"
	orphan     = "orphan"
)

// lookAgain is when an owner is looked at again whose dependents the graph does not know yet.
const lookAgain = 50 * time.Millisecond

// letGo deals with the dependents of an object that is being deleted, then removes the finalizer that holds it.
func (c *Collector) letGo(ctx context.Context, uid string, o object) (reconcile.Result, error) {
	deal := c.orphanDependents
	if o.waits == foreground {
		deal = c.deleteDependents
	}
	done, err := deal(ctx, uid)
	if err != nil || !done {
		return reconcile.Result{}, err
	}
	if behind, err := c.behind(ctx, uid, o); err != nil || behind {
		return reconcile.Result{After: lookAgain}, err
	}
	// Now that the graph knows of all: what it has heard of since is dealt with too.
	if done, err := deal(ctx, uid); err != nil || !done {
		return reconcile.Result{}, err
	}
	err = c.change(ctx, uid, o, func(m *metav1.ObjectMeta) {
		m.Finalizers = slices.DeleteFunc(m.GetFinalizers(), func(f string) bool { return f == o.waits })
	})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("let go of %s: %w", o.kind.Key(o.namespace, o.name), err)
	}
	return reconcile.Result{}, nil
}

// behind asks the gateway for dependents of an owner that the graph has not heard of: each kind is watched on its own, and
// one may lag behind the owner's.
func (c *Collector) behind(ctx context.Context, uid string, o object) (bool, error) {
	for _, k := range c.kinds.All() {
		if notOwned[k.Name] || o.kind.Namespaced && !k.Namespaced {
			continue
		}
		live, err := client.Dynamic(c.conn, k).List(ctx, client.ListOptions{Namespace: o.namespace})
		if err != nil {
			return false, fmt.Errorf("dependents of %s: %w", o.kind.Key(o.namespace, o.name), err)
		}
		for _, d := range live.Items {
			owned := slices.ContainsFunc(d.GetMetadata().GetOwnerReferences(), func(r *metav1.OwnerReference) bool { return r.GetUid() == uid })
			if _, known := c.graph.get(d.GetMetadata().GetUid()); owned && !known {
				return true, nil
			}
		}
	}
	return false, nil
}

// orphanDependents removes the references to an owner from all its dependents.
func (c *Collector) orphanDependents(ctx context.Context, uid string) (done bool, err error) {
	for _, dependent := range c.graph.dependentsOf(uid) {
		o, ok := c.graph.get(dependent)
		if !ok {
			continue
		}
		err := c.change(ctx, dependent, o, func(m *metav1.ObjectMeta) {
			m.OwnerReferences = slices.DeleteFunc(m.GetOwnerReferences(), func(r *metav1.OwnerReference) bool { return r.GetUid() == uid })
		})
		if err != nil {
			return false, fmt.Errorf("orphan %s: %w", o.kind.Key(o.namespace, o.name), err)
		}
	}
	return true, nil
}

// deleteDependents deletes an owner's dependents and is done when none is left whose reference blocks the owner. Each
// deletion that is seen brings the owner back here.
func (c *Collector) deleteDependents(ctx context.Context, uid string) (done bool, err error) {
	done = true
	for _, dependent := range c.graph.dependentsOf(uid) {
		o, ok := c.graph.get(dependent)
		if !ok {
			continue
		}
		if err := c.delete(ctx, dependent, o, "Foreground"); err != nil {
			return false, err
		}
		blocks := slices.ContainsFunc(o.owners, func(r *metav1.OwnerReference) bool { return r.GetUid() == uid && r.GetBlockOwnerDeletion() })
		done = done && !blocks
	}
	return done, nil
}
