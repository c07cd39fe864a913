package garbage

import (
	"context"
	"fmt"
	"slices"

	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// The finalizers that the gateway puts on objects deleted with propagation Foreground and Orphan.
const (
	foreground = "foregroundDeletion"
	orphan     = "orphan"
)

// letGo deals with the dependents of an object that is being deleted, then removes the finalizer that holds it.
func (c *Collector) letGo(ctx context.Context, uid string, o object) error {
	deal := c.orphanDependents
	if o.waits == foreground {
		deal = c.deleteDependents
	}
	done, err := deal(ctx, uid)
	if err != nil || !done {
		return err
	}
	err = c.change(ctx, uid, o, func(m *metav1.ObjectMeta) {
		m.Finalizers = slices.DeleteFunc(m.GetFinalizers(), func(f string) bool { return f == o.waits })
	})
	if err != nil {
		return fmt.Errorf("let go of %s: %w", o.kind.Key(o.namespace, o.name), err)
	}
	return nil
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
