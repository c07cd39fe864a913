package registry_test

import (
	"fmt"
	"sync"
	"testing"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// TestBindManyPodsInOneCall: pods that are bound by themselves in one call share transactions, and still each has a fate of its
// own, whatever is wrong with others and whatever is written to them meanwhile.
func TestBindManyPodsInOneCall(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	const n = 50
	one := func(b *corev1.Binding) *corev1.BindGroup { return &corev1.BindGroup{Bindings: []*corev1.Binding{b}} }
	var groups []*corev1.BindGroup
	for i := range n {
		p := must[*corev1.Pod](t)(e.pods.Create(ctx, pod(fmt.Sprint("p", i))))
		groups = append(groups, one(&corev1.Binding{
			Namespace: "default", PodName: p.GetMetadata().GetName(), PodUid: p.GetMetadata().GetUid(), NodeName: fmt.Sprint("n", i),
		}))
	}
	groups[3].Bindings[0].PodUid = "another"
	groups = append(groups,
		one(&corev1.Binding{Namespace: "default", PodName: "missing", NodeName: "n1"}),
		one(&corev1.Binding{Namespace: "default", PodName: "p7", NodeName: "elsewhere"}), // as is p7: one of the two
		one(&corev1.Binding{Namespace: "default", PodName: "p8"}),
		&corev1.BindGroup{},
	)
	want := map[int]string{3: "Conflict", n: "NotFound", n + 2: "Invalid", n + 3: "Invalid"}

	var writers sync.WaitGroup
	stop := make(chan struct{})
	written := make([]int, 4)
	for w := range written {
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				p, err := e.pods.Get(ctx, "default", fmt.Sprint("p", w*11))
				if err != nil {
					t.Error(err)
					return
				}
				p.Metadata.Labels = map[string]string{"written": fmt.Sprint(written[w] + 1)}
				if _, err := e.pods.Update(ctx, p); err == nil { // otherwise the binding came first
					written[w]++
				}
			}
		})
	}
	resp := must[*corev1.BindResponse](t)(e.raw.Bind(ctx, &corev1.BindRequest{Groups: groups}))
	close(stop)
	writers.Wait()

	if resp.GetResults()[n+1].GetError() == nil {
		groups[7], groups[n+1] = groups[n+1], groups[7]
		resp.Results[7], resp.Results[n+1] = resp.Results[n+1], resp.Results[7]
	}
	want[n+1] = "Conflict"
	for i, r := range resp.GetResults() {
		if got := r.GetError().GetReason(); got != want[i] {
			t.Errorf("group %d: %q %s, want %q", i, got, r.GetError().GetMessage(), want[i])
		}
	}
	for i := range n {
		node := groups[i].Bindings[0].GetNodeName()
		if i == 3 {
			node = ""
		}
		p := must[*corev1.Pod](t)(e.pods.Get(ctx, "default", fmt.Sprint("p", i)))
		if p.GetSpec().GetNodeName() != node {
			t.Errorf("p%d is on %q, want %q", i, p.GetSpec().GetNodeName(), node)
		}
		if w := i / 11; i%11 == 0 && w < len(written) && written[w] > 0 && p.GetMetadata().GetLabels()["written"] != fmt.Sprint(written[w]) {
			t.Errorf("p%d has label %q, want %d: a write was lost", i, p.GetMetadata().GetLabels()["written"], written[w])
		}
	}
	if r := must[*corev1.BindResponse](t)(e.raw.Bind(ctx, &corev1.BindRequest{Groups: groups[:3]})); r.GetResults()[1].GetError() != nil || r.GetResults()[1].GetResourceVersion() != "" {
		t.Errorf("binding again: %v", r)
	}
}
