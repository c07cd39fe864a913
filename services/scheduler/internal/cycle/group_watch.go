package cycle

// mark is where what is noted from now on begins.
func (w *Watch) mark() int {
	if w == nil {
		return 0
	}
	return len(w.pods)
}

// only leaves what was noted from begin to end, in one of several placements.
func (w *Watch) only(begin, end int) {
	if w == nil {
		return
	}
	n := copy(w.pods, w.pods[begin:end])
	clear(w.pods[n:])
	w.pods = w.pods[:n]
}

// drop forgets what was noted since begin.
func (w *Watch) drop(begin int) {
	if w != nil {
		clear(w.pods[begin:])
		w.pods = w.pods[:begin]
	}
}
