// Package plugin serves a pool of devices to a node agent (or a kubelet) by the device plugin API v1beta1: it
// registers, streams the list of devices, and says what a container that was given some needs.
//
// In its chain: inventory → allocator → plugin.
package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"trireme.dev/kit/loop"
	"trireme.dev/services/deviced/internal/allocator"
	"trireme.dev/services/deviced/internal/inventory"
)

// lookEvery is how often a pool looks at its inventory: nothing tells of a device node that vanishes.
const lookEvery = 5 * time.Second

// Pool is the devices of one resource as last seen, and who waits to hear of changes. It is safe for concurrent use.
type Pool struct {
	// Resource as pods request it: nvidia.com/gpu.
	Resource string
	// Env is the variable that tells a container its devices by ID, comma-separated; empty for none.
	Env string

	inventory inventory.Inventory

	mu      sync.Mutex
	devices []inventory.Device
	changed chan struct{} // closed, and made anew, when devices change
}

// NewPool looks at the inventory once.
func NewPool(resource, env string, inv inventory.Inventory) (*Pool, error) {
	p := &Pool{Resource: resource, Env: env, inventory: inv, changed: make(chan struct{})}
	if err := p.Look(); err != nil {
		return nil, err
	}
	return p, nil
}

// Run keeps the pool up to date until ctx ends.
func (p *Pool) Run(ctx context.Context) error {
	return loop.Every(ctx, loop.Config{Name: "look for " + p.Resource, Period: lookEvery, Delay: lookEvery},
		func(context.Context) error { return p.Look() })
}

// Look reads the inventory and wakes whoever waits where it changed. When it cannot be read the pool stays as it is.
func (p *Pool) Look() error {
	devices, err := p.inventory.Devices()
	if err != nil {
		return fmt.Errorf("look for %s: %w", p.Resource, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !inventory.Equal(devices, p.devices) {
		p.devices = devices
		close(p.changed)
		p.changed = make(chan struct{})
	}
	return nil
}

// Devices returns the devices and a channel that is closed when they are no longer true. The list must not be changed.
func (p *Pool) Devices() ([]inventory.Device, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.devices, p.changed
}

// Grant is what a container needs in order to use its devices.
type Grant struct {
	Env   map[string]string
	Nodes []inventory.Node
}

// Grant says what a container that was given the devices needs. Unknown devices are an error that names them; unhealthy
// ones are not, since a container that is restarted keeps what it has.
func (p *Pool) Grant(ids []string) (Grant, error) {
	devices, _ := p.Devices()
	var granted []inventory.Device
	var unknown []string
	for _, id := range ids {
		i := slices.IndexFunc(devices, func(d inventory.Device) bool { return d.ID == id })
		if i < 0 {
			unknown = append(unknown, id)
			continue
		}
		granted = append(granted, devices[i])
	}
	if len(unknown) > 0 {
		return Grant{}, fmt.Errorf("%s has no device %s", p.Resource, strings.Join(unknown, ", "))
	}
	slices.SortFunc(granted, inventory.Compare)
	g := Grant{Env: map[string]string{}, Nodes: p.inventory.Shared()}
	var names []string
	for _, d := range granted {
		names = append(names, d.ID)
		g.Nodes = append(g.Nodes, d.Nodes...)
	}
	if p.Env != "" {
		g.Env[p.Env] = strings.Join(names, ",")
	}
	return g, nil
}

// Prefer advises which devices to give.
func (p *Pool) Prefer(available, must []string, size int) ([]string, error) {
	devices, _ := p.Devices()
	return allocator.Prefer(devices, available, must, size)
}

// SetHealth sets the health of a simulated device. found is false where the pool has no such device, simulated false
// where its devices are real.
func (p *Pool) SetHealth(id string, healthy bool) (simulated, found bool, err error) {
	s, ok := p.inventory.(*inventory.Simulated)
	if !ok {
		return false, false, nil
	}
	if !s.SetHealth(id, healthy) {
		return true, false, nil
	}
	return true, true, p.Look()
}
