package framework

// journal remembers which nodes changed, in order, so that who knows of an earlier state can look at these only.
type journal struct {
	begin   uint64 // number of the first of entries
	entries []int32
	last    []uint64 // by position: number of its newest entry, plus 1
}

// maxJournal bounds what is remembered.
const maxJournal = 1 << 16

func (j *journal) reset(nodes int) {
	j.begin += uint64(len(j.entries)) + 1
	j.entries = j.entries[:0]
	j.last = make([]uint64, nodes)
}

func (j *journal) note(position int32) {
	if len(j.entries) >= maxJournal {
		half := len(j.entries) / 2
		j.begin += uint64(half)
		j.entries = j.entries[:copy(j.entries, j.entries[half:])]
	}
	j.entries = append(j.entries, position)
	j.last[position] = j.begin + uint64(len(j.entries))
}

// Version grows with each change of a node.
func (s *Snapshot) Version() uint64 { return s.journal.begin + uint64(len(s.journal.entries)) }

// ChangedSince appends to list the positions of the nodes that changed after version, each once; false where that is
// not known any more.
func (s *Snapshot) ChangedSince(version uint64, list []int32) ([]int32, bool) {
	j := &s.journal
	if version < j.begin {
		return list, false
	}
	for k := version - j.begin; k < uint64(len(j.entries)); k++ {
		if p := j.entries[k]; j.last[p] == j.begin+k+1 {
			list = append(list, p)
		}
	}
	return list, true
}
