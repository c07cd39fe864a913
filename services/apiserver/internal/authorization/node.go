package authorization

import (
	"context"
	"fmt"

	"trireme.dev/client/apierr"
	"trireme.dev/client/selector"
	"trireme.dev/services/apiserver/internal/request"
)

// nodeRule allows verbs on resources, where check finds the object to be the node's. A nil check finds nothing wrong.
type nodeRule struct {
	verbs, resources string
	check            check
}

// check returns nil where a node may do what a call asks for. doubt says that the answer follows from the watch cache, which
// may be behind.
type check func(a *Authorizer, at *request.Attributes) (doubt bool, err error)

const nodeLeases = "kube-node-lease"

// authorizeNode decides for the agent of a node.
func (a *Authorizer) authorizeNode(ctx context.Context, at *request.Attributes) error {
	found, ok := a.nodes[permission{at.Verb, resourceOf(at)}]
	switch {
	case !ok:
		return forbidden(at, "no agent of a node may")
	case found == nil:
		return nil
	}
	doubt, err := found(a, at)
	if err != nil && doubt {
		// What makes it the node's may have been committed a moment ago, by way of another gateway.
		if err := a.objects.CatchUp(ctx); err != nil {
			return err
		}
		_, err = found(a, at)
	}
	return err
}

// refuse says that the object is not the node's; format has a place for the node's name.
func refuse(at *request.Attributes, format string) error {
	node, _ := request.Node(at.Caller, at.Name)
	return forbidden(at, fmt.Sprintf(format, node))
}

// itself: the node that the agent is of.
func itself(_ *Authorizer, at *request.Attributes) (bool, error) {
	if request.IsNode(at.Caller, at.Name) {
		return false, nil
	}
	return false, refuse(at, "node %q may write no other node")
}

func ownLease(_ *Authorizer, at *request.Attributes) (bool, error) {
	if at.Namespace == nodeLeases && request.IsNode(at.Caller, at.Name) {
		return false, nil
	}
	return false, refuse(at, "node %q has one lease, of its own name in "+nodeLeases)
}

func ownPod(a *Authorizer, at *request.Attributes) (bool, error) {
	node, ok := a.objects.NodeOf(at.Namespace, at.Name)
	switch {
	case !ok:
		// An agent must hear that a pod is gone, and who reads the store after this may find another one of its name.
		return true, apierr.NotFound(at.Kind, at.Namespace+"/"+at.Name)
	case request.IsNode(at.Caller, node):
		return false, nil
	}
	return true, refuse(at, "the pod is not bound to node %q")
}

// selectsOwnPods: a list or watch that shows no other node's pods.
func selectsOwnPods(_ *Authorizer, at *request.Attributes) (bool, error) {
	if node, ok := selected(at, "spec.nodeName"); ok && request.IsNode(at.Caller, node) {
		return false, nil
	}
	return false, refuse(at, "node %[1]q sees pods with the field selector spec.nodeName=%[1]s only")
}

// named: one object that a pod of the node names.
func named(a *Authorizer, at *request.Attributes) (bool, error) {
	name := at.Name
	if at.Verb != request.Get {
		var ok bool
		if name, ok = selected(at, "metadata.name"); !ok {
			return false, refuse(at, "node %q sees one of them at a time, with the field selector metadata.name=NAME")
		}
	}
	if at.Namespace == "" {
		return false, refuse(at, "node %q sees one of them at a time, in a namespace")
	}
	for _, node := range a.nodesOf(at) {
		if a.names(node, at.Resource, at.Namespace, name) {
			return false, nil
		}
	}
	return true, refuse(at, "no pod of node %q names it")
}

// nodesOf returns the nodes that the caller is the agent of.
func (a *Authorizer) nodesOf(at *request.Attributes) []string {
	own, _ := request.Node(at.Caller, "")
	nodes := []string{own}
	for _, name := range at.Caller.DNSNames {
		if name != own && request.IsNode(at.Caller, name) {
			nodes = append(nodes, name)
		}
	}
	return nodes
}

// names reports whether a pod of the node names an object.
func (a *Authorizer) names(node, resource, namespace, name string) bool {
	found := false
	a.objects.PodsOn(node, func(podNamespace, _ string, pod []byte) bool {
		found = podNamespace == namespace && a.references.name(pod, resource, name)
		return !found
	})
	return found
}

// selected returns the one value that a list or watch selects by a field.
func selected(at *request.Attributes, path string) (string, bool) {
	if at.FieldSelector == "" {
		return "", false
	}
	fields, err := selector.ParseFields(at.FieldSelector)
	if err != nil {
		return "", false
	}
	for _, r := range fields.Requirements() {
		if r.Path == path && !r.Negated && r.Value != "" {
			return r.Value, true
		}
	}
	return "", false
}
