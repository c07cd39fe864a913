// Package nominate remembers for which waiting pods room is being made on which nodes, so that others leave it to them. It
// stands beside the queue and knows neither it nor the cache.
package nominate

import (
	"slices"
	"sync"

	"trireme.dev/services/scheduler/framework"
)

// Nominator is safe for concurrent use. Make it with New.
type Nominator struct {
	mu     sync.Mutex
	nodes  map[string][]*framework.PodInfo // in the order of nomination; never changed in place
	places map[string]place                // by uid
	// version counts changes; those after since are of the nodes in changed, one each.
	version, since uint64
	changed        []string
}

// maxChanged bounds what is remembered of changes.
const maxChanged = 1 << 13

type place struct {
	node string
	pod  *framework.PodInfo
}

// New returns one that knows of nothing.
func New() *Nominator {
	return &Nominator{nodes: make(map[string][]*framework.PodInfo), places: make(map[string]place)}
}

// Nominate says that room is being made for the pod on the node, and nowhere else; an empty node takes it back. A pod that
// is bound is not nominated.
func (n *Nominator) Nominate(pod *framework.PodInfo, node string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if pod.Pod.GetSpec().GetNodeName() != "" {
		node = ""
	}
	if p := n.places[pod.UID()]; p.node == node && p.pod == pod {
		return
	}
	n.forget(pod.UID())
	if node == "" {
		return
	}
	n.note(node)
	n.places[pod.UID()] = place{node, pod}
	n.nodes[node] = append(slices.Clone(n.nodes[node]), pod)
}

// Forget takes back what is known of a pod that is bound or gone.
func (n *Nominator) Forget(uid string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget(uid)
}

func (n *Nominator) forget(uid string) {
	p, ok := n.places[uid]
	if !ok {
		return
	}
	n.note(p.node)
	delete(n.places, uid)
	rest := slices.DeleteFunc(slices.Clone(n.nodes[p.node]), func(o *framework.PodInfo) bool { return o == p.pod })
	if len(rest) == 0 {
		delete(n.nodes, p.node)
		return
	}
	n.nodes[p.node] = rest
}

// Node returns where room is being made for the pod with this uid; empty for nowhere.
func (n *Nominator) Node(uid string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.places[uid].node
}

// On returns the pods for which room is being made on the node. Not to be changed.
func (n *Nominator) On(node string) []*framework.PodInfo {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[node]
}

// Each calls fn for each node that has nominated pods, in no order, with the lock held.
func (n *Nominator) Each(fn func(node string, pods []*framework.PodInfo)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for node, pods := range n.nodes {
		fn(node, pods)
	}
}

func (n *Nominator) note(node string) {
	n.version++
	if len(n.changed) >= maxChanged {
		n.changed = n.changed[:0]
		n.since = n.version - 1
	}
	n.changed = append(n.changed, node)
}

// ChangedSince appends to list the nodes whose pods changed after a version, possibly more than once, and returns the version
// that it is now; false where that is not known any more.
func (n *Nominator) ChangedSince(version uint64, list []string) (names []string, now uint64, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if version < n.since {
		return list, n.version, false
	}
	return append(list, n.changed[version-n.since:]...), n.version, true
}

// Len is how many pods are nominated.
func (n *Nominator) Len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.places)
}
