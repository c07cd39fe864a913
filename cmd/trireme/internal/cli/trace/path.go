package trace

import (
	"slices"
	"time"
)

const (
	// inside is how far a child may reach out of its parent and still be part of it: clocks of two processes on one
	// machine agree better than that, and the end of a call is seen on both sides.
	inside = time.Millisecond
	// handover is how long it may take from the end of one span to the start of what waited for it.
	handover = 2 * time.Millisecond
)

// Segment is a part of the critical path: from Start to End, the pod waited for Span, or for what nobody recorded.
type Segment struct {
	// Span is nil where nothing was recorded.
	Span       *Span
	Start, End time.Time
}

// Duration of the segment.
func (s Segment) Duration() time.Duration { return s.End.Sub(s.Start) }

// step is a span in the order of things: a span is part of another if it lies within it in time. A child that begins
// before its parent or outlives it was not waited for by it; it is a step of its own beside its parent. (The spans of a
// pod's life are nearly all of that sort: children of the write that created it, which was over long before.)
type step struct {
	*Span

	parts []*step
}

// steps arranges spans.
func steps(spans []*Span) []*step {
	all := map[string]*step{}
	for _, s := range spans {
		all[s.ID] = &step{Span: s}
	}
	var top []*step
	for _, s := range spans {
		around := all[s.Parent]
		for hops := 0; around != nil && !within(s, around.Span); hops++ {
			if hops > len(spans) { // parents in a circle
				around = nil
				break
			}
			around = all[around.Parent]
		}
		if around == nil || around.Span == s {
			top = append(top, all[s.ID])
		} else {
			around.parts = append(around.parts, all[s.ID])
		}
	}
	return top
}

func within(s, around *Span) bool {
	return !s.Start.Before(around.Start.Add(-inside)) && !s.End.After(around.End.Add(inside))
}

// criticalPath walks back from end: what ended last before a moment is what that moment waited for. Time in a span is
// that of its parts where one of them was waited for, and otherwise its own.
func criticalPath(spans []*Span, start, end time.Time) []Segment {
	w := &walk{}
	w.back(nil, steps(spans), start, end)
	slices.Reverse(w.path)
	return w.path
}

type walk struct {
	path []Segment // latest first
	last *Span     // the span of the latest segment that has one
}

// back covers the time from start to end with steps, and what they leave over with owner.
func (w *walk) back(owner *Span, among []*step, start, end time.Time) {
	for at := end; at.After(start); {
		next := w.waitedFor(among, at)
		if next == nil {
			w.add(owner, start, at)
			return
		}
		to := earlier(next.End, at)
		from := later(next.Start, start)
		w.add(owner, to, at)
		w.last = next.Span
		w.back(next.Span, next.parts, from, to)
		at = from
		among = slices.DeleteFunc(slices.Clone(among), func(s *step) bool { return s == next })
	}
}

// waitedFor chooses the step that the given moment waited for: the one that ended last of those that were over just then;
// otherwise one that was still under way, of the same process as what came after it if there is one, and of several the
// one that began last; otherwise what ended last before.
func (w *walk) waitedFor(among []*step, at time.Time) *step {
	var over, running, before *step
	for _, s := range among {
		switch {
		case !s.Start.Before(at) || s.Duration() == 0:
		case s.End.After(at):
			if running == nil || w.nearer(s, running) {
				running = s
			}
		case at.Sub(s.End) <= handover:
			if over == nil || !s.End.Before(over.End) {
				over = s
			}
		default:
			if before == nil || s.End.After(before.End) {
				before = s
			}
		}
	}
	switch {
	case over != nil:
		return over
	case running != nil:
		return running
	}
	return before
}

func (w *walk) nearer(s, than *step) bool {
	if w.last != nil {
		if same := s.Service == w.last.Service; same != (than.Service == w.last.Service) {
			return same
		}
	}
	return !s.Start.Before(than.Start)
}

// add puts a segment before the path; segments of one span that touch are one.
func (w *walk) add(span *Span, start, end time.Time) {
	if !end.After(start) {
		return
	}
	if n := len(w.path); n > 0 && w.path[n-1].Span == span && w.path[n-1].Start.Equal(end) {
		w.path[n-1].Start = start
		return
	}
	w.path = append(w.path, Segment{Span: span, Start: start, End: end})
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Share is how much of the critical path one span has, in its own segments.
type Share struct {
	// Span is nil for all that was not recorded.
	Span *Span
	Time time.Duration
}

// Shares sums the path, largest first.
func (t *Trace) Shares() []Share {
	var out []Share
	at := map[*Span]int{}
	for _, s := range t.Path {
		i, ok := at[s.Span]
		if !ok {
			i = len(out)
			at[s.Span] = i
			out = append(out, Share{Span: s.Span})
		}
		out[i].Time += s.Duration()
	}
	slices.SortStableFunc(out, func(a, b Share) int { return int(b.Time - a.Time) })
	return out
}

// LongestWait is the wait that the critical path lost most time to; nil without any.
func (t *Trace) LongestWait() *Share {
	for _, s := range t.Shares() {
		if s.Span == nil || s.Span.Wait() {
			return &s
		}
	}
	return nil
}

// OnPath tells the spans of the critical path, and those around them.
func (t *Trace) OnPath() map[*Span]bool {
	byID := map[string]*Span{}
	for _, s := range t.Spans {
		byID[s.ID] = s
	}
	on := map[*Span]bool{}
	for _, seg := range t.Path {
		for s := seg.Span; s != nil && !on[s]; s = byID[s.Parent] {
			if s != seg.Span && !(!seg.Start.Before(s.Start) && !seg.End.After(s.End.Add(inside))) {
				break
			}
			on[s] = true
		}
	}
	return on
}
