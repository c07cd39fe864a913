package schema_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/kind"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// BenchmarkValidatePod is what validation costs a pod as controllers make them: tolerations of admission, a variable from
// a field, devices.
func BenchmarkValidatePod(b *testing.B) {
	k, _ := kind.Builtin().ByManifest("v1", "Pod")
	s, err := compiler(b).Compile(k)
	if err != nil {
		b.Fatal(err)
	}
	toleration := func(key string) *corev1.Toleration {
		return &corev1.Toleration{
			Key: proto.String(key), Operator: proto.String("Exists"), Effect: proto.String("NoExecute"), TolerationSeconds: proto.Int64(300),
		}
	}
	pod := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "p", Labels: map[string]string{"app": "web"}},
		Spec: &corev1.PodSpec{
			Containers: []*corev1.Container{{
				Name: "c", Image: "registry.example/app:1",
				Env: []*corev1.EnvVar{
					{Name: "A", Value: proto.String("1")},
					{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
				},
				Resources: &corev1.ResourceRequirements{Limits: map[string]string{"nvidia.com/gpu": "1", "memory": "1Gi"}},
			}},
			Tolerations: []*corev1.Toleration{toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable")},
		},
	}
	s.Default(pod)
	if v := s.ValidateCreate(pod); len(v) > 0 {
		b.Fatal(v)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.ValidateCreate(pod)
	}
}
