package defaultpreemption

import (
	"fmt"
	"strings"

	"trireme.dev/services/scheduler/framework"
)

// memory holds what searches found out about nodes, for the next pod that is equal to the last: a hundred replicas that
// preempt look at each node once, and at the nodes that changed. It is used by one cycle at a time.
type memory struct {
	key       string
	epoch     uint64
	nominated map[string][]*framework.PodInfo
	entries   []entry // by position
}

type entry struct {
	generation int64 // of the node that was looked at
	known      bool
	verdict    verdict
}

// recall returns the memory for the search, emptied where it is of other pods, and without what changed since.
func (m *memory) recall(s *search) *memory {
	key := s.key()
	if key == "" || key != m.key || m.epoch != s.snapshot.Epoch() || len(m.entries) != len(s.snapshot.Nodes()) {
		*m = memory{key: key, epoch: s.snapshot.Epoch(), entries: make([]entry, len(s.snapshot.Nodes()))}
	}
	now := map[string][]*framework.PodInfo{}
	s.plugin.handle.EachNominated(func(node string, pods []*framework.PodInfo) { now[node] = pods })
	for node, pods := range now {
		if !same(pods, m.nominated[node]) {
			m.forget(s, node)
		}
	}
	for node := range m.nominated {
		if _, ok := now[node]; !ok {
			m.forget(s, node)
		}
	}
	m.nominated = now
	return m
}

func same(a, b []*framework.PodInfo) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (m *memory) forget(s *search, node string) {
	if n := s.snapshot.Node(node); n != nil {
		m.entries[n.Index] = entry{}
	}
}

// key is the same for pods of which the same is true; empty where nothing can be remembered, because where other pods are
// decides about the node as well.
func (s *search) key() string {
	var sig framework.Signature
	if !s.plugin.handle.Sign(s.pod, &sig) {
		return ""
	}
	var b strings.Builder
	b.Write(sig.Bytes())
	fmt.Fprintf(&b, "\x00%d\x00%d", s.pod.Priority(), s.snapshot.HeldVersion())
	for _, budget := range s.budgets {
		b.WriteString("\x00" + budget.GetMetadata().GetUid() + budget.GetMetadata().GetResourceVersion())
	}
	return b.String()
}

func (m *memory) get(position int32, node *framework.NodeInfo) (verdict, bool) {
	e := &m.entries[position]
	if m.key == "" || !e.known || e.generation != node.Generation {
		return verdict{}, false
	}
	return e.verdict, true
}

func (m *memory) put(position int32, node *framework.NodeInfo, v verdict) {
	m.entries[position] = entry{node.Generation, true, v}
}
