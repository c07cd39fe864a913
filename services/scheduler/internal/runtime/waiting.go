package runtime

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"trireme.dev/services/scheduler/framework"
)

// waitingPods are the pods held at Permit.
type waitingPods struct {
	mu   sync.Mutex
	pods map[string]*waitingPod // by uid
}

// waitingPod implements framework.WaitingPod.
type waitingPod struct {
	pod    *framework.PodInfo
	answer chan *framework.Status // one answer, the first

	mu     sync.Mutex
	timers map[string]*time.Timer // by plugin that has not allowed yet
}

// WaitingPod implements framework.Handle.
func (f *Framework) WaitingPod(uid string) framework.WaitingPod {
	if w := f.waiting.get(uid); w != nil {
		return w
	}
	return nil
}

// EachWaitingPod implements framework.Handle.
func (f *Framework) EachWaitingPod(fn func(framework.WaitingPod)) {
	f.waiting.mu.Lock()
	all := slices.Collect(maps.Values(f.waiting.pods))
	f.waiting.mu.Unlock()
	for _, w := range all {
		fn(w)
	}
}

func (ws *waitingPods) hold(pod *framework.PodInfo, waits map[string]time.Duration) {
	w := &waitingPod{pod: pod, answer: make(chan *framework.Status, 1), timers: make(map[string]*time.Timer)}
	w.mu.Lock()
	for plugin, d := range waits {
		w.timers[plugin] = time.AfterFunc(d, func() {
			w.Reject(plugin, fmt.Sprintf("rejected due to timeout after waiting %s at plugin %s", d, plugin))
		})
	}
	w.mu.Unlock()
	ws.mu.Lock()
	ws.pods[pod.UID()] = w
	ws.mu.Unlock()
}

func (ws *waitingPods) get(uid string) *waitingPod {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.pods[uid]
}

func (ws *waitingPods) release(uid string) {
	ws.mu.Lock()
	w := ws.pods[uid]
	delete(ws.pods, uid)
	ws.mu.Unlock()
	if w != nil {
		w.mu.Lock()
		w.stop()
		w.mu.Unlock()
	}
}

// Pod implements framework.WaitingPod.
func (w *waitingPod) Pod() *framework.PodInfo { return w.pod }

// PendingPlugins implements framework.WaitingPod.
func (w *waitingPod) PendingPlugins() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.timers))
}

// Allow implements framework.WaitingPod.
func (w *waitingPod) Allow(plugin string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t, ok := w.timers[plugin]
	if !ok {
		return
	}
	t.Stop()
	delete(w.timers, plugin)
	if len(w.timers) == 0 {
		w.say(nil)
	}
}

// Reject implements framework.WaitingPod.
func (w *waitingPod) Reject(plugin, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop()
	w.say(framework.NewStatus(framework.Unschedulable, message).WithPlugin(plugin))
}

func (w *waitingPod) stop() {
	for _, t := range w.timers {
		t.Stop()
	}
}

func (w *waitingPod) say(st *framework.Status) {
	select {
	case w.answer <- st:
	default: // answered already; the first answer counts
	}
}

// ReleasePermit lets go of a pod that nobody waits for any more; nothing happens where it is not held.
func (f *Framework) ReleasePermit(uid string) { f.waiting.release(uid) }
