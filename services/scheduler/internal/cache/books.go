package cache

import (
	"maps"
	"slices"
	"strings"

	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/quota"
)

// books are kept once there is a queue.
type books struct {
	framework.Books
	tree *quota.Tree
	// pods by queue.
	pods map[string]int
	// changed says that snapshots have not seen the books as they are, stale that nodes have changed since Capacity was added up.
	changed uint64
	stale   bool
}

// SetQueue takes over a queue's state.
func (c *Cache) SetQueue(q *schedulingv1.Queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := len(c.books.Queues) == 0
	queues := slices.Clone(c.books.Queues)
	i, ok := slices.BinarySearchFunc(queues, q.GetMetadata().GetName(), compareQueue)
	if ok {
		queues[i] = q
	} else {
		queues = slices.Insert(queues, i, q)
	}
	c.setQueues(queues)
	if first {
		c.recount()
	}
}

// RemoveQueue forgets a queue.
func (c *Cache) RemoveQueue(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	queues := slices.Clone(c.books.Queues)
	if i, ok := slices.BinarySearchFunc(queues, name, compareQueue); ok {
		c.setQueues(slices.Delete(queues, i, i+1))
	}
}

// QueueStatus takes over a queue of which only the status is news.
func (c *Cache) QueueStatus(q *schedulingv1.Queue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := slices.BinarySearchFunc(c.books.Queues, q.GetMetadata().GetName(), compareQueue); ok {
		queues := slices.Clone(c.books.Queues)
		queues[i] = q
		c.books.Queues = queues
		c.books.changed++
	}
}

func compareQueue(q *schedulingv1.Queue, name string) int {
	return strings.Compare(q.GetMetadata().GetName(), name)
}

func (c *Cache) setQueues(queues []*schedulingv1.Queue) {
	b := &c.books
	b.Queues = queues
	b.Version++
	b.changed++
	b.stale = true
	b.tree = quota.OfQueues(queues)
}

// recount adds up all pods anew: queues have come to be, or a namespace has another.
func (c *Cache) recount() {
	b := &c.books
	b.Used, b.pods = nil, nil
	for _, st := range c.pods {
		c.charge(st.pod, 1)
	}
}

func (c *Cache) charge(pod *framework.PodInfo, sign int64) {
	b := &c.books
	if len(b.Queues) == 0 {
		return
	}
	queue := framework.QueueOf(pod, c.namespaces[pod.Namespace()])
	b.Charge(queue, pod, sign)
	if b.pods == nil {
		b.pods = make(map[string]int)
	}
	b.pods[queue] += int(sign)
	b.changed++
}

// relabelled follows a change of a namespace's labels.
func (c *Cache) relabelled(old, now map[string]string) {
	if len(c.books.Queues) > 0 && old[framework.LabelQueue] != now[framework.LabelQueue] {
		c.recount()
		c.books.changed++
	}
}

// total adds up what nodes have, if they changed.
func (c *Cache) total() {
	b := &c.books
	if !b.stale {
		return
	}
	b.stale = false
	b.changed++
	b.Capacity = make(map[string]int64)
	for el := c.recent.Front(); el != nil; el = el.Next() {
		e := el.Value.(*entry)
		if e.info.Node == nil {
			continue
		}
		have := &e.info.Allocatable
		b.Capacity[framework.ResourcePods] += have.AllowedPods
		b.Capacity[framework.ResourceCPU] += have.MilliCPU
		b.Capacity[framework.ResourceMemory] += have.Memory
		b.Capacity[framework.ResourceEphemeralStorage] += have.EphemeralStorage
		for name, v := range have.Scalar {
			b.Capacity[name] += v
		}
	}
}

// QueueOf is the queue of a waiting pod; empty while there are no queues.
func (c *Cache) QueueOf(pod *framework.PodInfo) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.books.Queues) == 0 {
		return ""
	}
	return framework.QueueOf(pod, c.namespaces[pod.Namespace()])
}

// FirstQueue is which of several queues goes next.
func (c *Cache) FirstQueue(names []string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.books.tree == nil {
		return slices.Min(names)
	}
	c.total()
	return c.books.tree.First(names, quota.Cluster{Capacity: c.books.Capacity, Used: c.books.Used})
}

// QueueUse is what the pods of a queue use.
type QueueUse struct {
	Queue *schedulingv1.Queue
	// Used and Borrowed by it and all below it.
	Used, Borrowed quota.Amounts
	// Pods of its own on nodes.
	Pods int
	// Broken is why it takes no part.
	Broken string
}

// QueueUses lists all queues by name.
func (c *Cache) QueueUses() []QueueUse {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []QueueUse
	cluster := quota.Cluster{Capacity: c.books.Capacity, Used: maps.Clone(c.books.Used)}
	for _, q := range c.books.Queues {
		name := q.GetMetadata().GetName()
		out = append(out, QueueUse{
			Queue: q, Used: c.books.tree.Used(name, cluster), Borrowed: c.books.tree.Borrowed(name, cluster),
			Pods: c.books.pods[name], Broken: c.books.tree.Broken(name),
		})
	}
	return out
}
