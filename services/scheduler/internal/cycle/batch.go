package cycle

import (
	"encoding/binary"
	"slices"

	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/runtime"
)

// batch is what filters and scores said for pods of one signature, within one placement, kept up with the nodes that
// change: a pod of the same signature looks at these only. Filters and scores must depend on nothing else, which is what
// having a signature means.
type batch struct {
	key       string
	epoch     uint64 // of the snapshot
	signEpoch uint64
	version   uint64 // of the snapshot
	positions []int32
	all       bool // positions are those of all nodes, so that k is the position
	verdicts  framework.Verdicts
	ranking   *runtime.Ranking
	tree      maxTree
	used      uint64
	// prioritised batches are of pods of one priority and group too, which the signature does not hold: where room is being made
	// for some, they say who goes before whom. They know of the nominator up to the version nominated.
	prioritised bool
	nominated   uint64
}

// batches are the newest.
type batches struct {
	list []*batch
	// seen are hashes of signatures that came up lately: what comes up once is not worth keeping.
	seen  map[uint64]struct{}
	clock uint64
	// answers counts how often a batch was brought up to date without a look at all nodes.
	answers int
	changed []int32
	ks      []int32
	names   []string
	open    []int32
}

const (
	// maxBatchCells bounds the memory for batches, in nodes of all of them; one takes about a hundred bytes for each.
	maxBatchCells = 1 << 19
	maxBatches    = 64
	maxSeen       = 1 << 13
	// rebuildShare: where more than one in so many nodes changed, a pass over all is cheaper than looking at each.
	rebuildShare = 4
)

// find returns the batch of a key.
func (b *batches) find(key []byte) *batch {
	for _, x := range b.list {
		if x.key == string(key) {
			b.clock++
			x.used = b.clock
			return x
		}
	}
	return nil
}

// worth reports whether a signature has come up lately.
func (b *batches) worth(key []byte) bool {
	h := uint64(14695981039346656037)
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	if _, ok := b.seen[h]; ok {
		return true
	}
	if b.seen == nil || len(b.seen) >= maxSeen {
		b.seen = make(map[uint64]struct{})
	}
	b.seen[h] = struct{}{}
	return false
}

// add keeps a batch, in place of those that were not used for longest.
func (b *batches) add(x *batch) {
	b.clock++
	x.used = b.clock
	cells := len(x.positions)
	for _, o := range b.list {
		cells += len(o.positions)
	}
	for len(b.list) > 0 && (len(b.list) >= maxBatches || cells > maxBatchCells) {
		oldest := slices.MinFunc(b.list, func(a, o *batch) int { return int(a.used) - int(o.used) })
		cells -= len(oldest.positions)
		b.drop(oldest)
	}
	b.list = append(b.list, x)
}

func (b *batches) drop(x *batch) {
	b.list = slices.DeleteFunc(b.list, func(o *batch) bool { return o == x })
}

// batched returns the up-to-date batch for a pod, nil where it has none and is to be looked at by itself. state is that of its
// PreFilter.
func (d *Decider) batched(state *framework.CycleState, pod *framework.PodInfo, positions []int32, narrowed runtime.Narrowed, w *podWatch) (*batch, error) {
	if d.noBatching || d.partial() || !d.fw.Sign(pod, &d.signature) {
		return nil, nil
	}
	key := d.signature.Bytes()
	if p := d.snapshot.Placement(); p != nil {
		key = append(append(key, 0), p.Name...)
	}
	prioritised := d.fw.Nominator().Len() > 0
	if prioritised {
		key = binary.AppendVarint(append(key, 1), int64(pod.Priority()))
		if group, ok := pod.Group(); ok {
			key = append(key, group.String()...)
		}
	}
	signEpoch := d.fw.SignEpoch(pod, d.snapshot)
	b := d.batches.find(key)
	if b != nil && (b.epoch != d.snapshot.Epoch() || b.signEpoch != signEpoch || !sameList(b.positions, positions)) {
		d.batches.drop(b)
		b = nil
	}
	if b == nil {
		if !d.batches.worth(key) {
			return nil, nil
		}
		b = &batch{
			key: string(key), epoch: d.snapshot.Epoch(), signEpoch: signEpoch, positions: positions,
			all: len(positions) == len(d.snapshot.Nodes()), prioritised: prioritised,
		}
		b.ranking = d.fw.NewRanking(state.Clone(), positions)
		b.verdicts.Reset(d.snapshot.Nodes())
		d.batches.add(b)
		b.tree.reset(len(positions))
		return b, d.refresh(b, pod, narrowed, state, true, w)
	}
	return b, d.refresh(b, pod, narrowed, state, false, w)
}

// sameList is slices.Equal that knows a list by its place in memory.
func sameList(a, b []int32) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// refresh looks at the nodes that changed since the batch last did, or at all. What changes a node is what happens to it and
// to those for whom room is being made there.
func (d *Decider) refresh(b *batch, pod *framework.PodInfo, narrowed runtime.Narrowed, state *framework.CycleState, all bool, w *podWatch) error {
	ks, known := d.changed(b)
	if all || !known || len(ks) > len(b.positions)/rebuildShare {
		ks = ks[:0]
		for k := range b.positions {
			ks = append(ks, int32(k))
		}
		d.batches.ks = ks
	}
	if len(ks) == 0 {
		return nil
	}
	if len(ks) < len(b.positions) {
		d.batches.answers++
	}
	err := d.rejudge(b, pod, narrowed, state, ks, w)
	if err != nil {
		d.batches.drop(b)
	}
	return err
}

// changed returns the ks of the nodes that changed since the last call, ascending; false where that is not known any more.
func (d *Decider) changed(b *batch) (ks []int32, known bool) {
	changed, known := d.snapshot.ChangedSince(b.version, d.batches.changed[:0])
	b.version = d.snapshot.Version()
	if b.prioritised {
		names, now, ok := d.fw.Nominator().ChangedSince(b.nominated, d.batches.names[:0])
		d.batches.names, b.nominated, known = names, now, known && ok
		for _, name := range names {
			if node := d.snapshot.Node(name); node != nil {
				changed = append(changed, node.Index)
			}
		}
	}
	slices.Sort(changed)
	changed = slices.Compact(changed)
	d.batches.changed = changed
	ks = d.batches.ks[:0]
	for _, i := range changed {
		if k, ok := b.index(i); ok {
			ks = append(ks, k)
		}
	}
	d.batches.ks = ks
	return ks, known
}

// index is the k of a position; false where the batch does not have it.
func (b *batch) index(position int32) (int32, bool) {
	if b.all {
		return position, true
	}
	k, ok := slices.BinarySearch(b.positions, position)
	return int32(k), ok
}

// rejudge filters and scores the nodes at the ks.
func (d *Decider) rejudge(b *batch, pod *framework.PodInfo, narrowed runtime.Narrowed, state *framework.CycleState, ks []int32, w *podWatch) error {
	nodes := d.snapshot.Columns()
	b.ranking.State().MeasureFor(state)
	defer b.ranking.State().MeasureFor(&framework.CycleState{}) // the attempt's figures must not grow after it
	begun := w.begin()
	open := d.batches.open[:0]
	for _, k := range ks {
		b.verdicts.Accept(b.positions[k])
		open = append(open, b.positions[k])
	}
	d.batches.open = open
	open = narrow(open, narrowed, nodes, &b.verdicts)
	open, st := d.fw.RunFilterPass(b.ranking.State(), pod, nodes, open, &b.verdicts)
	if st.IsSuccess() && b.prioritised {
		// Whoever of the pods for which room is being made asks: place looks after the node of the pod itself.
		open, st = d.yield(b.ranking.State(), pod, "", open, &b.verdicts)
	}
	w.end(filter, begun, st.Code())
	if !st.IsSuccess() {
		return st.Err()
	}
	begun = w.begin()
	whole := len(ks) == len(b.positions)
	all, st := b.ranking.Update(pod, nodes, ks, open, func(k int32) {
		if !whole {
			b.tree.set(int(k), b.ranking.Total[k])
		}
	})
	w.end(score, begun, st.Code())
	if !st.IsSuccess() {
		return st.Err()
	}
	if all || whole {
		b.tree.fill(b.ranking.Total)
	}
	return nil
}

// fits reports whether the node at a position would do.
func (b *batch) fits(position int32) bool {
	k, ok := b.index(position)
	return ok && b.ranking.Total[k] != none
}

// best returns the position of the best node, the first of equals from the position start on; false where there is none.
func (b *batch) best(start int32) (position int32, found bool) {
	at := int(start)
	if !b.all {
		at, _ = slices.BinarySearch(b.positions, start)
	}
	k, found := b.tree.best(at)
	if !found {
		return 0, false
	}
	return b.positions[k], true
}
