package registry

import (
	"context"

	"trireme.dev/client/apierr"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
)

// term is the condition under which a claim still holds when the commit happens: that the lease is as it was just read. A
// lease that is renewed in between makes the commit fail without harm, and the next try reads it again. None for no claim.
//
// With it nothing depends on clocks: a leader that was stopped for longer than its lease, and does not know it, is refused
// by the store itself.
func (r *Registry) term(ctx context.Context, claim *coordinationv1.LeaseClaim) ([]storage.Condition, error) {
	if claim == nil {
		return nil, nil
	}
	leases := r.Of("Lease")
	key, ok := leases.key(claim.GetNamespace(), claim.GetName())
	if !ok {
		return nil, fault(-1, "Invalid", "lease: namespace and name: Required value")
	}
	entry, found, _, err := r.store.Get(ctx, key)
	if err != nil {
		return nil, leases.storeError(err, claim.GetNamespace(), claim.GetName())
	}
	return leases.held(claim, entry, found)
}

// cachedTerm is term by what the cache knows, which may be old: no ground to refuse.
func (r *Registry) cachedTerm(claim *coordinationv1.LeaseClaim) ([]storage.Condition, error) {
	if claim == nil {
		return nil, nil
	}
	leases := r.Of("Lease")
	key, ok := leases.key(claim.GetNamespace(), claim.GetName())
	if !ok {
		return nil, fault(-1, "Invalid", "lease: namespace and name: Required value")
	}
	entry, found := leases.cached(key)
	return leases.held(claim, entry, found)
}

func (r *Resource) held(claim *coordinationv1.LeaseClaim, entry storage.Entry, found bool) ([]storage.Condition, error) {
	name := claim.GetNamespace() + "/" + claim.GetName()
	if !found {
		return nil, fault(-1, string(apierr.ReasonFailedPrecondition), "lease %s does not exist, %q does not hold it", name, claim.GetHolderIdentity())
	}
	lease := &coordinationv1.Lease{}
	if err := envelope.Decode(entry.Value, entry.Revision, lease); err != nil {
		return nil, r.corrupt(entry.Key, err)
	}
	spec := lease.GetSpec()
	switch {
	case spec.GetHolderIdentity() != claim.GetHolderIdentity():
		return nil, fault(-1, string(apierr.ReasonFailedPrecondition), "lease %s is held by %q, not by %q", name, spec.GetHolderIdentity(), claim.GetHolderIdentity())
	case spec.GetLeaseTransitions() != claim.GetLeaseTransitions():
		return nil, fault(-1, string(apierr.ReasonFailedPrecondition), "%q holds lease %s for another term than the one it claims", claim.GetHolderIdentity(), name)
	}
	return []storage.Condition{{Key: entry.Key, Revision: entry.Revision}}, nil
}
