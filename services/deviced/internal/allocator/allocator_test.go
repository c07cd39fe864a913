package allocator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trireme.dev/services/deviced/internal/allocator"
	"trireme.dev/services/deviced/internal/inventory"
)

// eight devices g0 to g7, the first four on NUMA node 0.
func eight() []inventory.Device {
	var devices []inventory.Device
	for i := range 8 {
		devices = append(devices, inventory.Device{ID: fmt.Sprintf("g%d", i), NUMANodes: []int64{int64(i / 4)}})
	}
	return devices
}

func TestPrefer(t *testing.T) {
	for _, c := range []struct {
		name            string
		available, must string
		size            int
		want            string
	}{
		{"the lower node of two equal ones", "g0 g1 g2 g3 g4 g5 g6 g7", "", 2, "g0 g1"},
		{"the smallest group that holds all", "g0 g1 g2 g3 g6 g7", "", 2, "g6 g7"},
		{"a group that holds all before a smaller one", "g0 g1 g2 g6 g7", "", 3, "g0 g1 g2"},
		{"near to what must be included", "g0 g1 g2 g3 g5 g6 g7", "g6", 2, "g6 g5"},
		{"over two nodes, the larger first", "g0 g1 g2 g3 g5 g6 g7", "", 5, "g0 g1 g2 g3 g5"},
		{"everything", "g0 g7", "g7", 2, "g7 g0"},
		{"nothing", "g0", "", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := allocator.Prefer(eight(), strings.Fields(c.available), strings.Fields(c.must), c.size)
			if err != nil {
				t.Fatal(err)
			}
			if want := strings.Fields(c.want); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestPreferRefuses(t *testing.T) {
	for _, c := range []struct {
		name            string
		available, must []string
		size            int
	}{
		{"an unknown device", []string{"x"}, nil, 1},
		{"more than there are", []string{"g0"}, nil, 2},
		{"a must that is not available", []string{"g0", "g1"}, []string{"g2"}, 2},
		{"more musts than the size", []string{"g0", "g1"}, []string{"g0", "g1"}, 1},
	} {
		if got, err := allocator.Prefer(eight(), c.available, c.must, c.size); err == nil {
			t.Errorf("%s: got %v, want an error", c.name, got)
		}
	}
}

func TestPreferAlwaysGivesTheNumberAskedForOutOfWhatIsFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var devices []inventory.Device
		var available []string
		for i := range rapid.IntRange(1, 16).Draw(t, "devices") {
			d := inventory.Device{ID: fmt.Sprintf("g%d", i)}
			if numa := rapid.Int64Range(-1, 3).Draw(t, "numa"); numa >= 0 {
				d.NUMANodes = []int64{numa}
			}
			devices = append(devices, d)
			if rapid.Bool().Draw(t, "free") {
				available = append(available, d.ID)
			}
		}
		size := rapid.IntRange(0, len(available)).Draw(t, "size")
		must := available[:rapid.IntRange(0, size).Draw(t, "must")]
		got, err := allocator.Prefer(devices, available, must, size)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != size {
			t.Fatalf("got %v, want %d devices", got, size)
		}
		for i, id := range got {
			if !slices.Contains(available, id) || slices.Contains(got[:i], id) {
				t.Fatalf("got %v out of %v", got, available)
			}
		}
		for _, id := range must {
			if !slices.Contains(got, id) {
				t.Fatalf("got %v without %s", got, id)
			}
		}
	})
}
