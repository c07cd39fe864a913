package inventory_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"trireme.dev/services/deviced/internal/inventory"
	"trireme.dev/services/deviced/internal/inventory/inventorytest"
)

// machine writes files under a root and returns it.
func machine(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func nvidiaMachine(t *testing.T) string {
	t.Helper()
	files := map[string]string{"/dev/nvidiactl": "", "/dev/nvidia-uvm": "", "/dev/nvidia0": "", "/dev/nvidia10": ""}
	for i, minor := range []int{10, 0, 2} {
		pci := fmt.Sprintf("0000:%02x:00.0", i+1)
		files["/proc/driver/nvidia/gpus/"+pci+"/information"] = fmt.Sprintf(
			"Model: \t\t NVIDIA H200\nIRQ:   \t\t 36\nGPU UUID: \t GPU-%d\nBus Location: \t %s\nDevice Minor: \t %d\n", minor, pci, minor)
		files["/sys/bus/pci/devices/"+pci+"/numa_node"] = fmt.Sprintf("%d\n", i-1)
	}
	return machine(t, files)
}

func TestEveryInventoryPassesTheSuite(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) inventory.Inventory{
		"nvidia": func(t *testing.T) inventory.Inventory { return inventory.NewNVIDIA(nvidiaMachine(t)) },
		"glob": func(t *testing.T) inventory.Inventory {
			root := machine(t, map[string]string{"/dev/dri/renderD128": "", "/dev/dri/renderD129": ""})
			g, err := inventory.NewGlob(root, []string{"/dev/dri/render*", "/dev/dri/*"})
			if err != nil {
				t.Fatal(err)
			}
			return g
		},
		"simulated": func(t *testing.T) inventory.Inventory {
			s, err := inventory.NewSimulated(inventory.SimulatedConfig{Prefix: "GPU-sim", Count: 12, NUMANodes: 2})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) { inventorytest.Run(t, open) })
	}
}

func TestNVIDIAReadsTheDriver(t *testing.T) {
	n := inventory.NewNVIDIA(nvidiaMachine(t))
	devices, err := n.Devices()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, d := range devices {
		ids = append(ids, d.ID)
	}
	if want := []string{"GPU-0", "GPU-2", "GPU-10"}; !slices.Equal(ids, want) {
		t.Errorf("IDs = %v, want %v", ids, want)
	}
	if devices[0].Unhealthy != "" || devices[1].Unhealthy == "" {
		t.Errorf("health = %q and %q, want the GPU whose node is missing, and only it, unhealthy",
			devices[0].Unhealthy, devices[1].Unhealthy)
	}
	if !slices.Equal(devices[0].NUMANodes, []int64{0}) || devices[2].NUMANodes != nil {
		t.Errorf("NUMA nodes = %v and %v, want [0] and none for -1", devices[0].NUMANodes, devices[2].NUMANodes)
	}
	if shared := n.Shared(); len(shared) != 2 {
		t.Errorf("shared = %v, want the two control nodes that exist", shared)
	}
	if devices, err := inventory.NewNVIDIA(t.TempDir()).Devices(); err != nil || len(devices) != 0 {
		t.Errorf("without a driver: %v, %v, want no devices", devices, err)
	}
}

func TestNVIDIANamesTheGPUThatCannotBeRead(t *testing.T) {
	root := machine(t, map[string]string{"/proc/driver/nvidia/gpus/0000:01:00.0/information": "Device Minor: x\n"})
	_, err := inventory.NewNVIDIA(root).Devices()
	if err == nil || err.Error()[:16] != "GPU 0000:01:00.0" {
		t.Errorf("err = %v, want one that names the GPU", err)
	}
}

func TestGlobRefusesBadPatterns(t *testing.T) {
	for _, patterns := range [][]string{nil, {"/dev/["}, {"dev/x*"}} {
		if _, err := inventory.NewGlob("/", patterns); err == nil {
			t.Errorf("patterns %q accepted", patterns)
		}
	}
}

func TestSimulatedDevicesAreSpreadOverNUMANodesAndCanFail(t *testing.T) {
	s, err := inventory.NewSimulated(inventory.SimulatedConfig{Prefix: "GPU-sim", Count: 8, NUMANodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	if !s.SetHealth("GPU-sim-3", false) || s.SetHealth("GPU-sim-8", false) {
		t.Error("SetHealth must find GPU-sim-3 and not GPU-sim-8")
	}
	devices, err := s.Devices()
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range devices {
		if want := int64(i / 4); !slices.Equal(d.NUMANodes, []int64{want}) {
			t.Errorf("%s on NUMA node %v, want %d", d.ID, d.NUMANodes, want)
		}
		if (d.Unhealthy != "") != (i == 3) {
			t.Errorf("%s unhealthy: %q", d.ID, d.Unhealthy)
		}
	}
}
