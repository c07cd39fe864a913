package cycle

// maxTree finds the best of many scores, and the first of the best from any place on, in logarithmic time.
type maxTree struct {
	leaves int     // a power of two
	score  []int64 // of node n the larger of 2n and 2n+1; leaves begin at index leaves
}

// none is the score of what is no candidate: below all others.
const none = int64(-1)

// reset makes a tree of n leaves without candidates.
func (t *maxTree) reset(n int) {
	t.leaves = 1
	for t.leaves < n {
		t.leaves *= 2
	}
	if cap(t.score) < 2*t.leaves {
		t.score = make([]int64, 2*t.leaves)
	}
	t.score = t.score[:2*t.leaves]
	for i := range t.score {
		t.score[i] = none
	}
}

// fill takes over the scores of the leaves at once.
func (t *maxTree) fill(scores []int64) {
	copy(t.score[t.leaves:], scores)
	for i := t.leaves - 1; i > 0; i-- {
		t.score[i] = max(t.score[2*i], t.score[2*i+1])
	}
}

// set changes one leaf.
func (t *maxTree) set(leaf int, score int64) {
	i := leaf + t.leaves
	t.score[i] = score
	for i /= 2; i > 0; i /= 2 {
		best := max(t.score[2*i], t.score[2*i+1])
		if t.score[i] == best {
			return
		}
		t.score[i] = best
	}
}

// best returns the first leaf with the best score from start on, round the end; false where there is no candidate.
func (t *maxTree) best(start int) (int, bool) {
	top := t.score[1]
	if top == none {
		return 0, false
	}
	if leaf, ok := t.from(start, top); ok {
		return leaf, true
	}
	return t.from(0, top)
}

// from returns the first leaf at or after start that has the score top, which none exceeds.
func (t *maxTree) from(start int, top int64) (int, bool) {
	if start >= t.leaves {
		return 0, false
	}
	i := start + t.leaves
	if t.score[i] != top {
		for ; ; i /= 2 {
			if i == 1 {
				return 0, false
			}
			if i%2 == 0 && t.score[i+1] == top {
				i++
				break
			}
		}
	}
	for i < t.leaves {
		i *= 2
		if t.score[i] != top {
			i++
		}
	}
	return i - t.leaves, true
}
