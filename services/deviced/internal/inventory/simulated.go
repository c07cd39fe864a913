package inventory

import (
	"fmt"
	"slices"
	"sync"
)

// Simulated is an inventory of devices that do not exist, for machines without GPUs. A container that is given one
// sees a node /dev/nvidiaN as it would of a real GPU; behind it is the null device.
type Simulated struct {
	mu      sync.Mutex
	devices []Device
}

// SimulatedConfig says which devices to pretend.
type SimulatedConfig struct {
	// Prefix of the IDs, which are PREFIX-0, PREFIX-1, ...
	Prefix string
	// Count of devices.
	Count int
	// NUMANodes that they are spread over, in blocks: 8 devices on 2 nodes are 0-3 and 4-7. 0 means no topology.
	NUMANodes int
}

// NewSimulated returns an inventory of healthy devices.
func NewSimulated(cfg SimulatedConfig) (*Simulated, error) {
	if cfg.Count < 0 || cfg.NUMANodes < 0 {
		return nil, fmt.Errorf("count %d and NUMA nodes %d: want 0 or more", cfg.Count, cfg.NUMANodes)
	}
	s := &Simulated{}
	for i := range cfg.Count {
		d := Device{
			ID:         fmt.Sprintf("%s-%d", cfg.Prefix, i),
			Nodes:      []Node{{Host: "/dev/null", Container: fmt.Sprintf("/dev/nvidia%d", i)}},
			Attributes: map[string]string{"model": "simulated"},
		}
		if cfg.NUMANodes > 0 {
			d.NUMANodes = []int64{int64(i * cfg.NUMANodes / cfg.Count)}
		}
		s.devices = append(s.devices, d)
	}
	return s, nil
}

// Devices implements Inventory.
func (s *Simulated) Devices() ([]Device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.devices), nil
}

// Shared implements Inventory; there is nothing to share.
func (s *Simulated) Shared() []Node { return nil }

// SetHealth makes a device healthy or not, and tells whether there is such a device.
func (s *Simulated) SetHealth(id string, healthy bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.devices {
		if s.devices[i].ID == id {
			s.devices[i].Unhealthy = ""
			if !healthy {
				s.devices[i].Unhealthy = "made unhealthy by hand"
			}
			return true
		}
	}
	return false
}
