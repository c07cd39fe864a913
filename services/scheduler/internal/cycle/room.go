package cycle

import (
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/nominate"
)

// room is what the nominator knows, by the positions of the nodes: a search looks at thousands of them.
type room struct {
	epoch, version uint64 // of the snapshot, and of the nominator
	pods           [][]*framework.PodInfo
	names          []string // reused
}

// update takes over what changed.
func (r *room) update(n *nominate.Nominator, s *framework.Snapshot) {
	names, now, known := n.ChangedSince(r.version, r.names[:0])
	r.names, r.version = names, now
	if !known || r.epoch != s.Epoch() {
		r.epoch, r.pods = s.Epoch(), make([][]*framework.PodInfo, len(s.Nodes()))
		n.Each(func(name string, pods []*framework.PodInfo) {
			if node := s.Node(name); node != nil {
				r.pods[node.Index] = pods
			}
		})
		return
	}
	for _, name := range names {
		if node := s.Node(name); node != nil {
			r.pods[node.Index] = n.On(name)
		}
	}
}
