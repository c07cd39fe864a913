package devices

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
)

// statusTimeout bounds the question to a plugin about itself: one that does not know it says so at once.
const statusTimeout = time.Second

// askStatus asks a plugin about its process. Nil where it does not tell: Kubernetes' API has no such question, and only
// our own plugins answer it.
func askStatus(ctx context.Context, conn grpc.ClientConnInterface) *componentv1.ComponentStatus {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	answer, err := componentv1.NewStatusServiceClient(conn).GetStatus(ctx, &componentv1.GetStatusRequest{})
	if err != nil {
		return nil
	}
	return answer.GetStatus()
}

// Plugins tells of the plugins that are connected or were within the last minutes, by resource. Those that are connected
// are asked how they do.
func (m *Manager) Plugins(ctx context.Context) []*nodev1.DevicePlugin {
	type asked struct {
		out  *nodev1.DevicePlugin
		conn *grpc.ClientConn
	}
	var all []asked
	m.mu.Lock()
	for resource, p := range m.plugins {
		out := &nodev1.DevicePlugin{
			ResourceName: resource, Endpoint: p.endpoint, Registered: p.client != nil && p.stopped.IsZero(), Devices: int32(len(p.devices)),
		}
		for _, d := range p.devices {
			if d.healthy {
				out.Healthy++
			}
		}
		a := asked{out: out}
		if out.Registered {
			a.conn = p.conn
		}
		all = append(all, a)
	}
	m.mu.Unlock()
	plugins := make([]*nodev1.DevicePlugin, 0, len(all))
	for _, a := range all {
		if a.conn != nil {
			a.out.Status = askStatus(ctx, a.conn)
		}
		plugins = append(plugins, a.out)
	}
	slices.SortFunc(plugins, func(a, b *nodev1.DevicePlugin) int { return cmp.Compare(a.GetResourceName(), b.GetResourceName()) })
	return plugins
}
