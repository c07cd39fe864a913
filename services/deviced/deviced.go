// Package deviced offers the devices of a machine to its node agents by the device plugin API v1beta1, which is
// Kubernetes': a kubelet takes it as well. It finds devices and says how a container uses them; who gets which is the
// node agent's decision.
//
// inventory → allocator → plugin
package deviced

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"trireme.dev/kit/component"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/rpc"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	devicev1 "trireme.dev/proto/gen/trireme/device/v1"
	"trireme.dev/services/deviced/internal/inventory"
	"trireme.dev/services/deviced/internal/plugin"
	"trireme.dev/services/deviced/internal/server"
)

// Deviced is the service.
type Deviced struct {
	pools   []*plugin.Pool
	plugins []*plugin.Plugin
	server  *rpc.Server // nil without a socket
}

// New finds the devices and prepares a plugin for each resource in each folder. Errors name the setting at fault.
func New(cfg Config, logger *slog.Logger) (*Deviced, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	resources, err := readResources(cfg.ResourcesFile)
	if err != nil {
		return nil, err
	}
	logger, errs := component.Remember(logger)
	started := time.Now()
	self := func() *componentv1.ComponentStatus { return component.Status(started, errs) }
	d := &Deviced{}
	for _, entry := range cfg.PluginDirs {
		node, dir := splitDir(entry)
		pools, err := newPools(cfg, node, resources)
		if err != nil {
			return nil, err
		}
		for _, pool := range pools {
			d.pools = append(d.pools, pool)
			d.plugins = append(d.plugins, plugin.New(pool, dir, self, logger))
		}
	}
	if cfg.Socket != "" {
		d.server, err = rpc.NewServer(rpc.ServerConfig{Name: "deviced", UnixSocket: cfg.Socket}, logger)
		if err != nil {
			return nil, err
		}
		devicev1.RegisterDeviceServiceServer(d.server, server.New(d.plugins))
	}
	return d, nil
}

// newPools are the resources that a node's folder of device plugins is offered.
func newPools(cfg Config, node string, resources []Resource) ([]*plugin.Pool, error) {
	var pools []*plugin.Pool
	add := func(resource, env string, inv inventory.Inventory, err error) error {
		if err != nil {
			return fmt.Errorf("resource %s: %w", resource, err)
		}
		pool, err := plugin.NewPool(resource, env, inv)
		if err != nil {
			return err
		}
		pools = append(pools, pool)
		return nil
	}
	if cfg.NVIDIA {
		if err := add(NVIDIAResource, visibleDevices, inventory.NewNVIDIA("/"), nil); err != nil {
			return nil, err
		}
	}
	if cfg.SimulatedGPUs > 0 {
		prefix := "GPU-sim"
		if node != "" {
			prefix = "GPU-" + node
		}
		simulated, err := inventory.NewSimulated(inventory.SimulatedConfig{
			Prefix: prefix, Count: cfg.SimulatedGPUs, NUMANodes: cfg.SimulatedNUMANodes,
		})
		if err := add(NVIDIAResource, visibleDevices, simulated, err); err != nil {
			return nil, err
		}
	}
	for _, r := range resources {
		glob, err := inventory.NewGlob("/", r.Paths)
		if err := add(r.Name, r.Env, glob, err); err != nil {
			return nil, err
		}
	}
	return pools, nil
}

// Run serves until ctx ends.
func (d *Deviced) Run(ctx context.Context) error {
	var tasks []daemon.Task
	if d.server != nil {
		tasks = append(tasks, daemon.Task{Name: "server", Run: d.server.Run})
	}
	tasks = append(tasks, daemon.Task{Name: "metrics", Run: d.metrics})
	for _, pool := range d.pools {
		tasks = append(tasks, daemon.Task{Name: "inventory of " + pool.Resource, Run: pool.Run})
	}
	for _, p := range d.plugins {
		tasks = append(tasks, daemon.Task{Name: "plugin of " + p.Pool().Resource, Run: p.Run})
	}
	return daemon.Run(ctx, tasks...)
}
