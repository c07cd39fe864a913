package queue

import (
	"cmp"
	"container/heap"
	"container/list"
	"maps"
	"slices"
	"time"

	"trireme.dev/services/scheduler/framework"
)

type place int

const (
	placeNone place = iota
	placeActive
	placeBackoff
	placeFailed
	placePool
	placeInFlight
)

// entity is a lone pod or the waiting members of a gang.
type entity struct {
	// view is what plugins are shown. Its Pods are those that passed PreEnqueue, in order.
	view framework.Queued
	// held are the pods that did not pass PreEnqueue.
	held map[string]heldPod

	place place
	index int // in its heap
	// team of the Queue object that its first pod belongs to, while it is ready; empty for none.
	team      string
	teamIndex int
	// gate is why the entity as a whole is held back in the pool; nil where it is not.
	gate *framework.Status

	rejectedBy, pendingBy map[string]struct{}
	// pooledBy are the plugins under which it is in the pool.
	pooledBy              []string
	unschedulable, errors int // attempts that ended so; errors in a row
	until                 time.Time
	// changed says that members or group changed in flight, so a rejection may not hold any more.
	changed bool
	// forced says that it was activated in flight, so it is tried again at once.
	forced bool
	// popped and marker belong to the attempt in flight.
	popped *framework.Queued
	marker *list.Element
	// part is the part of the queue that it was last counted in, traced those of its pods whose traces are recorded.
	part   string
	traced []*record
	// ended is when the attempt that is being ended did; zero at other times.
	ended time.Time
}

type heldPod = *heldStatus

type heldStatus struct {
	pod    *framework.PodInfo
	status *framework.Status
}

func (e *entity) empty() bool { return len(e.view.Pods) == 0 && len(e.held) == 0 }

// insert adds a pod, to the held ones where status is not a success.
func (e *entity) insert(pod *framework.PodInfo, status *framework.Status) {
	if !status.IsSuccess() {
		if e.held == nil {
			e.held = make(map[string]heldPod)
		}
		e.held[pod.UID()] = &heldStatus{pod, status}
		return
	}
	i, _ := slices.BinarySearchFunc(e.view.Pods, pod, comparePods)
	e.view.Pods = slices.Insert(e.view.Pods, i, pod)
}

func (e *entity) remove(uid string) {
	delete(e.held, uid)
	if i := slices.IndexFunc(e.view.Pods, func(p *framework.PodInfo) bool { return p.UID() == uid }); i >= 0 {
		e.view.Pods = slices.Delete(e.view.Pods, i, i+1)
	}
}

func (e *entity) replace(pod *framework.PodInfo, status *framework.Status) {
	e.remove(pod.UID())
	e.insert(pod, status)
}

// comparePods orders the members of a gang: priority, then age, then name.
func comparePods(a, b *framework.PodInfo) int {
	ma, mb := a.Pod.GetMetadata(), b.Pod.GetMetadata()
	return cmp.Or(
		cmp.Compare(b.Priority(), a.Priority()),
		cmp.Compare(ma.GetCreationTimestamp().GetSeconds(), mb.GetCreationTimestamp().GetSeconds()),
		cmp.Compare(a.Name(), b.Name()),
		cmp.Compare(a.UID(), b.UID()),
	)
}

// any reports whether fn holds for one of the entity's pods.
func (e *entity) any(fn func(*framework.PodInfo) bool) bool {
	if slices.ContainsFunc(e.view.Pods, fn) {
		return true
	}
	for _, h := range e.held {
		if fn(h.pod) {
			return true
		}
	}
	return false
}

// gatedPods lists why each pod is held back, in order.
func (e *entity) gatedPods() []GatedPod {
	out := make([]GatedPod, 0, len(e.view.Pods)+len(e.held))
	for _, p := range e.view.Pods {
		out = append(out, GatedPod{p, e.gate})
	}
	for _, uid := range slices.Sorted(maps.Keys(e.held)) {
		out = append(out, GatedPod{e.held[uid].pod, e.held[uid].status})
	}
	return out
}

func sortedRecords(records map[string]*record) []*record {
	return slices.SortedFunc(maps.Values(records), func(a, b *record) int { return comparePods(a.pod, b.pod) })
}

// entityHeap implements heap.Interface; entities know their index in it.
type entityHeap struct {
	items []*entity
	less  func(a, b *entity) bool
}

func (h *entityHeap) Len() int           { return len(h.items) }
func (h *entityHeap) Less(i, j int) bool { return h.less(h.items[i], h.items[j]) }
func (h *entityHeap) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].index, h.items[j].index = i, j
}

// Push implements heap.Interface.
func (h *entityHeap) Push(x any) {
	e := x.(*entity)
	e.index = len(h.items)
	h.items = append(h.items, e)
}

// Pop implements heap.Interface.
func (h *entityHeap) Pop() any {
	last := len(h.items) - 1
	e := h.items[last]
	h.items[last] = nil
	h.items = h.items[:last]
	return e
}

func (h *entityHeap) push(e *entity)   { heap.Push(h, e) }
func (h *entityHeap) pop() *entity     { return heap.Pop(h).(*entity) }
func (h *entityHeap) remove(e *entity) { heap.Remove(h, e.index) }
