package registry

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/apiserver/internal/storage"
)

const (
	// bindParallel bounds how many transactions of one call are under way: etcd batches what arrives together.
	bindParallel = 32
	// bindTogether is how many groups of one pod share a transaction: as many as the store, with the condition that the lease
	// is, still takes along with others.
	bindTogether = 15
)

// Bind puts groups of pods on nodes; each group is bound as a whole or not at all, whatever becomes of others.
func (r *Registry) Bind(ctx context.Context, req *corev1.BindRequest) *corev1.BindResponse {
	c := &bindCall{
		registry: r, lease: req.GetLease(), groups: req.GetGroups(), results: make([]*corev1.BindGroupResult, len(req.GetGroups())),
	}
	var singles, gangs []int
	for i, g := range c.groups {
		if len(g.GetBindings()) == 1 {
			singles = append(singles, i)
		} else {
			gangs = append(gangs, i)
		}
	}
	slots := make(chan struct{}, bindParallel)
	var wg sync.WaitGroup
	beside := func(do func()) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do()
		})
	}
	for some := range slices.Chunk(singles, bindTogether) {
		beside(func() { c.together(ctx, some) })
	}
	for _, i := range gangs {
		beside(func() { c.alone(ctx, i) })
	}
	wg.Wait()
	return &corev1.BindResponse{Results: c.results}
}

// bindCall is one call of Bind.
type bindCall struct {
	registry *Registry
	lease    *coordinationv1.LeaseClaim
	groups   []*corev1.BindGroup
	results  []*corev1.BindGroupResult
}

func (c *bindCall) alone(ctx context.Context, group int) {
	c.results[group] = c.registry.bindGroup(ctx, c.groups[group].GetBindings(), c.lease)
}

// together binds groups of one pod in one transaction, which costs far less than one each. It rests on what the cache has, so
// only a commit counts: what cannot be bound along with the others is looked at by itself.
func (c *bindCall) together(ctx context.Context, groups []int) {
	for len(groups) > 1 {
		held, err := c.registry.cachedTerm(c.lease)
		if err != nil {
			break
		}
		w := bindWrite{now: time.Now()}
		var aboard []int // of groups, in the order of conditions and operations
		for _, i := range groups {
			if c.board(&w, c.groups[i].GetBindings()) {
				aboard = append(aboard, i)
			} else {
				c.alone(ctx, i)
			}
		}
		if len(aboard) == 0 {
			return
		}
		w.txn.If = append(w.txn.If, held...)
		revision, err := c.registry.commitBindings(ctx, &w)
		var conflict *storage.ConflictError
		switch {
		case errors.As(err, &conflict):
			// Those that have changed meanwhile stay behind, and the others go on: all stay where the lease has.
			groups = nil
			moved := func(c storage.Condition) bool {
				return slices.ContainsFunc(conflict.Current, func(e storage.Entry) bool { return e.Key == c.Key })
			}
			renewed := slices.ContainsFunc(held, moved)
			for k, i := range aboard {
				if renewed || moved(w.txn.If[k]) || len(conflict.Current) == 0 {
					c.alone(ctx, i)
				} else {
					groups = append(groups, i)
				}
			}
		case errors.Is(err, storage.ErrTooLarge):
			for _, i := range aboard {
				c.alone(ctx, i)
			}
			return
		default:
			if err != nil {
				err = c.registry.Of("Pod").storeError(err, "", "")
			}
			for _, i := range aboard {
				c.results[i] = bindResult(revision, err)
			}
			return
		}
	}
	for _, i := range groups {
		c.alone(ctx, i)
	}
}

// board adds a group of one pod to the transaction; false where there is anything about it.
func (c *bindCall) board(w *bindWrite, bindings []*corev1.Binding) bool {
	if checkBindings(bindings) != nil {
		return false
	}
	entries := c.registry.cachedPods(bindings)
	for key := range entries {
		if slices.ContainsFunc(w.txn.If, func(c storage.Condition) bool { return c.Key == key }) {
			return false // two groups name the same pod
		}
	}
	before := *w
	if err := c.registry.addBindings(w, bindings, entries); err != nil || len(w.txn.Then) == len(before.txn.Then) {
		*w = before // it is bound already, or cannot be
		return false
	}
	return true
}
