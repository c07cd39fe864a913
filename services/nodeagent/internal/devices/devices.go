// Package devices is the node agent's side of Kubernetes' device plugin API v1beta1: plugins register, tell which
// devices there are and whether they work, and the manager gives them to containers when a pod is admitted.
//
// It remembers on disk which container holds which device, so that an agent that was killed never gives a device to a
// second one. It never starts anything and knows no pods but those it was asked to admit.
//
// Rules that differ from the kubelet's, and why: a plugin is told apart by resource, socket and registration, so that
// the end of an old one never takes the devices of its successor (kubernetes#121994); a pod that comes while its
// plugin is on its way back waits instead of failing for good (kubernetes#125579); a device's plugin answers that
// contradict one another are refused when the pod is admitted instead of one of them being dropped at the start.
package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"trireme.dev/kit/daemon"
	"trireme.dev/kit/telemetry"
)

const (
	// socketName is where plugins register, in the folder of device plugins.
	socketName = "kubelet.sock"
	// stoppedGrace is how long a resource whose plugin is gone stays part of the node's capacity, as in the kubelet.
	stoppedGrace = 5 * time.Minute
	// reconnectGrace is how long it stays allocatable as well: a plugin that is merely restarted, or an agent that is,
	// does not make the scheduler see a node without devices.
	reconnectGrace = 10 * time.Second
	// startGrace is how long after its own start the manager expects plugins that it has never heard of.
	startGrace = 30 * time.Second
)

// ErrWaiting is wrapped by Admit where a plugin is not there yet, or is on its way back: try again.
var ErrWaiting = errors.New("waiting for a device plugin")

// AdmissionError says that a pod can never run here as it is.
type AdmissionError struct {
	// Reason in one word, for the pod's status: UnexpectedAdmissionError.
	Reason string
	// Message for people.
	Message string
}

// Error is the message.
func (e *AdmissionError) Error() string { return e.Message }

// Config is what the manager needs to know.
type Config struct {
	// PluginDir is the folder in which plugins meet the agent.
	PluginDir string
	// StateDir keeps the checkpoint.
	StateDir string
	// Logger; nil means slog.Default.
	Logger *slog.Logger
}

// Resource is how many devices of a resource a node has.
type Resource struct {
	// Capacity counts all devices, Allocatable the healthy ones.
	Capacity, Allocatable int64
}

// Manager is the device manager of one node. It is safe for concurrent use.
type Manager struct {
	cfg     Config
	logger  *slog.Logger
	started time.Time
	changed chan struct{}
	metrics metrics

	// admitting makes admissions wait for one another, so that mu is not held while a plugin is asked.
	admitting sync.Mutex

	mu          sync.Mutex
	plugins     map[string]*plugin // by resource
	generation  int
	allocations allocations
	// clients are the goroutines that follow plugins; run is the context that they end with.
	clients sync.WaitGroup
	run     context.Context
}

// plugin is the registration that a resource has now, or had last.
type plugin struct {
	resource   string
	endpoint   string
	generation int
	devices    map[string]device
	options    *v1beta1.DevicePluginOptions
	client     v1beta1.DevicePluginClient // nil before a registration in this run of the agent
	conn       *grpc.ClientConn
	cancel     context.CancelFunc
	stopped    time.Time // zero while the plugin is connected
}

type device struct {
	healthy bool
	numa    []int64
}

// New reads the checkpoint. A checkpoint that cannot be read is an error: without it a device could be given twice.
func New(cfg Config) (*Manager, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	m := &Manager{cfg: cfg, logger: cfg.Logger, started: time.Now(), changed: make(chan struct{}, 1), plugins: map[string]*plugin{}, metrics: newMetrics()}
	saved, err := readCheckpoint(m.checkpointPath())
	if err != nil {
		return nil, err
	}
	m.allocations = saved.Allocations
	for resource, ids := range saved.Devices {
		p := &plugin{resource: resource, devices: map[string]device{}, stopped: m.started}
		for _, id := range ids {
			p.devices[id] = device{healthy: true}
		}
		m.plugins[resource] = p
	}
	return m, nil
}

// Run takes registrations until ctx ends, and waits for all that it started. Run it once.
func (m *Manager) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer m.clients.Wait()
	defer cancel()
	listener, err := m.listen(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.run = ctx
	m.mu.Unlock()
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	v1beta1.RegisterRegistrationServer(server, registration{m: m})
	return daemon.Run(ctx,
		daemon.Task{Name: "take registrations", Run: func(ctx context.Context) error {
			defer context.AfterFunc(ctx, server.Stop)()
			return server.Serve(listener)
		}},
		daemon.Task{Name: "forget plugins that are gone", Run: m.forgetStopped},
	)
}

// listen makes the folder and the socket. It removes the agent's own socket of an earlier run; the sockets of plugins
// stay, since a plugin that sees ours made anew registers again.
func (m *Manager) listen(ctx context.Context) (net.Listener, error) {
	if err := os.MkdirAll(m.cfg.PluginDir, 0o750); err != nil {
		return nil, fmt.Errorf("folder of device plugins: %w", err)
	}
	path := filepath.Join(m.cfg.PluginDir, socketName)
	if conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s is in use: another agent serves device plugins there", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an earlier run: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("take registrations: %w", err)
	}
	return listener, nil
}

// forgetStopped drops resources whose plugin has been gone for stoppedGrace, and tells of those that stop being
// allocatable before that.
func (m *Manager) forgetStopped(ctx context.Context) error {
	timer := time.NewTimer(reconnectGrace)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		m.mu.Lock()
		for resource, p := range m.plugins {
			if !p.stopped.IsZero() && time.Since(p.stopped) >= stoppedGrace {
				delete(m.plugins, resource)
				m.logger.LogAttrs(ctx, slog.LevelInfo, "device plugin has been gone for too long: resource removed",
					slog.String(telemetry.KeyResource, resource))
				if err := m.save(); err != nil {
					m.logger.LogAttrs(ctx, slog.LevelError, "checkpoint of devices", slog.Any(telemetry.KeyError, err))
				}
			}
		}
		m.tell()
		timer.Reset(reconnectGrace)
		m.mu.Unlock()
	}
}

// Resources reports how many devices the node has, by resource.
func (m *Manager) Resources() map[string]Resource {
	m.mu.Lock()
	defer m.mu.Unlock()
	resources := map[string]Resource{}
	for name, p := range m.plugins {
		r := Resource{Capacity: int64(len(p.devices))}
		if p.stopped.IsZero() || time.Since(p.stopped) < reconnectGrace {
			for _, d := range p.devices {
				if d.healthy {
					r.Allocatable++
				}
			}
		}
		resources[name] = r
	}
	return resources
}

// Allocated counts the devices that containers hold, by resource.
func (m *Manager) Allocated() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]int64{}
	for name := range m.plugins {
		out[name] = int64(len(m.inUse(name)))
	}
	return out
}

// Changed receives after Resources may have changed; signals that nobody took are one.
func (m *Manager) Changed() <-chan struct{} { return m.changed }

func (m *Manager) tell() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// Release gives back what a pod holds. A pod that holds nothing is success.
func (m *Manager) Release(podUID string) {
	m.releaseIf(func(uid string) bool { return uid == podUID })
}

// Retain releases what pods hold that are not among those given: the agent calls it once it knows its pods.
func (m *Manager) Retain(podUIDs map[string]bool) {
	m.releaseIf(func(uid string) bool { return !podUIDs[uid] })
}

func (m *Manager) releaseIf(gone func(uid string) bool) {
	m.admitting.Lock()
	defer m.admitting.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	before := len(m.allocations)
	maps.DeleteFunc(m.allocations, func(uid string, _ map[string]map[string]*allocation) bool { return gone(uid) })
	if len(m.allocations) == before {
		return
	}
	// A release that is not on disk only keeps devices from others after a restart, until Retain.
	if err := m.save(); err != nil {
		m.logger.LogAttrs(context.Background(), slog.LevelError, "checkpoint of devices", slog.Any(telemetry.KeyError, err))
	}
}

// save writes the checkpoint; the caller holds mu.
func (m *Manager) save() error {
	devices := map[string][]string{}
	for resource, p := range m.plugins {
		devices[resource] = slices.Sorted(maps.Keys(p.devices))
	}
	return writeCheckpoint(m.checkpointPath(), checkpoint{Devices: devices, Allocations: m.allocations})
}

func (m *Manager) checkpointPath() string { return filepath.Join(m.cfg.StateDir, "devices.json") }
