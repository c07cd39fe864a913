package podworker

import (
	"context"
	"fmt"
	"time"

	"trireme.dev/client/event"
	"trireme.dev/client/tracing"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/nodeagent/internal/plan"
	"trireme.dev/services/nodeagent/internal/runtime"
)

const (
	defaultGrace = 30 * time.Second
	// minimumGrace is what containers get between the stop signal and the kill whatever is asked for.
	minimumGrace = 2 * time.Second
)

// terminate begins the pod's end. No container is started any more: operations under way are cancelled, and what they
// have made meanwhile is seen before anything is stopped.
func (w *worker) terminate() {
	w.state = terminating
	w.trail.end()
	w.began = time.Now()
	w.opCancel()
}

// end stops what runs, then clears up.
func (w *worker) end(ctx context.Context, pod *corev1.Pod, gone bool) {
	if !w.drained {
		if len(w.busy) > 0 {
			return
		}
		w.drained = true
		w.opCtx, w.opCancel = context.WithCancel(ctx)
		w.grace = w.graceOf(pod)
	}
	if g := w.graceOf(pod); g < w.grace {
		// The grace has been shortened: what waits for the longer one begins again.
		w.grace = g
		w.opCancel()
		w.opCtx, w.opCancel = context.WithCancel(ctx)
	}
	if w.final {
		w.clear(pod, gone)
		return
	}
	if !w.observe(ctx) {
		w.again(time.Now().Add(retrySoon))
		return
	}
	if w.stopRunning(pod) {
		if !gone {
			w.publish(pod)
		}
		return
	}
	w.final = true
	if !gone && (w.seen != nil || !plan.Terminal(w.past.GetPhase())) {
		w.publish(pod)
	}
	w.clear(pod, gone)
}

func (w *worker) graceOf(pod *corev1.Pod) time.Duration {
	if s := pod.GetMetadata().DeletionGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return specGrace(pod)
}

func specGrace(pod *corev1.Pod) time.Duration {
	if s := pod.GetSpec().TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return defaultGrace
}

// stopRunning stops containers that run, all at once but for sidecars, which go last and in reverse; false means that
// nothing runs.
func (w *worker) stopRunning(pod *corev1.Pod) bool {
	if w.seen == nil {
		return len(w.busy) > 0
	}
	running := map[string]*runtime.Container{}
	for _, c := range w.seen.Containers {
		if c.State == runtime.StateRunning || c.State == runtime.StateUnknown {
			running[c.ID] = c
		}
	}
	if len(running) == 0 {
		return len(w.busy) > 0
	}
	order := map[string]int{}
	for i, c := range pod.GetSpec().GetInitContainers() {
		if plan.IsSidecar(c) {
			order[c.GetName()] = i + 1
		}
	}
	// All but sidecars go first, at once; then sidecars one by one, the last one first.
	batch := map[string]*runtime.Container{}
	turn := -1
	for _, c := range running {
		if o := order[c.Name]; turn < 0 || o == 0 || (turn != 0 && o > turn) {
			turn = o
		}
	}
	for id, c := range running {
		if order[c.Name] == turn {
			batch[id] = c
		}
	}
	for id, c := range batch {
		w.stop(pod, id, c)
	}
	return true
}

func (w *worker) stop(pod *corev1.Pod, id string, c *runtime.Container) {
	if w.busy[id] || w.held(id) {
		return
	}
	if !w.killing[id] {
		w.killing[id] = true
		w.m.deps.Events.Event(pod, event.Normal, "Killing", "Stopping container "+c.Name)
	}
	grace := max(time.Until(w.began.Add(w.grace)), minimumGrace)
	w.do(id, func(ctx context.Context) func() {
		err := w.stopContainer(ctx, c.Name, id, grace)
		cancelled := ctx.Err() != nil
		return func() {
			if err != nil && !cancelled {
				w.m.logIfFailed(w.opCtx, "stop container", err)
				w.hold(id, retrySoon, retryLimit)
			}
		}
	})
}

func (w *worker) stopContainer(ctx context.Context, name, id string, grace time.Duration) error {
	return within(ctx, stopSpan, func(ctx context.Context) error {
		return w.m.deps.Runtime.StopContainer(ctx, id, grace)
	}, tracing.KeyContainer.String(name), tracing.KeyContainerID.String(id))
}

// clear removes all that the pod has on the node. How the containers of a pod that came to its own end ended must be
// written before: the runtime is the only other place that knows.
func (w *worker) clear(pod *corev1.Pod, gone bool) {
	if w.busy[cleanupKey] || w.held(cleanupKey) {
		return
	}
	w.awaitsFlush.Store(true)
	if !gone && pod.GetMetadata().GetDeletionTimestamp() == nil && !w.m.status.Flushed(w.uid) {
		return
	}
	w.do(cleanupKey, func(ctx context.Context) func() {
		w.acting.Add(1)
		defer w.acting.Add(-1)
		err := within(ctx, removeSpan, func(ctx context.Context) error { return w.m.deps.Runtime.RemoveSandbox(ctx, w.uid) })
		if err == nil {
			err = within(ctx, unmountSpan, func(context.Context) error { return w.m.deps.Volumes.Teardown(w.uid) })
		}
		if err == nil {
			w.m.deps.Devices.Release(w.uid)
		}
		return func() {
			if err != nil {
				w.m.logIfFailed(w.opCtx, "remove the pod from the node", err)
				w.m.deps.Events.Event(pod, event.Warning, "FailedKillPod", fmt.Sprintf("error killing pod: %v", err))
				w.hold(cleanupKey, retrySoon, retryLimit)
				return
			}
			w.setPrint(nil)
			w.m.fit.release(w.uid)
			w.state = terminated
		}
	})
}
