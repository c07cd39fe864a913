// Package inventory finds the devices of a node: where they are, whether they work, and what a container needs in
// order to use them. It never decides who gets one.
//
// In its chain: inventory → allocator → plugin.
package inventory

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
)

// Inventory finds the devices of one resource. Both methods are safe for concurrent use; inventorytest is the suite
// that every inventory passes.
type Inventory interface {
	// Devices reports every device of the resource, ordered by Compare, unhealthy ones included. It reads the machine
	// anew each time. An error means that nothing is known, not that there are no devices.
	Devices() ([]Device, error)
	// Shared lists nodes that a container needs beside those of its devices (nvidiactl), where they exist.
	Shared() []Node
}

// Device is one device that a container can be given whole.
type Device struct {
	// ID is unique within the resource and stable over restarts, at most 63 characters.
	ID string
	// Unhealthy says why the device cannot be used; empty means that it can.
	Unhealthy string
	// NUMANodes that the device is near to; empty where unknown.
	NUMANodes []int64
	// Nodes are the device nodes by which it is used.
	Nodes []Node
	// Attributes for people: model, driver.
	Attributes map[string]string
}

// Node is a device node given to a container.
type Node struct {
	// Host is the path on the machine, Container the path that the container sees.
	Host, Container string
}

// Compare orders devices by ID, numbers within it as numbers: gpu-2 before gpu-10.
func Compare(a, b Device) int { return compareNatural(a.ID, b.ID) }

// Equal tells whether two lists say the same to whoever allocates from them.
func Equal(a, b []Device) bool {
	return slices.EqualFunc(a, b, func(x, y Device) bool {
		return x.ID == y.ID && x.Unhealthy == y.Unhealthy &&
			slices.Equal(x.NUMANodes, y.NUMANodes) && slices.Equal(x.Nodes, y.Nodes)
	})
}

func compareNatural(a, b string) int {
	for a != "" && b != "" {
		digitsA, digitsB := leadingDigits(a), leadingDigits(b)
		if digitsA > 0 && digitsB > 0 {
			x, errX := strconv.ParseUint(a[:digitsA], 10, 64)
			y, errY := strconv.ParseUint(b[:digitsB], 10, 64)
			if errX == nil && errY == nil && x != y {
				return cmp.Compare(x, y)
			}
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func leadingDigits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// under joins a path of the machine to the root that it is looked up in, so that tests can bring a machine of their
// own; the device keeps the path as the machine names it.
func under(root, path string) string { return filepath.Join(root, path) }
