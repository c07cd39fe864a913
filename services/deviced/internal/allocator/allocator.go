// Package allocator chooses which devices a container should get. It is pure: devices in, choice out. Its answer is
// advice (GetPreferredAllocation of the device plugin API); the node agent decides.
//
// In its chain: inventory → allocator → plugin.
package allocator

import (
	"fmt"
	"maps"
	"slices"

	"trireme.dev/services/deviced/internal/inventory"
)

// Prefer chooses size devices out of available, must among them, near to one another: first on the NUMA node that
// must already uses, then on the smallest group that holds all that is wanted, so that larger groups stay whole, and
// else on the largest. Equal choices fall to the lower NUMA node and the lower ID, so that the same question has the
// same answer. IDs not in devices are an error, as are a must outside available and a size that cannot be met.
func Prefer(devices []inventory.Device, available, must []string, size int) ([]string, error) {
	known := map[string]inventory.Device{}
	for _, d := range devices {
		known[d.ID] = d
	}
	free := map[string]bool{}
	for _, id := range available {
		if _, ok := known[id]; !ok {
			return nil, fmt.Errorf("available device %s is unknown", id)
		}
		free[id] = true
	}
	if len(must) > size || size > len(free) {
		return nil, fmt.Errorf("want %d devices, %d of them given, %d available", size, len(must), len(free))
	}
	var chosen []string
	used := map[int64]int{}
	take := func(id string) {
		chosen = append(chosen, id)
		delete(free, id)
		used[numaOf(known[id])]++
	}
	for _, id := range must {
		if !free[id] {
			return nil, fmt.Errorf("device %s must be included and is not available", id)
		}
		take(id)
	}
	for len(chosen) < size {
		groups := map[int64][]inventory.Device{}
		for id := range free {
			node := numaOf(known[id])
			groups[node] = append(groups[node], known[id])
		}
		group := groups[best(groups, used, size-len(chosen))]
		slices.SortFunc(group, inventory.Compare)
		for _, d := range group[:min(len(group), size-len(chosen))] {
			take(d.ID)
		}
	}
	return chosen, nil
}

// best is the NUMA node to take from next, when missing devices are wanted.
func best(groups map[int64][]inventory.Device, used map[int64]int, missing int) int64 {
	nodes := slices.Sorted(maps.Keys(groups))
	return slices.MinFunc(nodes, func(a, b int64) int {
		if used[a] != used[b] {
			return used[b] - used[a]
		}
		holdsA, holdsB := len(groups[a]) >= missing, len(groups[b]) >= missing
		switch {
		case holdsA && !holdsB:
			return -1
		case holdsB && !holdsA:
			return 1
		case holdsA:
			return len(groups[a]) - len(groups[b])
		default:
			return len(groups[b]) - len(groups[a])
		}
	})
}

// numaOf is the device's NUMA node, or -1 where it has none or several.
func numaOf(d inventory.Device) int64 {
	if len(d.NUMANodes) != 1 {
		return -1
	}
	return d.NUMANodes[0]
}
