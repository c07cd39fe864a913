package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/rpc"
	"trireme.dev/kit/telemetry"
)

// dialTimeout bounds the first call to a plugin that registers, as in the kubelet.
const dialTimeout = 10 * time.Second

// registration takes plugins up.
type registration struct {
	v1beta1.UnimplementedRegistrationServer
	m *Manager
}

// Register dials the plugin back and answers once it is connected. What the request says of options is ignored, as in
// the kubelet: the plugin's own answer counts.
func (r registration) Register(ctx context.Context, in *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	if err := r.m.register(ctx, in); err != nil {
		r.m.logger.LogAttrs(ctx, slog.LevelWarn, "registration refused",
			slog.String(telemetry.KeyResource, in.GetResourceName()), slog.Any(telemetry.KeyError, err))
		return nil, apierr.ToStatus(err)
	}
	return &v1beta1.Empty{}, nil
}

func (m *Manager) register(ctx context.Context, in *v1beta1.RegisterRequest) error {
	if err := validate(in); err != nil {
		return apierr.Invalid("DevicePlugin", in.GetEndpoint(), apierr.Violation{Field: "request", Message: err.Error()})
	}
	path := filepath.Join(m.cfg.PluginDir, in.GetEndpoint())
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), rpc.ClientSpans())
	if err != nil {
		return fmt.Errorf("dial %s: %w", path, err)
	}
	client := v1beta1.NewDevicePluginClient(conn)
	dialling, cancelDialling := context.WithTimeout(ctx, dialTimeout)
	defer cancelDialling()
	options, err := client.GetDevicePluginOptions(dialling, &v1beta1.Empty{})
	if err != nil {
		_ = conn.Close()
		return fmt.Errorf("options of %s: %w", path, apierr.FromStatus(err))
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run == nil || m.run.Err() != nil {
		_ = conn.Close()
		return apierr.Unavailable("the node agent is stopping")
	}
	m.generation++
	following, cancel := context.WithCancel(m.run)
	p := &plugin{
		resource: in.GetResourceName(), endpoint: in.GetEndpoint(), generation: m.generation,
		devices: map[string]device{}, options: options, client: client, conn: conn, cancel: cancel,
	}
	if old := m.plugins[p.resource]; old != nil {
		// The devices stay as they were until the new plugin says otherwise.
		p.devices = old.devices
		if old.cancel != nil {
			old.cancel()
		}
	}
	m.plugins[p.resource] = p
	m.clients.Go(func() { m.follow(following, p) })
	m.metrics.registered(ctx, p.resource)
	m.logger.LogAttrs(ctx, slog.LevelInfo, "device plugin registered",
		slog.String(telemetry.KeyResource, p.resource), slog.String(telemetry.KeySocket, path))
	return nil
}

// validate says what is wrong with a registration, in the kubelet's words.
func validate(in *v1beta1.RegisterRequest) error {
	if !slices.Contains(v1beta1.SupportedVersions[:], in.GetVersion()) {
		return fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q", in.GetVersion(), v1beta1.SupportedVersions)
	}
	name := in.GetResourceName()
	if !IsExtended(name) || len(content.IsLabelKey(name)) > 0 || len(content.IsLabelKey("requests."+name)) > 0 {
		return fmt.Errorf("the ResourceName %q is invalid", name)
	}
	if in.GetEndpoint() == "" || filepath.Base(in.GetEndpoint()) != in.GetEndpoint() || in.GetEndpoint() == socketName {
		return fmt.Errorf("endpoint %q: want the name of a socket in the folder of device plugins", in.GetEndpoint())
	}
	return nil
}

// follow keeps a plugin's devices up to date until its stream or ctx ends.
func (m *Manager) follow(ctx context.Context, p *plugin) {
	err := m.listAndWatch(ctx, p)
	_ = p.conn.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.plugins[p.resource] != p || m.run.Err() != nil {
		return // replaced, or the agent stops: not this plugin's failure
	}
	p.stopped = time.Now()
	p.cancel()
	m.tell()
	m.logger.LogAttrs(ctx, slog.LevelWarn, "device plugin is gone",
		slog.String(telemetry.KeyResource, p.resource), slog.Any(telemetry.KeyError, err))
}

func (m *Manager) listAndWatch(ctx context.Context, p *plugin) error {
	stream, err := p.client.ListAndWatch(ctx, &v1beta1.Empty{})
	if err != nil {
		return apierr.FromStatus(err)
	}
	for {
		list, err := stream.Recv()
		if err != nil {
			return apierr.FromStatus(err)
		}
		if err := m.replace(p, list.GetDevices()); err != nil {
			return err
		}
	}
}

// errReplaced ends the stream of a plugin that has a successor.
var errReplaced = errors.New("replaced by a later registration")

// replace makes a list the plugin's devices.
func (m *Manager) replace(p *plugin, list []*v1beta1.Device) error {
	devices := map[string]device{}
	for _, d := range list {
		var numa []int64
		for _, n := range d.GetTopology().GetNodes() {
			numa = append(numa, n.GetID())
		}
		devices[d.GetID()] = device{healthy: d.GetHealth() == v1beta1.Healthy, numa: numa}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.plugins[p.resource] != p {
		return errReplaced
	}
	p.devices = devices
	m.tell()
	return m.save()
}
