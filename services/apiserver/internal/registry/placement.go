package registry

import (
	"context"

	"trireme.dev/services/apiserver/internal/watchcache"
)

// fieldNode is the node that a pod is bound to.
const fieldNode = "spec.nodeName"

// lookups are the indexes by which the present state of the kind can be looked up.
func (r *Resource) lookups() []string {
	if _, ok := r.fields[fieldNode]; ok && r.Kind.Name == "Pod" {
		return []string{fieldNode}
	}
	return nil
}

// PodsOn calls fn with the pods that are bound to a node, in bytes, as far as the watch cache has come, until it returns
// false. It costs as much as there are pods on the node.
func (r *Registry) PodsOn(node string, fn func(namespace, name string, pod []byte) bool) {
	for _, o := range r.cache.Lookup(r.Of("Pod").prefix, fieldNode, node) {
		payload, err := o.Payload()
		if err != nil {
			continue // whoever reads the pod is told
		}
		if namespace, name := watchcache.SplitKey(o.Key); !fn(namespace, name, payload) {
			return
		}
	}
}

// CatchUp waits until the watch cache has seen all that was committed before the call, for three seconds at most.
func (r *Registry) CatchUp(ctx context.Context) error {
	revision, err := r.cache.Latest(ctx)
	if err != nil {
		return r.Of("Pod").storeError(err, "", "")
	}
	_, err = r.Of("Pod").notOlderThan(ctx, revision)
	return err
}

// NodeOf returns the node that a pod is bound to, as far as the watch cache has come: empty for none. False where it knows
// of no such pod.
func (r *Registry) NodeOf(namespace, name string) (node string, ok bool) {
	pods := r.Of("Pod")
	key, ok := pods.key(namespace, name)
	if !ok {
		return "", false
	}
	object, ok := r.cache.Find(pods.prefix, key)
	if !ok {
		return "", false
	}
	payload, err := object.Payload()
	if err != nil {
		return "", true
	}
	node, _ = pods.fields[fieldNode].read(payload) // of bytes that it cannot read: none
	return node, true
}
