package apitest_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPodFromCreateToDelete(t *testing.T) {
	s := apitest.New(t)
	pods := corev1.NewPodServiceClient(s.Conn())
	ctx := t.Context()
	created, err := pods.Create(ctx, &corev1.CreatePodRequest{Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", GenerateName: "web-"},
		Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "nginx:1.27"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := pods.Watch(ctx, &metav1.WatchRequest{ResourceVersion: created.Metadata.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	name := created.Metadata.Name
	bound, err := pods.Bind(ctx, &corev1.BindRequest{Groups: []*corev1.BindGroup{{Bindings: []*corev1.Binding{{
		Namespace: "default", PodName: name, PodUid: created.Metadata.Uid, NodeName: "n1",
	}}}}})
	if err != nil || bound.Results[0].GetError() != nil {
		t.Fatal(err, bound)
	}
	resp, err := watch.Recv()
	if err != nil {
		t.Fatal(err)
	}
	pod := resp.Events[0].Object
	if pod.GetSpec().GetNodeName() != "n1" || pod.GetMetadata().GetResourceVersion() != bound.Results[0].GetResourceVersion() {
		t.Fatalf("watch saw %v", pod)
	}
	pod.Status.Phase = "Running"
	if _, err = pods.UpdateStatus(ctx, &corev1.UpdatePodStatusRequest{Object: pod}); err != nil {
		t.Fatal(err)
	}
	if pod, err = pods.Delete(ctx, &metav1.DeleteRequest{Namespace: "default", Name: name}); err != nil {
		t.Fatal(err)
	}
	if pod.GetMetadata().GetDeletionTimestamp() == nil || pod.GetMetadata().GetDeletionGracePeriodSeconds() != 30 {
		t.Fatalf("delete of a running pod: %v", pod.GetMetadata())
	}
	if _, err = pods.Delete(ctx, &metav1.DeleteRequest{Namespace: "default", Name: name, Options: &metav1.DeleteOptions{GracePeriodSeconds: proto.Int64(0)}}); err != nil {
		t.Fatal(err)
	}
	// A response may carry several events.
	var got []metav1.WatchEventType
	for len(got) < 3 {
		resp, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range resp.Events {
			got = append(got, e.Type)
		}
	}
	if want := []metav1.WatchEventType{2, 2, 3}; !slices.Equal(got, want) {
		t.Fatalf("events %v, want %v", got, want)
	}
}
