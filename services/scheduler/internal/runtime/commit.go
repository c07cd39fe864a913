package runtime

import (
	"context"
	"fmt"
	"slices"
	"time"

	recordv1 "trireme.dev/proto/gen/trireme/record/v1"
	"trireme.dev/services/scheduler/framework"
)

// RunReserve runs Reserve until one fails. The caller runs RunUnreserve then.
func (f *Framework) RunReserve(ctx context.Context, a framework.Assignment) *framework.Status {
	for at, p := range f.reserve {
		f.running.site.Store(f.running.reserve[at])
		begun := a.State.Begin()
		st := p.Reserve(ctx, a.State, a.Pod, a.Node)
		a.State.End(Reserve, p.Name(), begun, 1, st)
		if !st.IsSuccess() {
			st = st.WithPlugin(p.Name())
			if st.IsRejected() {
				return st
			}
			return asError("Reserve", st)
		}
	}
	return nil
}

// RunUnreserve runs Unreserve of all plugins in reverse order.
func (f *Framework) RunUnreserve(ctx context.Context, a framework.Assignment) {
	for _, p := range slices.Backward(f.reserve) {
		p.Unreserve(ctx, a.State, a.Pod, a.Node)
	}
}

// RunPermit asks all plugins. Where one says Wait and none refuses, the pod is held from now on, and the caller must
// call WaitOnPermit.
func (f *Framework) RunPermit(ctx context.Context, a framework.Assignment) *framework.Status {
	var (
		waits    map[string]time.Duration
		rejected *framework.Status
	)
	for at, p := range f.permit {
		f.running.site.Store(f.running.permit[at])
		begun := a.State.Begin()
		st, timeout := p.Permit(ctx, a.State, a.Pod, a.Node)
		a.State.End(Permit, p.Name(), begun, 1, st)
		st = st.WithPlugin(p.Name())
		switch {
		case st.IsSuccess():
		case st.IsWait():
			if waits == nil {
				waits = make(map[string]time.Duration)
			}
			waits[p.Name()] = min(timeout, framework.MaxPermitTimeout)
		case st.IsRejected():
			if rejected == nil {
				rejected = st
			}
		default:
			return asError("Permit", st)
		}
	}
	if rejected != nil {
		return rejected
	}
	if waits == nil {
		return nil
	}
	f.waiting.hold(a.Pod, waits)
	return framework.NewStatus(framework.Wait)
}

// WaitOnPermit blocks until the pod is let go or refused; at once where it is not held.
func (f *Framework) WaitOnPermit(ctx context.Context, pod *framework.PodInfo) *framework.Status {
	w := f.waiting.get(pod.UID())
	if w == nil {
		return nil
	}
	defer f.LetGo(pod.UID())
	select {
	case st := <-w.answer:
		return st
	case <-ctx.Done():
		return framework.AsStatus(fmt.Errorf("waiting at Permit: %w", ctx.Err()))
	}
}

// LetGo of a pod that waits no more is a step of its own: plugins look at who waits.
func (f *Framework) LetGo(uid string) {
	f.deps.Steps.Begin()
	f.ReleasePermit(uid)
	f.deps.Steps.End(&recordv1.Entry{Step: &recordv1.Entry_Released{Released: &recordv1.Released{Pod: uid}}})
}

// RunBind asks plugins until one does not skip.
func (f *Framework) RunBind(ctx context.Context, group []framework.Assignment) *framework.Status {
	for _, p := range f.bind {
		st := p.Bind(ctx, group)
		if st.IsSkip() {
			continue
		}
		if !st.IsSuccess() {
			return asError("Bind", st.WithPlugin(p.Name()))
		}
		return nil
	}
	return framework.AsStatus(fmt.Errorf("all %d bind plugins skipped", len(f.bind)))
}

// RunPostBind tells all plugins.
func (f *Framework) RunPostBind(ctx context.Context, a framework.Assignment) {
	for _, p := range f.postBind {
		p.PostBind(ctx, a.State, a.Pod, a.Node)
	}
}
