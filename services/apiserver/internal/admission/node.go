package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/apiserver/internal/authorization"
	"trireme.dev/services/apiserver/internal/registry"
	"trireme.dev/services/apiserver/internal/request"
)

// nodeRestriction holds the agent of a node to what is its own: it reads what authorization cannot, the objects. What
// authorization lets through and is not named here is as free as for anybody.
func nodeRestriction(ctx context.Context, w registry.Write) error {
	at := request.From(ctx)
	if _, ok := request.Node(at.Caller, ""); !ok {
		return nil
	}
	switch w.Kind.Message.Descriptor().FullName() {
	case "trireme.core.v1.Pod":
		return restrictPod(at, w)
	case "trireme.core.v1.Node":
		return restrictNode(at, w)
	case "trireme.coordination.v1.Lease":
		return restrictLease(at, w)
	case "trireme.core.v1.Event":
		return restrictEvent(at, w)
	}
	return nil
}

func restrictPod(at *request.Attributes, w registry.Write) error {
	if w.Operation == registry.Create {
		pod, _ := w.Object.(*corev1.Pod)
		return restrictNewPod(at, w, pod)
	}
	old, _ := w.Old.(*corev1.Pod)
	on := old.GetSpec().GetNodeName()
	node, _ := request.Node(at.Caller, on)
	switch {
	case on != node && w.Operation == registry.Delete:
		return forbidden(w, fmt.Sprintf("node %q can only delete pods with spec.nodeName set to itself", node))
	case on != node:
		return forbidden(w, fmt.Sprintf("node %q can only update pod status for pods with spec.nodeName set to itself", node))
	case w.Operation == registry.Update && w.Subresource != registry.Status:
		return forbidden(w, fmt.Sprintf("node %q may write the status of a pod, not the pod", node))
	}
	return nil
}

// restrictNewPod lets agents make nothing but mirror pods: what shows a pod that runs without the gateway. Such a one must not
// open anything to the agent that it could not see before.
func restrictNewPod(at *request.Attributes, w registry.Write, pod *corev1.Pod) error {
	meta, spec := pod.GetMetadata(), pod.GetSpec()
	node, _ := request.Node(at.Caller, spec.GetNodeName())
	if _, mirror := meta.GetAnnotations()[authorization.MirrorAnnotation]; !mirror {
		return forbidden(w, fmt.Sprintf("pod does not have %q annotation, node %q can only create mirror pods", authorization.MirrorAnnotation, node))
	}
	if spec.GetNodeName() != node {
		return forbidden(w, fmt.Sprintf("node %q can only create pods with spec.nodeName set to itself", node))
	}
	owners := meta.GetOwnerReferences()
	if len(owners) != 1 {
		return forbidden(w, fmt.Sprintf("node %q can only create pods with one owner reference, set to itself", node))
	}
	o := owners[0]
	if o.GetApiVersion() != "v1" || o.GetKind() != "Node" || o.GetName() != node || !o.GetController() || o.GetBlockOwnerDeletion() {
		return forbidden(w, fmt.Sprintf("node %q can only create pods with an owner reference set to itself, as controller and without blockOwnerDeletion", node))
	}
	if spec.GetServiceAccountName() != "" {
		return forbidden(w, fmt.Sprintf("node %q can not create pods that reference a service account", node))
	}
	for _, v := range spec.GetVolumes() {
		if v.GetPersistentVolumeClaim() != nil {
			return forbidden(w, fmt.Sprintf("node %q cannot create pods that reference persistentvolumeclaims", node))
		}
	}
	for _, resource := range []string{"secrets", "configmaps"} {
		if authorization.Refers(spec, resource) {
			return forbidden(w, fmt.Sprintf("node %q can not create pods that reference %s", node, resource))
		}
	}
	return nil
}

func restrictNode(at *request.Attributes, w registry.Write) error {
	if w.Operation == registry.Delete {
		return forbidden(w, "no agent of a node may delete one")
	}
	node, _ := w.Object.(*corev1.Node)
	name, _ := request.Node(at.Caller, node.GetMetadata().GetName())
	if name != node.GetMetadata().GetName() {
		return forbidden(w, fmt.Sprintf("node %q is not allowed to modify node %q", name, node.GetMetadata().GetName()))
	}
	if node.GetSpec().GetConfigSource() != nil {
		return forbidden(w, fmt.Sprintf("node %q is not allowed to set spec.configSource", name))
	}
	if w.Operation == registry.Create {
		if bad := badLabels(nil, node.GetMetadata().GetLabels()); len(bad) > 0 {
			return forbidden(w, fmt.Sprintf("node %q is not allowed to set the following labels: %s", name, strings.Join(bad, ", ")))
		}
		return nil
	}
	old, _ := w.Old.(*corev1.Node)
	if w.Subresource != registry.Status {
		if !sameTaints(old.GetSpec().GetTaints(), node.GetSpec().GetTaints()) {
			return forbidden(w, fmt.Sprintf("node %q is not allowed to modify taints", name))
		}
		if !slices.EqualFunc(old.GetMetadata().GetOwnerReferences(), node.GetMetadata().GetOwnerReferences(), sameMessage) {
			return forbidden(w, fmt.Sprintf("node %q is not allowed to modify ownerReferences", name))
		}
	}
	if bad := badLabels(old.GetMetadata().GetLabels(), node.GetMetadata().GetLabels()); len(bad) > 0 {
		return forbidden(w, fmt.Sprintf("is not allowed to modify labels: %s", strings.Join(bad, ", ")))
	}
	return nil
}

func sameTaints(a, b []*corev1.Taint) bool { return slices.EqualFunc(a, b, sameMessage) }

func sameMessage[M proto.Message](a, b M) bool { return proto.Equal(a, b) }

const restrictedPrefix = "node-restriction.kubernetes.io"

// Labels of Kubernetes' own namespaces that an agent may set on its node; the others say what only administrators know.
var (
	agentLabels = []string{
		"kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os",
		"beta.kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type",
		"failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
		"topology.kubernetes.io/region", "topology.kubernetes.io/zone",
	}
	agentPrefixes = []string{"kubelet.kubernetes.io", "node.kubernetes.io"}
)

// badLabels are those that differ and that an agent may not change, sorted.
func badLabels(old, next map[string]string) []string {
	var bad []string
	for _, key := range slices.Sorted(maps.Keys(union(old, next))) {
		before, had := old[key]
		after, has := next[key]
		if (had != has || before != after) && !agentMaySet(key) {
			bad = append(bad, key)
		}
	}
	return bad
}

func union(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

func agentMaySet(label string) bool {
	prefix, _, found := strings.Cut(label, "/")
	if !found {
		return true
	}
	in := func(domain string) bool { return prefix == domain || strings.HasSuffix(prefix, "."+domain) }
	if in(restrictedPrefix) {
		return false
	}
	if !in("kubernetes.io") && !in("k8s.io") || slices.Contains(agentLabels, label) {
		return true
	}
	return slices.ContainsFunc(agentPrefixes, in)
}

// restrictLease: a lease of the agent's is that of a node, whatever it names as its holder.
func restrictLease(at *request.Attributes, w registry.Write) error {
	obj := w.Object
	if obj == nil {
		obj = w.Old
	}
	meta := obj.GetMetadata()
	if meta.GetNamespace() != "kube-node-lease" || !request.IsNode(at.Caller, meta.GetName()) {
		node, _ := request.Node(at.Caller, "")
		return forbidden(w, fmt.Sprintf("node %q can only write leases in kube-node-lease with the name of the node", node))
	}
	return nil
}

// restrictEvent: what a node says is said in its own name, and it does not change what others have said.
func restrictEvent(at *request.Attributes, w registry.Write) error {
	for _, obj := range []registry.Object{w.Object, w.Old} {
		event, _ := obj.(*corev1.Event)
		if event != nil && !request.IsNode(at.Caller, event.GetSource().GetHost()) {
			node, _ := request.Node(at.Caller, "")
			return forbidden(w, fmt.Sprintf("node %q can only write events with source.host set to itself", node))
		}
	}
	return nil
}
