package cycle

import (
	"slices"

	"trireme.dev/services/scheduler/framework"
)

// reserve brings up to date which nodes a batch leaves to pods for which room is being made there. rejudged are the ks
// that were just looked at.
func (d *Decider) reserve(b *batch, state *framework.CycleState, pod *framework.PodInfo, rejudged []int32) error {
	names, now, known := d.fw.Nominator().ChangedSince(b.nominated, d.batches.names[:0])
	d.batches.names = names
	b.nominated = now
	if !known {
		d.fw.Nominator().Each(func(node string, _ []*framework.PodInfo) { names = append(names, node) })
		for k := range b.reserved {
			names = append(names, d.snapshot.Nodes()[b.positions[k]].Name())
		}
	}
	for _, name := range names {
		if k, ok := b.index(d.snapshot, name); ok {
			if err := d.reserveOne(b, state, pod, k); err != nil {
				return err
			}
		}
	}
	if len(b.reserved) == 0 && d.fw.Nominator().Len() == 0 {
		return nil
	}
	for _, k := range rejudged {
		if err := d.reserveOne(b, state, pod, k); err != nil {
			return err
		}
	}
	return nil
}

// index is the k of a node; false where the batch does not have it.
func (b *batch) index(s *framework.Snapshot, name string) (int32, bool) {
	node := s.Node(name)
	if node == nil {
		return 0, false
	}
	if b.all {
		return node.Index, true
	}
	k, ok := slices.BinarySearch(b.positions, node.Index)
	return int32(k), ok
}

func (d *Decider) reserveOne(b *batch, state *framework.CycleState, pod *framework.PodInfo, k int32) error {
	if _, was := b.reserved[k]; was {
		delete(b.reserved, k)
		b.tree.set(int(k), b.ranking.Total[k])
	}
	if b.ranking.Total[k] == none {
		return nil
	}
	node := d.snapshot.Nodes()[b.positions[k]]
	// Whoever asks: a pod that is nominated itself is looked after in choose.
	ahead := slices.DeleteFunc(slices.Clone(d.fw.Nominated(node.Name())), func(n *framework.PodInfo) bool {
		return n.Priority() < pod.Priority() || n.SameGroup(pod)
	})
	if len(ahead) == 0 {
		return nil
	}
	st := d.fw.RunFiltersWith(state, pod, node, ahead)
	switch {
	case st.IsSuccess():
	case !st.IsRejected():
		return st.Err()
	default:
		if b.reserved == nil {
			b.reserved = make(map[int32]*framework.Status)
		}
		b.reserved[k] = st
		b.tree.set(int(k), none)
	}
	return nil
}

// choose returns the best node, counted from the rotation. found is false where there is none, ok where the batch cannot
// tell, since leaving out reserved nodes changes how the others compare.
func (b *batch) choose(d *Decider, state *framework.CycleState, pod *framework.PodInfo) (position int32, found, ok bool, err error) {
	if b.ranking.Feasible() == 0 {
		return 0, false, true, nil
	}
	if own := d.fw.NominatedNode(pod.UID()); own != "" {
		if k, there := b.index(d.snapshot, own); there && b.ranking.Total[k] != none {
			// What is reserved there may be reserved for this very pod.
			if st, was := b.reserved[k]; was {
				node := d.snapshot.Nodes()[b.positions[k]]
				now := d.fw.RunFiltersAhead(state, pod, node)
				if !now.IsSuccess() && !now.IsRejected() {
					return 0, false, true, now.Err()
				}
				if now.IsSuccess() {
					delete(b.reserved, k)
					b.tree.set(int(k), b.ranking.Total[k])
					defer func() {
						b.reserved[k] = st
						b.tree.set(int(k), none)
					}()
				}
			}
		}
	}
	if len(b.reserved) > 0 && !b.ranking.Without(b.reserved) {
		return 0, false, false, nil
	}
	turn := d.turn()
	start := int(turn)
	if !b.all {
		start, _ = slices.BinarySearch(b.positions, turn)
	}
	k, found := b.tree.best(start)
	if !found {
		return 0, false, true, nil
	}
	return b.positions[k], true, true, nil
}

// explain says in v why none of the nodes will do.
func (b *batch) explain(v *framework.Verdicts) {
	v.CopyFrom(&b.verdicts)
	for _, k := range sortedKs(b.reserved) {
		st := b.reserved[k]
		v.From(st.Plugin())
		v.Reject(b.positions[k], v.Reason(st))
	}
}

func sortedKs(m map[int32]*framework.Status) []int32 {
	out := make([]int32, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
