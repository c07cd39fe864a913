package reconcile

import (
	"trireme.dev/client"
	"trireme.dev/client/informer"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// KeyOf names an object.
func KeyOf(object client.Object) Key {
	meta := object.GetMetadata()
	return Key{Namespace: meta.GetNamespace(), Name: meta.GetName()}
}

// ControllerOf returns the one owner that manages the object, or nil.
func ControllerOf(object client.Object) *metav1.OwnerReference {
	for _, owner := range object.GetMetadata().GetOwnerReferences() {
		if owner.GetController() {
			return owner
		}
	}
	return nil
}

// ByController is the index of IndexByController.
const ByController = "controller"

// IndexByController has an informer's lister find objects by the UID of their controller, under ByController. All
// controllers that ask for it share one index.
func IndexByController[T client.Object](i *informer.Informer[T]) {
	i.AddIndex(ByController, func(object T) []string {
		if owner := ControllerOf(object); owner != nil {
			return []string{owner.GetUid()}
		}
		return nil
	})
}

// OwnerKey names the object's controller where that is of the kind given: ReplicaSet.
func OwnerKey(object client.Object, kind string) (Key, bool) {
	owner := ControllerOf(object)
	if owner == nil || owner.GetKind() != kind {
		return Key{}, false
	}
	return Key{Namespace: object.GetMetadata().GetNamespace(), Name: owner.GetName()}, true
}

// EnqueueSelf returns a handler that enqueues the key of every object that changes.
func EnqueueSelf[T client.Object](r *Runner) informer.Handler[T] {
	h := EnqueueMapped(r, func(object T) []Key { return []Key{KeyOf(object)} })
	add, remove := h.Add, h.Delete
	h.Add = func(object T, initial bool) {
		if !initial || untouched(object) {
			r.sights.saw(object)
		}
		add(object, initial)
	}
	h.Delete = func(last T) {
		r.sights.gone(last)
		remove(last)
	}
	return h
}

// EnqueueOwner returns a handler that enqueues the controller of every object that changes, where it is of the kind
// given. An object that moves from one controller to another wakes both.
func EnqueueOwner[T client.Object](r *Runner, kind string) informer.Handler[T] {
	return EnqueueMapped(r, func(object T) []Key {
		if key, ok := OwnerKey(object, kind); ok {
			return []Key{key}
		}
		return nil
	})
}

// EnqueueMapped returns a handler that enqueues the keys that keys gives for every object that changes; of an update
// those of both states.
func EnqueueMapped[T client.Object](r *Runner, keys func(T) []Key) informer.Handler[T] {
	enqueue := func(object T) {
		for _, key := range keys(object) {
			r.Enqueue(key)
		}
	}
	return informer.Handler[T]{
		Add: func(object T, _ bool) { enqueue(object) },
		Update: func(before, after T) {
			enqueue(before)
			enqueue(after)
		},
		Delete: enqueue,
	}
}
