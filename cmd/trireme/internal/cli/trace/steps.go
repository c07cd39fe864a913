package trace

import (
	"cmp"
	"slices"
	"time"
)

// Step is what one kind of span took in many traces. A trace in which it occurs several times counts once, with the sum.
type Step struct {
	Name, Service string
	// Traces is in how many it occurs.
	Traces        int
	P50, P95, Max time.Duration
}

// Steps compares traces span by span, in the order in which the spans usually begin.
func Steps(traces []*Trace) []Step {
	type key struct{ name, service string }
	took, began := map[key][]time.Duration{}, map[key][]time.Duration{}
	var order []key
	for _, t := range traces {
		sums := map[key]time.Duration{}
		for _, s := range t.Spans {
			k := key{s.Name, s.Service}
			if s.Start.After(t.End) || s.Name == ReadySpan {
				continue
			}
			if _, ok := sums[k]; !ok {
				began[k] = append(began[k], s.Start.Sub(t.Start))
			}
			if took[k] == nil {
				took[k] = []time.Duration{}
				order = append(order, k)
			}
			sums[k] += s.Duration()
		}
		for k, sum := range sums {
			took[k] = append(took[k], sum)
		}
	}
	slices.SortStableFunc(order, func(a, b key) int {
		return cmp.Or(cmp.Compare(Percentile(began[a], 50), Percentile(began[b], 50)),
			cmp.Compare(Percentile(took[b], 50), Percentile(took[a], 50)), cmp.Compare(a.name, b.name))
	})
	out := make([]Step, len(order))
	for i, k := range order {
		out[i] = Step{
			Name: k.name, Service: k.service, Traces: len(took[k]),
			P50: Percentile(took[k], 50), P95: Percentile(took[k], 95), Max: Percentile(took[k], 100),
		}
	}
	return out
}

// Percentile is the smallest of the durations that p percent of them do not exceed; zero of none.
func Percentile(of []time.Duration, p int) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}
