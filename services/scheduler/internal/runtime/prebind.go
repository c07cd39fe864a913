package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"trireme.dev/services/scheduler/framework"
)

// PreBinding is what PreBindPreFlight found out.
type PreBinding struct {
	// Work is set where some plugin has something to do.
	Work   bool
	groups [][]framework.PreBindPlugin
}

// RunPreBindPreFlight asks plugins what there will be to do at PreBind.
func (f *Framework) RunPreBindPreFlight(ctx context.Context, a framework.Assignment) (PreBinding, *framework.Status) {
	var (
		out  PreBinding
		open []framework.PreBindPlugin // a group of parallel ones that may grow
	)
	for _, p := range f.preBind {
		flight, st := p.PreBindPreFlight(ctx, a.State, a.Pod, a.Node)
		if !st.IsSuccess() && !st.IsSkip() {
			return PreBinding{}, asError("PreBindPreFlight", st.WithPlugin(p.Name()))
		}
		if !flight.AllowParallel {
			out.groups, open = closeGroup(out.groups, open), nil
		}
		if st.IsSkip() {
			continue
		}
		out.Work = true
		if flight.AllowParallel {
			open = append(open, p)
		} else {
			out.groups = append(out.groups, []framework.PreBindPlugin{p})
		}
	}
	out.groups = closeGroup(out.groups, open)
	return out, nil
}

func closeGroup(groups [][]framework.PreBindPlugin, open []framework.PreBindPlugin) [][]framework.PreBindPlugin {
	if len(open) == 0 {
		return groups
	}
	return append(groups, open)
}

// RunPreBind runs one group of plugins after the other, those of a group side by side, and stops at the first failure.
func (f *Framework) RunPreBind(ctx context.Context, a framework.Assignment, b PreBinding) *framework.Status {
	for _, group := range b.groups {
		if st := preBindGroup(ctx, a, group); !st.IsSuccess() {
			return st
		}
	}
	return nil
}

func preBindGroup(ctx context.Context, a framework.Assignment, group []framework.PreBindPlugin) *framework.Status {
	if len(group) == 1 {
		return preBind(ctx, a, group[0])
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first *framework.Status
	)
	for _, p := range group {
		wg.Go(func() {
			st := preBind(ctx, a, p)
			if st.IsSuccess() {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = st
				cancel(errors.New("another plugin failed at PreBind"))
			}
		})
	}
	wg.Wait()
	return first
}

// preBind runs one plugin. A panic in it is caught here: nobody else could, where it runs in a goroutine of its own.
func preBind(ctx context.Context, a framework.Assignment, p framework.PreBindPlugin) (st *framework.Status) {
	defer func() {
		if x := recover(); x != nil {
			st = framework.AsStatus(fmt.Errorf("panic in PreBind of plugin %s: %v", p.Name(), x)).WithPlugin(p.Name())
		}
	}()
	st = p.PreBind(ctx, a.State, a.Pod, a.Node).WithPlugin(p.Name())
	if st.IsSuccess() || st.IsRejected() {
		return st
	}
	return asError("PreBind", st)
}

// bindings are the pods whose binding can be cancelled, by uid: those between Permit and the writing.
type bindings struct {
	mu      sync.Mutex
	cancels map[string]context.CancelCauseFunc
}

// ErrCancelled is in the error of a binding that CancelBinding ended.
var ErrCancelled = errors.New("binding was cancelled")

// Cancellable returns a context for what comes between Permit and the writing of a group's bindings. done ends that: it
// reports an error where one of the pods was cancelled, and then the group must not be written.
func (f *Framework) Cancellable(ctx context.Context, group []framework.Assignment) (out context.Context, done func() error) {
	out, cancel := context.WithCancelCause(ctx)
	b := f.binding
	b.mu.Lock()
	if b.cancels == nil {
		b.cancels = make(map[string]context.CancelCauseFunc)
	}
	for _, a := range group {
		b.cancels[a.Pod.UID()] = cancel
	}
	b.mu.Unlock()
	return out, func() error {
		b.mu.Lock()
		for _, a := range group {
			delete(b.cancels, a.Pod.UID())
		}
		b.mu.Unlock()
		defer cancel(nil)
		if cause := context.Cause(out); errors.Is(cause, ErrCancelled) {
			return cause
		}
		return nil
	}
}

// CancelBinding implements framework.Handle.
func (f *Framework) CancelBinding(uid, message string) bool {
	b := f.binding
	b.mu.Lock()
	defer b.mu.Unlock()
	cancel, ok := b.cancels[uid]
	if ok {
		cancel(fmt.Errorf("%w: %s", ErrCancelled, message))
	}
	return ok
}
