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
	version   uint64    // of the snapshot
	nominated uint64    // of the nominator
	verdicts  []verdict // by position; the zero verdict is that of a node that was not looked at
	own       int32     // the position whose verdict is of the last pod alone, because room is being made for it there; or -1
	// elsewhere are the positions whose verdicts hold for the last attempt only.
	elsewhere []int32

	positions []int32 // reused
	names     []string
}

// keep remembers the verdict of a node.
func (m *memory) keep(position int32, v verdict) {
	m.verdicts[position] = v
	if v.elsewhere {
		m.elsewhere = append(m.elsewhere, position)
	}
}

// recall makes the memory right for the search: empty where it is of other pods, and without what changed since.
func (m *memory) recall(s *search) {
	key := s.key()
	fresh := key == "" || key != m.key || m.epoch != s.snapshot.Epoch()
	positions, known := s.snapshot.ChangedSince(m.version, m.positions[:0])
	names, now, told := s.plugin.handle.NominatedSince(m.nominated, m.names[:0])
	m.key, m.epoch, m.version, m.nominated = key, s.snapshot.Epoch(), s.snapshot.Version(), now
	m.positions, m.names = positions, names
	switch {
	case len(m.verdicts) != len(s.snapshot.Nodes()):
		m.verdicts = make([]verdict, len(s.snapshot.Nodes()))
	case fresh || !known || !told:
		clear(m.verdicts)
	default:
		for _, i := range positions {
			m.verdicts[i] = verdict{}
		}
		for _, name := range names {
			if n := s.snapshot.Node(name); n != nil {
				m.verdicts[n.Index] = verdict{}
			}
		}
		for _, i := range m.elsewhere {
			m.verdicts[i] = verdict{}
		}
		if m.own >= 0 {
			m.verdicts[m.own] = verdict{}
		}
	}
	m.elsewhere = m.elsewhere[:0]
	m.own = -1
	if own := s.snapshot.Node(s.plugin.handle.NominatedNode(s.pod.UID())); own != nil {
		m.own = own.Index
		m.verdicts[m.own] = verdict{}
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
	if key, ok := s.pod.Group(); ok {
		b.WriteString("\x00" + key.String())
	}
	for _, budget := range s.budgets {
		b.WriteString("\x00" + budget.GetMetadata().GetUid() + budget.GetMetadata().GetResourceVersion())
	}
	return b.String()
}
