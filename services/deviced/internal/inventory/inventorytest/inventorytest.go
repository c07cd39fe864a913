// Package inventorytest is the suite that every inventory passes.
package inventorytest

import (
	"slices"
	"strings"
	"testing"

	"trireme.dev/services/deviced/internal/inventory"
)

// Run checks what deviced relies on. open returns an inventory that has at least one device.
func Run(t *testing.T, open func(t *testing.T) inventory.Inventory) {
	t.Helper()
	t.Run("devices are complete", func(t *testing.T) {
		devices, err := open(t).Devices()
		if err != nil {
			t.Fatal(err)
		}
		if len(devices) == 0 {
			t.Fatal("no devices")
		}
		seen := map[string]bool{}
		for _, d := range devices {
			if d.ID == "" || len(d.ID) > 63 || strings.ContainsAny(d.ID, "/, ") {
				t.Errorf("ID %q: want 1 to 63 characters without slash, comma or space", d.ID)
			}
			if seen[d.ID] {
				t.Errorf("ID %s twice", d.ID)
			}
			seen[d.ID] = true
			if len(d.Nodes) == 0 {
				t.Errorf("device %s has no nodes", d.ID)
			}
			for _, n := range d.Nodes {
				if !strings.HasPrefix(n.Host, "/") || !strings.HasPrefix(n.Container, "/") {
					t.Errorf("device %s: node %+v: want absolute paths", d.ID, n)
				}
			}
		}
	})
	t.Run("a second look sees the same", func(t *testing.T) {
		i := open(t)
		first, err := i.Devices()
		if err != nil {
			t.Fatal(err)
		}
		second, err := i.Devices()
		if err != nil {
			t.Fatal(err)
		}
		if !inventory.Equal(first, second) {
			t.Errorf("first %v, second %v", first, second)
		}
	})
	t.Run("what is returned is the caller's", func(t *testing.T) {
		i := open(t)
		first, err := i.Devices()
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(first)
		first[0].ID = "spoilt"
		again, err := i.Devices()
		if err != nil {
			t.Fatal(err)
		}
		if !inventory.Equal(again, want) {
			t.Errorf("after the caller changed its copy: %v, want %v", again, want)
		}
	})
}
