package admission

import (
	"context"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/apiserver/internal/registry"
)

const (
	taintNotReady    = "node.kubernetes.io/not-ready"
	taintUnreachable = "node.kubernetes.io/unreachable"
	// tolerationSeconds is how long a pod stays on a node that is not ready or cannot be reached.
	tolerationSeconds = 300
)

// defaultTolerationSeconds lets pods sit out short failures of their node, unless they say otherwise.
func defaultTolerationSeconds(_ context.Context, w registry.Write) error {
	pod, ok := w.Object.(*corev1.Pod)
	if !ok || pod.GetSpec() == nil {
		return nil
	}
	for _, key := range []string{taintNotReady, taintUnreachable} {
		if !tolerates(pod.GetSpec().GetTolerations(), key) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, &corev1.Toleration{
				Key: proto.String(key), Operator: proto.String("Exists"), Effect: proto.String("NoExecute"),
				TolerationSeconds: proto.Int64(tolerationSeconds),
			})
		}
	}
	return nil
}

func tolerates(tolerations []*corev1.Toleration, key string) bool {
	for _, t := range tolerations {
		if (t.GetKey() == key || t.GetKey() == "") && (t.GetEffect() == "NoExecute" || t.GetEffect() == "") {
			return true
		}
	}
	return false
}
