// Package nodeagent runs the pods of a node: it registers the node, watches its pods, starts and stops their
// containers and reports what became of them.
//
// podsource → podworker → devices → network → runtime → status; server beside them
package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/client/event"
	"trireme.dev/client/informer"
	"trireme.dev/client/quantity"
	"trireme.dev/kit/component"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/loop"
	"trireme.dev/kit/rpc"
	"trireme.dev/kit/telemetry"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	"trireme.dev/services/nodeagent/internal/certificate"
	"trireme.dev/services/nodeagent/internal/containerspec"
	"trireme.dev/services/nodeagent/internal/devices"
	"trireme.dev/services/nodeagent/internal/node"
	"trireme.dev/services/nodeagent/internal/podsource"
	"trireme.dev/services/nodeagent/internal/podworker"
	"trireme.dev/services/nodeagent/internal/routes"
	"trireme.dev/services/nodeagent/internal/runtime"
	"trireme.dev/services/nodeagent/internal/runtime/observed"
	"trireme.dev/services/nodeagent/internal/runtime/simulated"
	"trireme.dev/services/nodeagent/internal/server"
	"trireme.dev/services/nodeagent/internal/volume"
)

// Agent is the service.
type Agent struct {
	cfg    Config
	logger *slog.Logger
	errors *component.Errors

	mu    sync.Mutex
	nodes []*oneNode // once they are wired
}

// New checks the configuration.
func New(cfg Config, logger *slog.Logger) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	logger, errs := component.Remember(logger)
	return &Agent{cfg: cfg, logger: logger, errors: errs}, nil
}

// Run works until ctx ends. Containers keep running then, and the next agent takes them up.
func (a *Agent) Run(ctx context.Context) error {
	conn, err := rpc.Dial(a.cfg.Gateway)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	tasks := []daemon.Task{
		{Name: "agent", Run: func(ctx context.Context) error { return a.serve(ctx, conn) }},
		{Name: "reach the gateway", Run: func(ctx context.Context) error { return a.explain(ctx, conn) }},
	}
	if a.cfg.RenewCertificate {
		tasks = append(tasks, daemon.Task{Name: "certificate", Run: certificate.New(conn, a.cfg.Gateway.CertFile, a.logger).Run})
	}
	return daemon.Run(ctx, tasks...)
}

// explainAfter is how long a gateway may take to answer before the log says what may be the matter.
const explainAfter = 5 * time.Second

// explain says why the gateway is not reached, for as long as it has not been.
func (a *Agent) explain(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	said := ""
	return daemon.Run(ctx,
		daemon.Task{Name: "wait", Run: func(ctx context.Context) error {
			defer cancel()
			// Whatever it is, the nodes' own waiting fails by it too.
			_ = rpc.WaitServing(ctx, conn)
			return nil
		}},
		daemon.Task{Name: "say", Run: func(ctx context.Context) error {
			return loop.Every(ctx, loop.Config{Name: "reach the gateway", Period: explainAfter, Delay: explainAfter, Logger: a.logger}, func(ctx context.Context) error {
				if err := rpc.Diagnose(ctx, a.cfg.Gateway); err != nil && err.Error() != said && ctx.Err() == nil {
					said = err.Error()
					a.logger.LogAttrs(ctx, slog.LevelError, "gateway not reached", slog.String(telemetry.KeyError, said))
				}
				return nil
			})
		}},
	)
}

// serve runs all nodes over a connection to the gateway.
func (a *Agent) serve(ctx context.Context, conn grpc.ClientConnInterface) error {
	var tasks []daemon.Task
	var api *rpc.Server
	if a.cfg.Listen != "" || a.cfg.Socket != "" {
		var err error
		api, err = rpc.NewServer(rpc.ServerConfig{
			Name: "nodeagent", UnixSocket: a.cfg.Socket, TCP: a.cfg.Listen,
			CertFile: a.cfg.Gateway.CertFile, KeyFile: a.cfg.Gateway.KeyFile, CAFile: a.cfg.Gateway.CAFile, InsecureTCP: a.cfg.Gateway.InsecureTCP,
		}, a.logger)
		if err != nil {
			return err
		}
		tasks = append(tasks, daemon.Task{Name: "server", Run: api.Run})
	}
	var served []*server.Node
	var nodes []*oneNode
	for _, name := range a.cfg.nodeNames() {
		n, err := a.node(ctx, conn, name, api)
		if err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
		served, nodes = append(served, n.served), append(nodes, n)
		tasks = append(tasks, daemon.Task{Name: "node " + name, Run: func(ctx context.Context) error {
			// An agent that starts together with its gateway is not to sit out the pause after a first failure.
			if err := rpc.WaitServing(ctx, conn); err != nil {
				return err
			}
			return n.run(ctx)
		}})
	}
	a.mu.Lock()
	a.nodes = nodes
	a.mu.Unlock()
	if api != nil {
		started := time.Now()
		self := func() *componentv1.ComponentStatus { return component.Status(started, a.errors) }
		server.New(served, self, a.cfg.Gateway.InsecureTCP, a.logger).Register(api)
	}
	return daemon.Run(ctx, tasks...)
}

// oneNode is all that works for one node.
type oneNode struct {
	served *server.Node
	self   *node.Manager
	engine runtime.Runtime
	api    *rpc.Server
	tasks  []daemon.Task
	last   []daemon.Task
}

// node wires the parts of one node, in the order of the chain.
func (a *Agent) node(ctx context.Context, conn grpc.ClientConnInterface, name string, api *rpc.Server) (*oneNode, error) {
	logger := a.logger.With(slog.String(telemetry.KeyNode, name))
	dir := a.cfg.nodeDir(name)
	bare, tasks, err := a.runtime(ctx, dir, logger)
	if err != nil {
		return nil, err
	}
	engine := observed.New(bare)
	info, err := engine.Info(ctx)
	if err != nil {
		return nil, err
	}
	plugins, err := devices.New(devices.Config{PluginDir: a.pluginDir(dir, logger), StateDir: dir, Logger: logger})
	if err != nil {
		return nil, err
	}
	factory := informer.NewFactory(conn, logger)
	events := event.NewRecorder(conn, "nodeagent")
	events.Host, events.Logger = name, logger

	var pods *podworker.Manager
	self, err := node.New(node.Config{
		Name: name, IPs: []string{a.cfg.NodeIP}, Port: func() int32 { return port(api) }, Version: telemetry.Version(),
		Machine: a.cfg.simulatedMachine(), StateDir: dir, Labels: a.cfg.Labels, Wake: func() { pods.Wake() },
	}, node.Deps{Conn: conn, Factory: factory, Runtime: engine, Devices: plugins, Logger: logger})
	if err != nil {
		return nil, err
	}
	machine := self.Machine()
	logDir := filepath.Join(dir, "logs")
	pods = podworker.New(podworker.Config{
		Node: func() containerspec.Node {
			return containerspec.Node{Name: name, IPs: []string{a.cfg.NodeIP}, CPUMillis: machine.CPUMillis, MemoryBytes: machine.MemoryBytes}
		},
		Allocatable: self.Allocatable, LogDir: logDir, RuntimeName: info.Name,
	}, podworker.Deps{
		Conn: conn, Runtime: engine, Devices: plugins, Events: events, Logger: logger,
		Volumes: volume.New(volume.Config{Dir: filepath.Join(dir, "pods"), Simulated: a.cfg.Simulate > 0}),
	})
	tasks = append(tasks, routing(name, bare, routes.Deps{Factory: factory, Events: events, Logger: logger})...)
	source := podsource.New(factory, name, podsource.Sink{Update: pods.Update, Delete: pods.Delete, Synced: pods.Synced})
	return &oneNode{
		served: &server.Node{Name: name, Simulated: a.cfg.Simulate > 0, Runtime: engine, Pods: pods, LogDir: logDir, Plugins: plugins.Plugins},
		self:   self, engine: engine, api: api,
		tasks: append(tasks,
			daemon.Task{Name: "metrics", Run: newNodeMetrics(name, pods, plugins).run},
			daemon.Task{Name: "watch", Run: factory.Run},
			daemon.Task{Name: "pod source", Run: source.Run},
			daemon.Task{Name: "pod workers", Run: pods.Run},
			daemon.Task{Name: "devices", Run: plugins.Run},
			daemon.Task{Name: "events", Run: events.Run},
		),
		last: []daemon.Task{{Name: "node", Run: self.Run}},
	}, nil
}

// run runs the parts; the node is registered once the gateway can reach it.
func (n *oneNode) run(ctx context.Context) error {
	return daemon.Run(ctx, append(n.tasks, daemon.Task{Name: "registration", Run: func(ctx context.Context) error {
		if n.api != nil {
			select {
			case <-n.api.Ready():
			case <-ctx.Done():
				return nil
			}
		}
		return daemon.Run(ctx, n.last...)
	}})...)
}

func port(api *rpc.Server) int32 {
	if api == nil {
		return 0
	}
	if tcp, ok := api.Addr().(*net.TCPAddr); ok {
		return int32(tcp.Port)
	}
	return 0
}

func (c Config) simulatedMachine() *node.Machine {
	if c.Simulate == 0 {
		return nil
	}
	// Validate has parsed both.
	cpu, _ := quantity.Parse(c.SimulatedCPU)
	memory, _ := quantity.Parse(c.SimulatedMemory)
	return &node.Machine{CPUMillis: cpu.MilliValue(), MemoryBytes: memory.Value(), StorageBytes: 1 << 40}
}

// runtime opens the runtime of one node, and returns what must run for it.
func (a *Agent) runtime(ctx context.Context, dir string, logger *slog.Logger) (runtime.Runtime, []daemon.Task, error) {
	if a.cfg.Simulate == 0 {
		return openContainerd(ctx, a.cfg, logger)
	}
	r, err := simulated.New(simulated.Config{StateDir: filepath.Join(dir, "runtime"), Logger: logger})
	return r, nil, err
}

// pluginDir is where device plugins meet the agent: Kubernetes' place, unless that is taken.
func (a *Agent) pluginDir(dir string, logger *slog.Logger) string {
	own := filepath.Join(dir, "device-plugins")
	switch {
	case a.cfg.Simulate > 0:
		return own
	case a.cfg.PluginDir != "":
		return a.cfg.PluginDir
	}
	conn, err := net.DialTimeout("unix", filepath.Join(kubeletPluginDir, "kubelet.sock"), time.Second)
	if err != nil {
		return kubeletPluginDir
	}
	_ = conn.Close()
	logger.Warn("something else serves device plugins at Kubernetes' place: plugins for this node belong elsewhere",
		slog.String(telemetry.KeySocket, filepath.Join(kubeletPluginDir, "kubelet.sock")), slog.String(telemetry.KeyPath, own))
	return own
}

// Cleanup removes from the machine all that pods of this agent have there, and stops the containerd that the agent
// started. It is for when no agent runs, and may be repeated. Images and records stay.
func Cleanup(ctx context.Context, cfg Config, logger *slog.Logger) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	a := &Agent{cfg: cfg, logger: logger}
	for _, name := range cfg.nodeNames() {
		if err := a.cleanup(ctx, name); err != nil {
			return fmt.Errorf("clean up node %s: %w", name, err)
		}
	}
	return nil
}

func (a *Agent) cleanup(ctx context.Context, name string) error {
	dir := a.cfg.nodeDir(name)
	idle := false
	if a.cfg.Simulate == 0 {
		var err error
		if idle, err = containerdIdle(a.cfg); err != nil {
			return err
		}
	}
	if !idle {
		engine, tasks, err := a.runtime(ctx, dir, a.logger)
		if err != nil {
			return err
		}
		if err := withTasks(ctx, tasks, func(ctx context.Context) error { return removePods(ctx, engine) }); err != nil {
			return err
		}
		a.logger.LogAttrs(ctx, slog.LevelInfo, "pods removed from the machine", slog.String(telemetry.KeyNode, name))
	}
	volumes := volume.New(volume.Config{Dir: filepath.Join(dir, "pods"), Simulated: a.cfg.Simulate > 0})
	uids, err := volumes.UIDs()
	if err != nil {
		return err
	}
	for _, uid := range uids {
		if err := volumes.Teardown(uid); err != nil {
			return err
		}
	}
	if a.cfg.Simulate > 0 {
		return nil
	}
	return closeContainerd(ctx, a.cfg, a.logger)
}

// withTasks does something while tasks run.
func withTasks(ctx context.Context, tasks []daemon.Task, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return daemon.Run(ctx, append(tasks, daemon.Task{Name: "clean up", Run: func(ctx context.Context) error {
		defer cancel()
		return do(ctx)
	}})...)
}

// removeGrace is what containers get to end by themselves when their machine is cleaned up; their pods' own grace periods
// are in the gateway, which may be gone.
const removeGrace = 10 * time.Second

func removePods(ctx context.Context, engine runtime.Runtime) error {
	pods, err := engine.Pods(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(pods))
	var wg sync.WaitGroup
	for i, p := range pods {
		wg.Go(func() {
			if err := removePod(ctx, engine, p); err != nil {
				errs[i] = fmt.Errorf("remove pod %s/%s: %w", p.Namespace, p.Name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func removePod(ctx context.Context, engine runtime.Runtime, p *runtime.Pod) error {
	var wg sync.WaitGroup
	for _, c := range p.Containers {
		// Removing the sandbox kills what does not stop.
		wg.Go(func() { _ = engine.StopContainer(ctx, c.ID, removeGrace) })
	}
	wg.Wait()
	return engine.RemoveSandbox(ctx, p.UID)
}
