package manifest

import "slices"

// NeededFirst puts what the gateway wants to find before others can name it in front: namespaces, then priority
// classes. All else keeps its order.
func NeededFirst(docs []Document) {
	rank := func(d Document) int {
		switch d.Kind.Name {
		case "Namespace":
			return 0
		case "PriorityClass":
			return 1
		}
		return 2
	}
	slices.SortStableFunc(docs, func(a, b Document) int { return rank(a) - rank(b) })
}
