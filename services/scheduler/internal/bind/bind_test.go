package bind

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gate is a connection that counts calls and holds them until it is opened.
type gate struct {
	grpc.ClientConnInterface
	open chan struct{}

	mu     sync.Mutex
	groups []int // of each call
	begun  chan struct{}
}

func (g *gate) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	g.mu.Lock()
	g.groups = append(g.groups, len(args.(*corev1.BindRequest).GetGroups()))
	g.mu.Unlock()
	g.begun <- struct{}{}
	<-g.open
	return g.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

// TestBusyCallsTakeMany: while all calls are under way groups gather, and one call takes them; one that cannot be bound
// fails alone.
func TestBusyCallsTakeMany(t *testing.T) {
	api := apitest.New(t)
	g := &gate{ClientConnInterface: api.Conn(), open: make(chan struct{}), begun: make(chan struct{}, 100)}
	b := New(g, nil, slog.New(slog.DiscardHandler))
	const n = 40
	var pods [n]*corev1.Pod
	for i := range pods {
		p, err := client.For[*corev1.Pod](api.Conn()).Create(t.Context(), &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Name: fmt.Sprintf("p%d", i), Namespace: "default"},
			Spec:     &corev1.PodSpec{Containers: []*corev1.Container{{Name: "c", Image: "i"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		pods[i] = p
	}
	pods[n-1].Metadata.Uid = "another"
	errs := make([]error, n)
	var wg sync.WaitGroup
	bind := func(i int) {
		wg.Go(func() {
			errs[i] = b.Bind(t.Context(), []*corev1.Binding{{
				Namespace: "default", PodName: pods[i].GetMetadata().GetName(), PodUid: pods[i].GetMetadata().GetUid(), NodeName: "n1",
			}})
		})
	}
	for i := range maxCalls {
		bind(i)
		<-g.begun // at once, by itself
	}
	for i := maxCalls; i < n; i++ {
		bind(i)
	}
	for waiting := 0; waiting < n-maxCalls; { // until all of them have queued up
		b.mu.Lock()
		waiting = len(b.waiting)
		b.mu.Unlock()
	}
	close(g.open)
	wg.Wait()
	for i, err := range errs {
		if i == n-1 {
			if !apierr.IsConflict(err) {
				t.Errorf("pod of another uid: %v, want a conflict", err)
			}
		} else if err != nil {
			t.Errorf("pod %d: %v", i, err)
		}
	}
	if len(g.groups) != maxCalls+1 {
		t.Errorf("calls of %v groups, want %d of one and one of the rest", g.groups, maxCalls)
	}
}
