package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/informer"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// alternating is a connection whose streams go to one gateway and the other in turn: who resumes does so elsewhere.
type alternating struct {
	*grpc.ClientConn

	conns [2]*grpc.ClientConn
	next  atomic.Int64
}

func (a *alternating) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return a.conns[a.next.Add(1)%2].NewStream(ctx, desc, method, opts...)
}

// informed is an informer of the round, and a copy made of nothing but what its handler heard.
type informed[T object] struct {
	interest interest
	informer *informer.Informer[T]

	mu    sync.Mutex
	heard map[string]T
	moved chan struct{}
	wrong []string
}

// observer is an informed of any kind.
type observer interface {
	check(ctx context.Context, m *model)
}

func inform[T object](f *informer.Factory, i interest) *informed[T] {
	in := &informed[T]{
		interest: i, heard: map[string]T{}, moved: make(chan struct{}),
		informer: informer.Of[T](f, informer.Config{Namespace: i.namespace, LabelSelector: i.labels, FieldSelector: i.fields}),
	}
	in.informer.AddHandler(informer.Handler[T]{
		Add:    func(o T, _ bool) { in.hear("add", nil, o, false) },
		Update: func(before, after T) { in.hear("update", before, after, true) },
		Delete: func(last T) { in.hear("delete", nil, last, true) },
	})
	return in
}

// hear takes what the handler is told. What it is told of must follow from what it was told before.
func (in *informed[T]) hear(what string, before object, o T, knows bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	key := o.GetMetadata().GetNamespace() + "/" + o.GetMetadata().GetName()
	known, ok := in.heard[key]
	switch {
	case ok != knows:
		in.wrong = append(in.wrong, fmt.Sprintf("%s of %s, known: %v", what, key, ok))
	case before != nil && !proto.Equal(before, known):
		in.wrong = append(in.wrong, fmt.Sprintf("update of %s from a state that was never heard of", key))
	case ok && what == "update" && revisionOf(o) <= revisionOf(known):
		in.wrong = append(in.wrong, fmt.Sprintf("%s of %s to %d after %d", what, key, revisionOf(o), revisionOf(known)))
	}
	if what == "delete" {
		delete(in.heard, key)
	} else {
		in.heard[key] = o
	}
	close(in.moved)
	in.moved = make(chan struct{})
}

func revisionOf(o object) int64 {
	n, _ := strconv.ParseInt(o.GetMetadata().GetResourceVersion(), 10, 64) // a gateway wrote it
	return n
}

// settleTimeout is how long an informer may take to come to a state that changes no more.
const settleTimeout = 30 * time.Second

// check waits until the informer has come to where the round ends. Its store, and what its handler was told, must be a
// list at the same revision. Both may still be on their way there, so it looks again after each thing heard.
func (in *informed[T]) check(ctx context.Context, m *model) {
	if err := in.informer.WaitForRevision(ctx, m.target.Load()); err != nil {
		m.complain("informer %v at %d: %v", in.interest, in.informer.Revision(), err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for {
		in.mu.Lock()
		moved := in.moved
		in.mu.Unlock()
		wrong, err := in.compare(ctx, m)
		if err != nil {
			m.complain("informer %v: list: %v", in.interest, err)
			return
		}
		if wrong == "" {
			break
		}
		select {
		case <-moved:
		case <-time.After(100 * time.Millisecond): // the store may move without the handler
		case <-ctx.Done():
			m.complain("informer %v: %s", in.interest, wrong)
			return
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, wrong := range in.wrong {
		m.complain("handler of %v: %s", in.interest, wrong)
	}
}

// compare says in what the informer differs from a list at its revision.
func (in *informed[T]) compare(ctx context.Context, m *model) (string, error) {
	at := in.informer.Revision()
	items, _, err := listAll(ctx, m.cluster.conns[0], in.interest.subject.service, &metav1.ListRequest{
		Namespace: in.interest.namespace, LabelSelector: in.interest.labels, FieldSelector: in.interest.fields,
		ResourceVersion: str(at), ResourceVersionMatch: "Exact",
	})
	if err != nil {
		return "", err
	}
	want := map[string]item{}
	for _, i := range items {
		want[i.key] = i
	}
	stored := in.informer.Lister().List("", nil)
	for _, o := range stored {
		key := o.GetMetadata().GetNamespace() + "/" + o.GetMetadata().GetName()
		if i, ok := want[key]; !ok || !i.is(o, in.interest.subject) {
			return fmt.Sprintf("at %d it has %s@%d, listed: %v", at, key, revisionOf(o), ok), nil
		}
	}
	switch {
	case len(stored) != len(want):
		return fmt.Sprintf("at %d it has %d objects, listed %d", at, len(stored), len(want)), nil
	case !in.heardAll(want):
		return fmt.Sprintf("its handler does not come to the state at %d", at), nil
	}
	return "", nil
}

func (in *informed[T]) heardAll(want map[string]item) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for key, i := range want {
		o, ok := in.heard[key]
		if !ok || !i.is(o, in.interest.subject) {
			return false
		}
	}
	return len(in.heard) == len(want)
}

// informers are run through the round, by two programs: one knows a single gateway, the other goes to each in turn.
func (m *model) informers(ctx context.Context, running *sync.WaitGroup) []observer {
	var out []observer
	conns := m.cluster.conns
	for _, conn := range []grpc.ClientConnInterface{conns[0], &alternating{ClientConn: conns[0], conns: conns}} {
		f := informer.NewFactory(conn, slog.New(slog.DiscardHandler))
		for _, i := range interests {
			if i.subject == pods {
				out = append(out, inform[*corev1.Pod](f, i))
			} else {
				out = append(out, inform[*corev1.ConfigMap](f, i))
			}
		}
		running.Go(func() {
			if err := f.Run(ctx); err != nil {
				m.complain("informers: %v", err)
			}
		})
	}
	return out
}

var _ client.Object = object(nil)
