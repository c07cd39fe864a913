package nodeaffinity

import corev1 "trireme.dev/proto/gen/trireme/core/v1"

// Matches reports whether the node meets the pod's nodeSelector and required node affinity. Constrains tells whether there
// is anything to meet.
func Matches(pod *corev1.Pod, node *corev1.Node) bool { return matchesNode(pod, node) }

// Constrains reports whether the pod has a nodeSelector or a required node affinity.
func Constrains(pod *corev1.Pod) bool {
	return len(pod.GetSpec().GetNodeSelector()) > 0 || required(pod.GetSpec()) != nil
}

// Selects reports whether a node selector, such as that of a volume, matches the node. An absent one matches every node.
func Selects(selector *corev1.NodeSelector, node *corev1.Node) bool {
	return selector == nil || matchesSelector(selector, node.GetMetadata().GetLabels(), node.GetMetadata().GetName())
}
