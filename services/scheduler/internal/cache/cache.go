// Package cache holds what the scheduler believes of the cluster: nodes and the pods on them, those included that it has
// only just decided to put there. A cycle works on a Snapshot of it. It never decides and never talks to the gateway.
//
// States of a pod:
//
//	          Assume              AddPod (seen bound)
//	(none) ──────────► assumed ──────────────────────► added
//	   ▲                 │                              ▲ │
//	   └──── Forget ─────┘            AddPod ───────────┘ └── RemovePod ──► (none)
//
// An assumed pod does not expire: it is confirmed by the watch, forgotten when its binding fails, or forgotten when its
// deletion is seen.
package cache

import (
	"container/list"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"trireme.dev/kit/telemetry"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

// Cache is safe for concurrent use.
type Cache struct {
	logger *slog.Logger

	mu         sync.Mutex
	generation int64
	nodes      map[string]*list.Element // of *entry
	recent     *list.List               // entries, most recently changed first
	pods       map[string]*podState     // by uid
	scheduled  map[framework.GroupKey]int
	// order changes when a node comes or goes; present is how many there are.
	order   int64
	present int
	// namespaces are their labels, copied on change.
	namespaces        map[string]map[string]string
	namespacesVersion int64
	books             books
}

type entry struct {
	name string
	info framework.NodeInfo
}

type podState struct {
	pod     *framework.PodInfo
	node    string
	assumed bool
}

// New returns an empty cache.
func New(logger *slog.Logger) *Cache {
	return &Cache{
		logger:    logger,
		nodes:     make(map[string]*list.Element),
		recent:    list.New(),
		pods:      make(map[string]*podState),
		scheduled: make(map[framework.GroupKey]int),
	}
}

// entryOf returns the node's entry, made where there is none, and marks it changed.
func (c *Cache) entryOf(name string) *entry {
	el, ok := c.nodes[name]
	if !ok {
		el = c.recent.PushFront(&entry{name: name})
		c.nodes[name] = el
	}
	c.recent.MoveToFront(el)
	e := el.Value.(*entry)
	c.generation++
	e.info.Generation = c.generation
	return e
}

// Size counts what is in the cache: nodes, pods on them, and pods that are only assumed to be there.
func (c *Cache) Size() (nodes, pods, assumed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pods {
		if p.assumed {
			assumed++
		}
	}
	return len(c.nodes), len(c.pods), assumed
}

// SetNode takes over a node's state.
func (c *Cache) SetNode(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.books.stale = true
	e := c.entryOf(node.GetMetadata().GetName())
	if e.info.Node == nil {
		c.order++
		c.present++
	}
	if err := e.info.SetNode(node); err != nil {
		c.logger.Warn("node has a quantity that cannot be read", slog.String(telemetry.KeyNode, e.name), slog.Any(telemetry.KeyError, err))
	}
}

// RemoveNode forgets a node. Pods that are still known to be on it keep their place in the books until they go.
func (c *Cache) RemoveNode(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.nodes[name]; !ok {
		return
	}
	c.books.stale = true
	e := c.entryOf(name)
	if e.info.Node != nil {
		c.order++
		c.present--
	}
	_ = e.info.SetNode(nil) // nil cannot fail
	c.dropIfUnused(e)
}

// HasNode reports whether there is a node of that name.
func (c *Cache) HasNode(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.has(name)
}

func (c *Cache) has(node string) bool {
	el, ok := c.nodes[node]
	return ok && el.Value.(*entry).info.Node != nil
}

func (c *Cache) dropIfUnused(e *entry) {
	if e.info.Node == nil && len(e.info.Pods) == 0 {
		c.recent.Remove(c.nodes[e.name])
		delete(c.nodes, e.name)
	}
}

// Assume puts a pod on a node ahead of its binding. It fails where the pod is on a node already or the node is gone.
func (c *Cache) Assume(pod *framework.PodInfo, node string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.pods[pod.UID()]; st != nil {
		return fmt.Errorf("assume pod %s on node %s: it is on node %s", pod.Name(), node, st.node)
	}
	if !c.has(node) {
		return fmt.Errorf("assume pod %s on node %s: the node is gone", pod.Name(), node)
	}
	c.put(pod, node, true)
	return nil
}

// Forget takes back an Assume and reports whether there was one. A pod that has been confirmed stays.
func (c *Cache) Forget(pod *framework.PodInfo) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.pods[pod.UID()]
	if st == nil || !st.assumed {
		return false
	}
	c.take(st)
	return true
}

// AddPod takes in a pod that is bound to a node, wherever it was assumed.
func (c *Cache) AddPod(pod *framework.PodInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	node := pod.Pod.GetSpec().GetNodeName()
	if st := c.pods[pod.UID()]; st != nil {
		if st.node == node {
			c.replace(st, pod)
			return
		}
		c.take(st)
	}
	c.put(pod, node, false)
}

// replace takes over a pod's new state where it is.
func (c *Cache) replace(st *podState, pod *framework.PodInfo) {
	old := st.pod
	st.pod, st.assumed = pod, false
	c.charge(old, -1)
	c.charge(pod, 1)
	if err := c.entryOf(st.node).info.ReplacePod(old, pod); err != nil {
		panic(fmt.Sprintf("cache: node %s: %v", st.node, err)) // the books contradict themselves
	}
}

// SetNamespace takes over the labels of a namespace.
func (c *Cache) SetNamespace(name string, labels map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.namespaces[name]; ok && maps.Equal(old, labels) {
		return
	}
	old := c.namespaces[name]
	c.copyNamespaces()
	c.namespaces[name] = labels
	c.relabelled(old, labels)
}

// RemoveNamespace forgets a namespace.
func (c *Cache) RemoveNamespace(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.namespaces[name]; ok {
		old := c.namespaces[name]
		c.copyNamespaces()
		delete(c.namespaces, name)
		c.relabelled(old, nil)
	}
}

// copyNamespaces makes way for a change: snapshots keep the map that they were given.
func (c *Cache) copyNamespaces() {
	c.namespacesVersion++
	if c.namespaces == nil {
		c.namespaces = make(map[string]map[string]string)
		return
	}
	c.namespaces = maps.Clone(c.namespaces)
}

// RemovePod forgets a pod whatever its state and reports whether it was on a node.
func (c *Cache) RemovePod(uid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.pods[uid]
	if st != nil {
		c.take(st)
	}
	return st != nil
}

func (c *Cache) put(pod *framework.PodInfo, node string, assumed bool) {
	c.pods[pod.UID()] = &podState{pod: pod, node: node, assumed: assumed}
	c.entryOf(node).info.AddPod(pod)
	c.charge(pod, 1)
	if key, ok := pod.Group(); ok {
		c.scheduled[key]++
	}
}

func (c *Cache) take(st *podState) {
	delete(c.pods, st.pod.UID())
	c.charge(st.pod, -1)
	e := c.entryOf(st.node)
	if err := e.info.RemovePod(st.pod.UID()); err != nil {
		panic(fmt.Sprintf("cache: node %s: %v", st.node, err)) // the books contradict themselves
	}
	if key, ok := st.pod.Group(); ok {
		if c.scheduled[key]--; c.scheduled[key] == 0 {
			delete(c.scheduled, key)
		}
	}
	c.dropIfUnused(e)
}

// IsAssumed reports whether the pod is assumed and not confirmed.
func (c *Cache) IsAssumed(uid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.pods[uid]
	return st != nil && st.assumed
}

// Pod returns the pod with this uid, assumed or bound; nil where it is on no node.
func (c *Cache) Pod(uid string) *framework.PodInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.pods[uid]; st != nil {
		return st.pod
	}
	return nil
}

// NodeOf returns the node that the pod is on, assumed or bound; empty where it is on none.
func (c *Cache) NodeOf(uid string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.pods[uid]; st != nil {
		return st.node
	}
	return ""
}

// Scheduled counts the pods of a group that are on nodes.
func (c *Cache) Scheduled(key framework.GroupKey) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.scheduled[key]
}
