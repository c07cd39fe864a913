// Package server shows deviced's pools to people and tests by trireme.device.v1.DeviceService.
package server

import (
	"cmp"
	"context"
	"slices"

	"trireme.dev/client/apierr"
	devicev1 "trireme.dev/proto/gen/trireme/device/v1"
	"trireme.dev/services/deviced/internal/inventory"
	"trireme.dev/services/deviced/internal/plugin"
)

// Server implements devicev1.DeviceServiceServer over the plugins of a process.
type Server struct {
	devicev1.UnimplementedDeviceServiceServer
	plugins []*plugin.Plugin
}

// New returns the service.
func New(plugins []*plugin.Plugin) *Server { return &Server{plugins: plugins} }

// ListDevices implements DeviceService.
func (s *Server) ListDevices(context.Context, *devicev1.ListDevicesRequest) (*devicev1.ListDevicesResponse, error) {
	out := &devicev1.ListDevicesResponse{}
	for _, p := range s.plugins {
		devices, _ := p.Pool().Devices()
		pool := &devicev1.DevicePool{ResourceName: p.Pool().Resource, Endpoint: p.Endpoint(), Registered: p.Registered()}
		for _, d := range devices {
			pool.Devices = append(pool.Devices, wire(d))
		}
		out.Pools = append(out.Pools, pool)
	}
	slices.SortStableFunc(out.Pools, func(a, b *devicev1.DevicePool) int {
		return cmp.Compare(a.GetResourceName(), b.GetResourceName())
	})
	return out, nil
}

func wire(d inventory.Device) *devicev1.Device {
	w := &devicev1.Device{
		Id:           d.ID,
		Healthy:      d.Unhealthy == "",
		HealthReason: d.Unhealthy,
		NumaNodes:    d.NUMANodes,
		Attributes:   d.Attributes,
	}
	for _, n := range d.Nodes {
		w.DevicePaths = append(w.DevicePaths, n.Container)
	}
	return w
}

// SetHealth implements DeviceService. Where a process simulates several nodes, their devices have different IDs.
func (s *Server) SetHealth(_ context.Context, in *devicev1.SetHealthRequest) (*devicev1.SetHealthResponse, error) {
	known := false
	for _, p := range s.plugins {
		if p.Pool().Resource != in.GetResourceName() {
			continue
		}
		known = true
		simulated, found, err := p.Pool().SetHealth(in.GetId(), in.GetHealthy())
		if err != nil {
			return nil, err
		}
		if found {
			return &devicev1.SetHealthResponse{}, nil
		}
		if !simulated {
			return nil, apierr.Invalid("Device", in.GetId(), apierr.Violation{
				Field: "id", Message: "the health of a real device cannot be set",
			})
		}
	}
	if !known {
		return nil, apierr.NotFound("DevicePool", in.GetResourceName())
	}
	return nil, apierr.NotFound("Device", in.GetResourceName()+"/"+in.GetId())
}
