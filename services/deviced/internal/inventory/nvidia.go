package inventory

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// nvidiaShared are the control nodes that every CUDA program opens beside those of its GPUs.
var nvidiaShared = []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}

// NVIDIA finds GPUs as the NVIDIA driver shows them: a folder for each under /proc/driver/nvidia/gpus with its UUID
// and minor number, and a node /dev/nvidiaN. It asks no library, so it works on a machine without NVML; that also
// means that errors which only NVML reports (XIDs) go unseen.
type NVIDIA struct{ root string }

// NewNVIDIA returns the inventory of the machine under root, which is "/" but in tests.
func NewNVIDIA(root string) *NVIDIA { return &NVIDIA{root: root} }

// Devices implements Inventory. A machine without the driver has no devices.
func (n *NVIDIA) Devices() ([]Device, error) {
	folder := under(n.root, "/proc/driver/nvidia/gpus")
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list GPUs: %w", err)
	}
	var devices []Device
	for _, entry := range entries {
		d, err := n.gpu(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("GPU %s: %w", entry.Name(), err)
		}
		devices = append(devices, d)
	}
	slices.SortFunc(devices, func(a, b Device) int { return compareNatural(a.Nodes[0].Host, b.Nodes[0].Host) })
	return devices, nil
}

// gpu reads one GPU by its PCI address.
func (n *NVIDIA) gpu(pci string) (Device, error) {
	information, err := readInformation(under(n.root, filepath.Join("/proc/driver/nvidia/gpus", pci, "information")))
	if err != nil {
		return Device{}, err
	}
	minor, err := strconv.Atoi(information["Device Minor"])
	if err != nil {
		return Device{}, fmt.Errorf("device minor %q: %w", information["Device Minor"], err)
	}
	node := fmt.Sprintf("/dev/nvidia%d", minor)
	d := Device{
		ID:         information["GPU UUID"],
		Nodes:      []Node{{Host: node, Container: node}},
		Attributes: map[string]string{"model": information["Model"], "pci": pci},
	}
	// A driver that has not read the UUID yet prints question marks in its place.
	if d.ID == "" || strings.Contains(d.ID, "?") {
		d.ID = "GPU-" + pci
	}
	if _, err := os.Stat(under(n.root, node)); err != nil {
		d.Unhealthy = err.Error()
	}
	numa, err := os.ReadFile(under(n.root, filepath.Join("/sys/bus/pci/devices", pci, "numa_node")))
	if err == nil {
		// The kernel says -1 where it does not know.
		if v, err := strconv.ParseInt(strings.TrimSpace(string(numa)), 10, 64); err == nil && v >= 0 {
			d.NUMANodes = []int64{v}
		}
	}
	return d, nil
}

// Shared implements Inventory.
func (n *NVIDIA) Shared() []Node {
	var nodes []Node
	for _, path := range nvidiaShared {
		if _, err := os.Stat(under(n.root, path)); err == nil {
			nodes = append(nodes, Node{Host: path, Container: path})
		}
	}
	return nodes
}

// readInformation reads the driver's "Key: value" lines.
func readInformation(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	information := map[string]string{}
	for lines := bufio.NewScanner(f); ; {
		if !lines.Scan() {
			return information, lines.Err()
		}
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok {
			information[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
}
