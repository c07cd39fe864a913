// Package bind sends bindings to the gateway. It is the last stage of the scheduler's chain and implements
// framework.Binder.
//
// A group is sent at once while calls are few. While the allowed number of calls is under way, groups gather, and the
// next call takes all of them along, each as a group of its own: an idle scheduler waits for nothing, a busy one makes
// few calls. It never retries and never splits a group.
package bind

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

const (
	// maxCalls under way at once: enough to keep the gateway busy while an answer travels.
	maxCalls = 4
	// maxBindings in one call, unless a single group is larger.
	maxBindings = 500
)

// Batcher implements framework.Binder. Make it with New.
type Batcher struct {
	pods corev1.PodServiceClient

	mu      sync.Mutex
	calls   int
	waiting []*job
}

type job struct {
	ctx   context.Context
	group []*corev1.Binding
	done  chan error
}

// New returns a batcher that binds through conn.
func New(conn grpc.ClientConnInterface) *Batcher {
	return &Batcher{pods: corev1.NewPodServiceClient(conn)}
}

// Bind implements framework.Binder. The error names the pod at fault where the gateway does. Where the call itself
// fails or ctx ends, the group may have been bound all the same.
func (b *Batcher) Bind(ctx context.Context, group []*corev1.Binding) error {
	j := &job{ctx: ctx, group: group, done: make(chan error, 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, j)
	if b.calls < maxCalls {
		b.calls++
		// A goroutine of its own, so that a caller waits for its own group and not for those that gathered meanwhile. It
		// ends with the call, and every job waits for its call.
		go b.work()
	}
	b.mu.Unlock()
	return <-j.done
}

// work makes calls until nothing waits.
func (b *Batcher) work() {
	for {
		b.mu.Lock()
		batch := b.take()
		if len(batch) == 0 {
			b.calls--
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		b.call(batch)
	}
}

// take returns the groups of the next call.
func (b *Batcher) take() []*job {
	n, bindings := 0, 0
	for n < len(b.waiting) {
		bindings += len(b.waiting[n].group)
		if n > 0 && bindings > maxBindings {
			break
		}
		n++
	}
	batch := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	return batch
}

func (b *Batcher) call(batch []*job) {
	req := &corev1.BindRequest{Groups: make([]*corev1.BindGroup, len(batch))}
	for i, j := range batch {
		req.Groups[i] = &corev1.BindGroup{Bindings: j.group}
	}
	// All jobs share the scheduler's context, so the first one's speaks for all.
	ctx, told := begin(batch[0].ctx, batch)
	resp, err := b.pods.Bind(ctx, req)
	if err == nil && len(resp.GetResults()) != len(batch) {
		err = fmt.Errorf("bind: %d results for %d groups", len(resp.GetResults()), len(batch))
	} else {
		err = apierr.FromStatus(err)
	}
	for i, j := range batch {
		result := err
		if err == nil {
			result = groupError(j.group, resp.GetResults()[i].GetError())
		}
		j.done <- result
		told.end(j, result)
	}
}

func groupError(group []*corev1.Binding, e *corev1.BindError) error {
	if e == nil {
		return nil
	}
	out := &apierr.Error{Reason: apierr.Reason(e.GetReason()), Kind: "Pod", Message: e.GetMessage()}
	if i := int(e.GetIndex()); e.Index != nil && i >= 0 && i < len(group) {
		out.Key = group[i].GetNamespace() + "/" + group[i].GetPodName()
	}
	return out
}
