package registry

import (
	"context"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/request"
	"trireme.dev/services/apiserver/internal/storage"
)

// strategy is what a kind does differently. Every hook may be nil. A kind that is not in strategyOf has none.
type strategy struct {
	// prepareCreate sets what the gateway decides on a new object, before defaults.
	prepareCreate func(obj Object)
	// prepareUpdate restores what an update may not touch.
	prepareUpdate func(next, old Object)
	// validateUpdate refuses changes that the kind's schema cannot rule out.
	validateUpdate func(next, old Object) []apierr.Violation
	// grace is how many seconds a deletion leaves the object.
	grace func(obj Object, opts *metav1.DeleteOptions) int64
	// prepareDelete marks an object whose deletion begins or is brought forward.
	prepareDelete func(obj Object)
	// holds reports whether something besides finalizers and grace keeps a deleted object.
	holds func(obj Object) bool
}

func strategyOf(k *kind.Kind) strategy {
	switch k.Message.Descriptor().FullName() {
	case "trireme.core.v1.Pod":
		return podStrategy
	case "trireme.core.v1.Namespace":
		return namespaceStrategy
	case "trireme.core.v1.PersistentVolumeClaim":
		return claimStrategy
	case "trireme.scheduling.v1.Workload":
		return strategy{validateUpdate: validateWorkloadUpdate}
	case "trireme.core.v1.Node":
		// A node agent registers its node together with what it found on the machine.
		return strategy{}
	case "trireme.core.v1.Service":
		return strategy{}
	}
	if k.HasStatus {
		return strategy{prepareCreate: clearStatus}
	}
	return strategy{}
}

// clearStatus drops the status of a new object: only its owner writes it, once it has seen the object.
func clearStatus(obj Object) {
	m := obj.ProtoReflect()
	m.Clear(m.Descriptor().Fields().ByName("status"))
}

// namespaceFinalizer is what the namespace controller removes once the namespace is empty.
const namespaceFinalizer = "kubernetes"

var namespaceStrategy = strategy{
	prepareCreate: func(obj Object) {
		ns, _ := obj.(*corev1.Namespace)
		ns.Spec = &corev1.NamespaceSpec{Finalizers: []string{namespaceFinalizer}}
		ns.Status = &corev1.NamespaceStatus{Phase: phaseActive}
	},
	prepareUpdate: func(next, old Object) {
		// Only the namespace controller takes finalizers off, and only once deletion has begun. An update that says nothing
		// of spec, as a manifest does, must not take them off either: the namespace would go before what is in it.
		n, _ := next.(*corev1.Namespace)
		o, _ := old.(*corev1.Namespace)
		if o.GetMetadata().GetDeletionTimestamp() == nil || n.GetSpec() == nil {
			n.Spec = o.GetSpec()
		}
	},
	prepareDelete: func(obj Object) {
		ns, _ := obj.(*corev1.Namespace)
		if ns.Status == nil {
			ns.Status = &corev1.NamespaceStatus{}
		}
		ns.Status.Phase = phaseTerminating
	},
	holds: func(obj Object) bool {
		ns, _ := obj.(*corev1.Namespace)
		return len(ns.GetSpec().GetFinalizers()) > 0
	},
}

const (
	phaseActive      = "Active"
	phaseTerminating = "Terminating"
)

// NamespaceState is what admission needs to know of a namespace.
type NamespaceState int

// The states.
const (
	NamespaceMissing NamespaceState = iota
	NamespaceActive
	NamespaceTerminating
)

// Namespace returns the state of a namespace. What the mirror says is believed only if it allows the write: a namespace
// created a moment ago may not have reached it.
func (r *Registry) Namespace(ctx context.Context, name string) (NamespaceState, error) {
	res := r.Of("Namespace")
	if m := r.mirrors["Namespace"]; m != nil {
		if obj, ok := m.get(ctx, name); ok && namespaceState(obj) == NamespaceActive {
			return NamespaceActive, nil
		}
	}
	obj, _, err := res.load(ctx, "", name)
	if apierr.IsNotFound(err) {
		return NamespaceMissing, nil
	}
	if err != nil {
		return NamespaceMissing, err
	}
	return namespaceState(obj), nil
}

func namespaceState(obj Object) NamespaceState {
	if obj.GetMetadata().GetDeletionTimestamp() != nil {
		return NamespaceTerminating
	}
	return NamespaceActive
}

// Find returns an object of a cluster-scoped kind that is mirrored, decoded and shared: it must not be modified.
func (r *Registry) Find(ctx context.Context, kindName, name string) (Object, error) {
	if m := r.mirrors[kindName]; m != nil {
		if obj, ok := m.get(ctx, name); ok {
			return obj, nil
		}
	}
	obj, _, err := r.Of(kindName).load(ctx, "", name)
	return obj, err
}

// FindAll returns all objects of a mirrored kind; they must not be modified.
func (r *Registry) FindAll(ctx context.Context, kindName string) ([]Object, error) {
	if m := r.mirrors[kindName]; m != nil {
		if all, ok := m.all(ctx); ok {
			return all, nil
		}
	}
	res := r.Of(kindName)
	page, err := r.store.List(ctx, res.prefix, storage.ListOptions{})
	if err != nil {
		return nil, res.storeError(err, "", "")
	}
	out := make([]Object, 0, len(page.Entries))
	for _, entry := range page.Entries {
		// One that is no object must not stop the writes that ask for all.
		if obj, err := res.decode(entry); err == nil {
			out = append(out, obj)
		}
	}
	return out, nil
}

// Ensure creates an object unless one of its name exists.
func (r *Registry) Ensure(ctx context.Context, kindName string, obj Object) error {
	clone, _ := proto.Clone(obj).(Object)
	_, err := r.Of(kindName).Create(request.Internal(ctx), clone, nil)
	if apierr.IsAlreadyExists(err) {
		return nil
	}
	return err
}
