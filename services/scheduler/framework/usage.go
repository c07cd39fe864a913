package framework

import (
	"maps"

	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// LabelQueue names the queue of a pod, on the pod or on its namespace.
const LabelQueue = "trireme.dev/queue"

// Books say what pods of each queue use. They are kept while there are queues, and then of all pods.
type Books struct {
	// Queues by name. Version changes when they do. Neither they nor Capacity are to be changed.
	Queues  []*schedulingv1.Queue
	Version uint64
	// Capacity of all nodes by resource, in thousandths for cpu.
	Capacity map[string]int64
	// Used by queue, empty for pods of none, without the queues below it.
	Used map[string]map[string]int64
}

// Charge adds what a pod uses, times sign, to what its queue does.
func (b *Books) Charge(queue string, pod *PodInfo, sign int64) {
	if b.Used == nil {
		b.Used = make(map[string]map[string]int64)
	}
	used := b.Used[queue]
	if used == nil {
		used = make(map[string]int64)
		b.Used[queue] = used
	}
	for resource, v := range pod.Uses {
		used[resource] += sign * v
	}
}

// Clone returns a copy that can be charged.
func (b *Books) Clone() Books {
	out := *b
	out.Used = make(map[string]map[string]int64, len(b.Used))
	for queue, used := range b.Used {
		out.Used[queue] = maps.Clone(used)
	}
	return out
}

// Uses yields what the pod takes by resource, the place that it takes itself included.
func (p *PodInfo) Uses(yield func(resource string, amount int64) bool) {
	r := &p.Request
	if !yield(ResourcePods, 1) || !yield(ResourceCPU, r.MilliCPU) || !yield(ResourceMemory, r.Memory) || !yield(ResourceEphemeralStorage, r.EphemeralStorage) {
		return
	}
	for name, v := range r.Scalar {
		if !yield(name, v) {
			return
		}
	}
}

// QueueOf is the queue that a pod belongs to, given its namespace's labels; empty where it belongs to none.
func QueueOf(pod *PodInfo, namespace map[string]string) string {
	if name := pod.Labels()[LabelQueue]; name != "" {
		return name
	}
	return namespace[LabelQueue]
}

// Books of the queues, pods assumed in thought included. Without queues they are empty.
func (s *Snapshot) Books() *Books { return &s.books }

// SetBooks takes over books. It is for caches.
func (s *Snapshot) SetBooks(b Books) { s.books = b }

// charge follows a pod that is assumed or forgotten in thought.
func (s *Snapshot) charge(pod *PodInfo, sign int64) {
	if len(s.books.Queues) > 0 {
		s.books.Charge(QueueOf(pod, s.namespaces[pod.Namespace()]), pod, sign)
	}
}
