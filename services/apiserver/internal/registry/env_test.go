package registry_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// env is a gateway with the clients that tests use.
type env struct {
	*apitest.Server
	pods  *client.Resource[*corev1.Pod]
	maps  *client.Resource[*corev1.ConfigMap]
	raw   corev1.PodServiceClient
	cmRaw corev1.ConfigMapServiceClient
}

func newEnv(t *testing.T) *env {
	s := apitest.New(t)
	return &env{
		Server: s,
		pods:   client.For[*corev1.Pod](s.Conn()), maps: client.For[*corev1.ConfigMap](s.Conn()),
		raw: corev1.NewPodServiceClient(s.Conn()), cmRaw: corev1.NewConfigMapServiceClient(s.Conn()),
	}
}

func pod(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "registry.example/app:1"}}},
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"k": value}}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// wantError fails unless err has the reason and its text contains all parts.
func wantError(t *testing.T, err error, reason apierr.Reason, parts ...string) {
	t.Helper()
	err = apierr.FromStatus(err)
	if got := apierr.ReasonOf(err); got != reason {
		t.Fatalf("error %v has reason %q, want %q", err, got, reason)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Fatalf("error %q does not contain %q", err, p)
		}
	}
}

func clone[T proto.Message](m T) T {
	c, _ := proto.Clone(m).(T)
	return c
}
