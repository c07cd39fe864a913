// Package bind sends bindings to the gateway. It is the last stage of the scheduler's chain and implements
// framework.Binder.
//
// A group is sent at once while calls are few. While the allowed number of calls is under way, groups gather, and the
// next call takes all of them along, each as a group of its own: an idle scheduler waits for nothing, a busy one makes
// few calls. It never splits a group.
//
// A call that fails leaves open whether its groups are bound. Taking their room for free would put too much on a node, so
// the same binding, which does no harm twice, is sent until the gateway says what is true.
package bind

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/telemetry"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	// firstPause before a binding is sent again, doubled each time up to lastPause.
	firstPause, lastPause = 50 * time.Millisecond, 2 * time.Second

	// maxCalls under way at once: enough to keep the gateway busy while an answer travels.
	maxCalls = 4
	// maxBindings in one call, unless a single group is larger.
	maxBindings = 500
)

// Batcher implements framework.Binder. Make it with New.
type Batcher struct {
	pods   corev1.PodServiceClient
	seen   func(context.Context, int64) error
	logger *slog.Logger

	mu      sync.Mutex
	calls   int
	waiting []*job
	term    *coordinationv1.LeaseClaim
}

type job struct {
	ctx   context.Context
	group []*corev1.Binding
	done  chan error
}

// New returns a batcher that binds through conn. seen waits until the scheduler has seen all pods as they were at a
// revision.
func New(conn grpc.ClientConnInterface, seen func(context.Context, int64) error, logger *slog.Logger) *Batcher {
	return &Batcher{pods: corev1.NewPodServiceClient(conn), seen: seen, logger: logger}
}

// Lead has bindings made for a term from now on: the gateway refuses them once it is over. Nil for no such condition.
func (b *Batcher) Lead(term *coordinationv1.LeaseClaim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.term = term
}

// Bind implements framework.Binder. The error names the pod at fault where the gateway does. It blocks until it is known
// whether the group is bound; only where ctx ends before that may it be bound in spite of an error.
func (b *Batcher) Bind(ctx context.Context, group []*corev1.Binding) error {
	err := b.once(ctx, group)
	if err == nil || refused(err) {
		return err
	}
	b.logger.LogAttrs(ctx, slog.LevelWarn, "binding was not answered, asking again",
		slog.String(telemetry.KeyPod, group[0].GetNamespace()+"/"+group[0].GetPodName()),
		slog.Int(telemetry.KeyCount, len(group)), slog.Any(telemetry.KeyError, err))
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), err)
		case <-timer.C:
		}
		if err = b.once(ctx, group); err == nil {
			return nil
		}
		if settled(err) {
			return errors.Join(err, b.catchUp(ctx, group))
		}
	}
}

// refused reports whether the gateway has said that it did not bind, rather than nothing.
func refused(err error) bool {
	switch apierr.ReasonOf(err) {
	case apierr.ReasonUnavailable, apierr.ReasonTimeout, apierr.ReasonInternal, apierr.ReasonCanceled, "":
		return false
	}
	return true
}

// settled reports whether a refusal also rules out that an earlier call, of which nothing is known, binds the group yet: a
// pod can never be bound so, or the lease is lost.
func settled(err error) bool {
	var e *apierr.Error
	return errors.As(err, &e) && refused(err) && (e.Key != "" || e.Reason == apierr.ReasonFailedPrecondition)
}

// catchUp waits until the scheduler has seen what an earlier call may have done: the group may have been bound and one of
// its pods deleted since.
func (b *Batcher) catchUp(ctx context.Context, group []*corev1.Binding) error {
	var last int64
	for _, binding := range group {
		for {
			pod, err := b.pods.Get(ctx, &metav1.GetRequest{Namespace: binding.GetNamespace(), Name: binding.GetPodName()})
			if err = apierr.FromStatus(err); err == nil {
				revision, err := strconv.ParseInt(pod.GetMetadata().GetResourceVersion(), 10, 64)
				if err != nil {
					return fmt.Errorf("resource version of pod %s: %w", binding.GetPodName(), err)
				}
				last = max(last, revision)
				break
			}
			if apierr.IsNotFound(err) {
				break
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(lastPause):
			}
		}
	}
	return b.seen(ctx, last)
}

// once sends a group with the next call and waits for its answer.
func (b *Batcher) once(ctx context.Context, group []*corev1.Binding) error {
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
		batch, term := b.take(), b.term
		if len(batch) == 0 {
			b.calls--
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		b.call(batch, term)
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

func (b *Batcher) call(batch []*job, term *coordinationv1.LeaseClaim) {
	req := &corev1.BindRequest{Groups: make([]*corev1.BindGroup, len(batch)), Lease: term}
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
