package telemetrytest

import (
	"slices"
	"time"
)

// Of returns the spans of one trace.
func Of(spans []Span, trace string) []Span {
	return slices.DeleteFunc(slices.Clone(spans), func(s Span) bool { return s.Trace != trace })
}

// Paths names each span by those above it, "Create/syncPod/Admit", sorted and each once. A span whose parent is not among
// those given begins a path.
func Paths(spans []Span) []string {
	byID := map[string]Span{}
	for _, s := range spans {
		byID[s.ID] = s
	}
	var out []string
	for _, s := range spans {
		path := s.Name
		for parent, ok := byID[s.Parent]; ok; parent, ok = byID[parent.Parent] {
			path = parent.Name + "/" + path
		}
		out = append(out, path)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Gap is time that no leaf of a trace covers: no span that has no others below it.
type Gap struct {
	After, Before string // names of spans
	Length        time.Duration
}

// Gaps lists what is longer than the least worth listing between the beginning of the first leaf and end.
func Gaps(spans []Span, end time.Time, least time.Duration) []Gap {
	inner := map[string]bool{}
	for _, s := range spans {
		inner[s.Parent] = true
	}
	leaves := slices.DeleteFunc(slices.Clone(spans), func(s Span) bool { return inner[s.ID] || s.Start.After(end) })
	slices.SortStableFunc(leaves, func(a, b Span) int { return a.Start.Compare(b.Start) })
	var out []Gap
	for i, s := range leaves {
		if i == 0 {
			continue
		}
		last := leaves[0]
		for _, before := range leaves[:i] {
			if before.End.After(last.End) {
				last = before
			}
		}
		if d := s.Start.Sub(last.End); d > least {
			out = append(out, Gap{last.Name, s.Name, d})
		}
	}
	return out
}
