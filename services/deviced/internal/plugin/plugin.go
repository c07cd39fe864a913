package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"trireme.dev/client/apierr"
	"trireme.dev/client/metrics"
	"trireme.dev/client/tracing"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/rpc"
	"trireme.dev/kit/telemetry"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	"trireme.dev/services/deviced/internal/inventory"
)

const (
	// agentSocket is where the node agent takes registrations, in the folder of device plugins.
	agentSocket = "kubelet.sock"
	// registerTimeout bounds one registration: the agent dials back before it answers.
	registerTimeout = 10 * time.Second
	// firstRetry is the pause after a registration that the agent refused or did not answer; it doubles up to lastRetry.
	// A socket that is made anew ends the pause. The first is short because the agent's socket is there a moment
	// before the agent listens on it.
	firstRetry = 20 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// Plugin offers one pool in one folder of device plugins.
//
//	waiting ──agent's socket is there──▶ registering ──accepted──▶ registered
//	   ▲                                      │ refused                 │ ListAndWatch ended, or socket made anew
//	   └──────────────────────────────────────┴─────────────────────────┘
type Plugin struct {
	v1beta1.UnimplementedDevicePluginServer

	pool       *Pool
	self       func() *componentv1.ComponentStatus
	dir        string
	endpoint   string
	logger     *slog.Logger
	registered atomic.Bool
	serving    atomic.Bool
	grants     metric.Int64Counter
	grantOf    metric.MeasurementOption
	lost       chan struct{} // the agent has ended a ListAndWatch
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// New returns the plugin of a pool; Run serves it. self tells of the process.
func New(pool *Pool, dir string, self func() *componentv1.ComponentStatus, logger *slog.Logger) *Plugin {
	return &Plugin{
		pool:     pool,
		self:     self,
		dir:      dir,
		endpoint: "trireme-" + notInNames.ReplaceAllString(pool.Resource, "-") + ".sock",
		logger:   logger.With(slog.String(telemetry.KeyResource, pool.Resource), slog.String(telemetry.KeyPath, dir)),
		lost:     make(chan struct{}, 1),
		grants:   metrics.Counter("trireme_device_allocations_total", "Devices given to containers, by resource."),
		grantOf:  metrics.Labels("resource", pool.Resource),
	}
}

// Pool that the plugin offers.
func (p *Plugin) Pool() *Pool { return p.pool }

// Endpoint is the plugin's socket, relative to its folder.
func (p *Plugin) Endpoint() string { return p.endpoint }

// Registered tells whether the agent has taken the plugin up.
func (p *Plugin) Registered() bool { return p.registered.Load() }

// Serving tells whether the plugin listens: it is registered, or waits for an agent to be.
func (p *Plugin) Serving() bool { return p.serving.Load() }

// Run serves the plugin and keeps it registered until ctx ends.
func (p *Plugin) Run(ctx context.Context) error {
	if err := os.MkdirAll(p.dir, 0o750); err != nil {
		return fmt.Errorf("folder of device plugins: %w", err)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", p.dir, err)
	}
	defer watcher.Close()
	if err := watcher.Add(p.dir); err != nil {
		return fmt.Errorf("watch %s: %w", p.dir, err)
	}
	for ctx.Err() == nil {
		// The agent deletes every socket of the folder when it starts, so each registration has a listener of its own.
		if err := p.serveOnce(ctx, watcher); err != nil {
			return err
		}
	}
	return nil
}

// serveOnce listens, registers, and returns nil when all that has to be done anew.
func (p *Plugin) serveOnce(ctx context.Context, watcher *fsnotify.Watcher) error {
	path := filepath.Join(p.dir, p.endpoint)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the socket of an earlier run: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	serving, end := context.WithCancel(ctx)
	defer end()
	server := grpc.NewServer(grpc.WaitForHandlers(true), rpc.ServerSpans(), grpc.StreamInterceptor(endWith(serving)))
	v1beta1.RegisterDevicePluginServer(server, p)
	componentv1.RegisterStatusServiceServer(server, status{self: p.self})

	p.serving.Store(true)
	defer p.serving.Store(false)
	err = daemon.Run(ctx,
		daemon.Task{Name: "serve " + p.pool.Resource, Run: func(ctx context.Context) error {
			defer context.AfterFunc(ctx, func() { end(); stop(server) })()
			return server.Serve(listener)
		}},
		daemon.Task{Name: "register " + p.pool.Resource, Run: func(ctx context.Context) error {
			return p.keepRegistered(ctx, watcher)
		}},
	)
	p.registered.Store(false)
	if errors.Is(err, errAnew) || ctx.Err() != nil {
		return nil
	}
	return err
}

// errAnew ends a serveOnce whose registration is over.
var errAnew = errors.New("register anew")

// keepRegistered registers as often as it takes, then waits for the end of the registration.
func (p *Plugin) keepRegistered(ctx context.Context, watcher *fsnotify.Watcher) error {
	select {
	case <-p.lost: // of a registration before this one
	default:
	}
	said := ""
	var agent os.FileInfo // the socket that the registration went to
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		var err error
		agent, err = p.register(ctx)
		if err == nil {
			break
		}
		if errors.Is(err, errAnew) {
			return err
		}
		if text := err.Error(); text != said {
			said = text
			p.logger.LogAttrs(ctx, slog.LevelInfo, "waiting for the node agent", slog.Any(telemetry.KeyError, err))
		}
		if err := p.waitForAgent(ctx, watcher, pause); err != nil {
			return err
		}
	}
	p.registered.Store(true)
	p.logger.LogAttrs(ctx, slog.LevelInfo, "registered")
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.lost:
			p.logger.LogAttrs(ctx, slog.LevelInfo, "the node agent has left")
			return errAnew
		case event, ok := <-watcher.Events:
			if !ok {
				return fmt.Errorf("watch %s ended", p.dir)
			}
			if filepath.Base(event.Name) == agentSocket && event.Has(fsnotify.Create) && !p.still(agent) {
				p.logger.LogAttrs(ctx, slog.LevelInfo, "the node agent's socket was made anew")
				return errAnew
			}
		case err := <-watcher.Errors:
			return fmt.Errorf("watch %s: %w", p.dir, err)
		}
	}
}

// waitForAgent waits until the agent's socket is made, or for pause.
func (p *Plugin) waitForAgent(ctx context.Context, watcher *fsnotify.Watcher, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			// The agent may have deleted our socket as it started, between our listening and its: then only a new
			// listener can be dialled.
			if _, err := os.Stat(filepath.Join(p.dir, p.endpoint)); err != nil {
				return errAnew
			}
			return nil
		case event, ok := <-watcher.Events:
			if !ok {
				return fmt.Errorf("watch %s ended", p.dir)
			}
			if filepath.Base(event.Name) == agentSocket && event.Has(fsnotify.Create) {
				return errAnew
			}
		case err := <-watcher.Errors:
			return fmt.Errorf("watch %s: %w", p.dir, err)
		}
	}
}

// still reports whether the agent's socket is the one that was seen before: an event may tell of the making of the very
// socket over which the plugin has registered meanwhile. A number alone may be given again.
func (p *Plugin) still(seen os.FileInfo) bool {
	now, err := os.Stat(filepath.Join(p.dir, agentSocket))
	return err == nil && os.SameFile(seen, now) && seen.ModTime().Equal(now.ModTime())
}

// register asks the agent once to take the plugin up, and returns the socket over which it did.
func (p *Plugin) register(ctx context.Context) (os.FileInfo, error) {
	path := filepath.Join(p.dir, agentSocket)
	agent, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("node agent's socket: %w", err)
	}
	// An agent deletes what it finds before it listens: one that listens now may have deleted our socket.
	if _, err := os.Stat(filepath.Join(p.dir, p.endpoint)); err != nil {
		return nil, errAnew
	}
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("dial the node agent: %w", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, &v1beta1.RegisterRequest{
		Version:      v1beta1.Version,
		Endpoint:     p.endpoint,
		ResourceName: p.pool.Resource,
		Options:      p.options(),
	})
	if err != nil {
		return nil, fmt.Errorf("register: %w", apierr.FromStatus(err))
	}
	return agent, nil
}

func (p *Plugin) options() *v1beta1.DevicePluginOptions {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: true}
}

// GetDevicePluginOptions says that preferred allocations can be asked for.
func (p *Plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return p.options(), nil
}

// ListAndWatch sends the whole list now and whenever it changes.
func (p *Plugin) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	defer func() {
		select {
		case p.lost <- struct{}{}:
		default:
		}
	}()
	for {
		devices, changed := p.pool.Devices()
		if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: wire(devices)}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-changed:
		}
	}
}

func wire(devices []inventory.Device) []*v1beta1.Device {
	list := make([]*v1beta1.Device, 0, len(devices))
	for _, d := range devices {
		w := &v1beta1.Device{ID: d.ID, Health: v1beta1.Healthy}
		if d.Unhealthy != "" {
			w.Health = v1beta1.Unhealthy
		}
		if len(d.NUMANodes) > 0 {
			w.Topology = &v1beta1.TopologyInfo{}
			for _, node := range d.NUMANodes {
				w.Topology.Nodes = append(w.Topology.Nodes, &v1beta1.NUMANode{ID: node})
			}
		}
		list = append(list, w)
	}
	return list
}

// GetPreferredAllocation advises which devices to give to each container.
func (p *Plugin) GetPreferredAllocation(ctx context.Context, in *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	out := &v1beta1.PreferredAllocationResponse{}
	for _, c := range in.GetContainerRequests() {
		ids, err := p.decide(ctx, func() ([]string, error) {
			return p.pool.Prefer(c.GetAvailableDeviceIDs(), c.GetMustIncludeDeviceIDs(), int(c.GetAllocationSize()))
		})
		if err != nil {
			return nil, invalid(err)
		}
		out.ContainerResponses = append(out.ContainerResponses, &v1beta1.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return out, nil
}

// Allocate says what each container needs in order to use its devices.
func (p *Plugin) Allocate(ctx context.Context, in *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	out := &v1beta1.AllocateResponse{}
	for _, c := range in.GetContainerRequests() {
		var grant Grant
		ids, err := p.decide(ctx, func() (ids []string, err error) {
			grant, err = p.pool.Grant(c.GetDevicesIds())
			return c.GetDevicesIds(), err
		})
		if err != nil {
			return nil, invalid(err)
		}
		p.grants.Add(ctx, int64(len(ids)), p.grantOf)
		response := &v1beta1.ContainerAllocateResponse{Envs: grant.Env}
		for _, n := range grant.Nodes {
			response.Devices = append(response.Devices, &v1beta1.DeviceSpec{
				HostPath: n.Host, ContainerPath: n.Container, Permissions: "rw",
			})
		}
		out.ContainerResponses = append(out.ContainerResponses, response)
	}
	return out, nil
}

// decide chooses devices in a span of ctx's trace.
func (p *Plugin) decide(ctx context.Context, choose func() ([]string, error)) ([]string, error) {
	_, span := tracing.Start(ctx, "allocator", tracing.KeyResource.String(p.pool.Resource))
	defer span.End()
	ids, err := choose()
	if span.IsRecording() {
		span.SetAttributes(tracing.KeyDevices.StringSlice(ids), tracing.KeyCount.Int(len(ids)))
	}
	tracing.Fail(span, err)
	return ids, err
}

// PreStartContainer has nothing to do: the options say that it need not be called.
func (p *Plugin) PreStartContainer(context.Context, *v1beta1.PreStartContainerRequest) (*v1beta1.PreStartContainerResponse, error) {
	return &v1beta1.PreStartContainerResponse{}, nil
}

// invalid is a caller's mistake as the wire tells it.
func invalid(err error) error {
	return apierr.ToStatus(&apierr.Error{Reason: apierr.ReasonInvalid, Message: err.Error()})
}
