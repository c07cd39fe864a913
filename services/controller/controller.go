// Package controller is the control chain: controllers that watch objects and bring the world nearer to what they ask
// for, each informer → workqueue → reconcile. controllers.go lists them all; this file wires the process.
package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"google.golang.org/grpc"

	"trireme.dev/client/event"
	"trireme.dev/client/informer"
	"trireme.dev/client/leader"
	"trireme.dev/kit/component"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/rpc"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
)

// Controller is the service. Make it with New and Run it once.
type Controller struct {
	cfg    Config
	logger *slog.Logger
	conn   *grpc.ClientConn
	server *rpc.Server // nil where it listens nowhere
	errors *component.Errors
	leads  atomic.Bool
	self   *component.Publisher // nil in tests
	// informers are set once it runs.
	informers atomic.Pointer[informer.Factory]
}

// New checks the configuration and prepares to dial.
func New(cfg Config, logger *slog.Logger) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("identity: %w", err)
		}
		cfg.Identity = host + "_" + rand.Text()[:8]
	}
	c := &Controller{cfg: cfg}
	logger, c.errors = component.Remember(logger)
	c.logger = logger
	var err error
	if cfg.Socket != "" || cfg.Listen != "" {
		c.server, err = rpc.NewServer(rpc.ServerConfig{
			Name: "controller", UnixSocket: cfg.Socket, TCP: cfg.Listen,
			CertFile: cfg.Gateway.CertFile, KeyFile: cfg.Gateway.KeyFile, CAFile: cfg.Gateway.CAFile, InsecureTCP: cfg.Gateway.InsecureTCP,
		}, logger)
		if err != nil {
			return nil, err
		}
	}
	c.conn, err = rpc.Dial(cfg.Gateway)
	if err != nil {
		return nil, err
	}
	c.self = component.New(c.conn, component.Config{
		Component: "controller", Instance: component.Instance(cfg.Listen, cfg.Socket), Address: cfg.Listen,
		Leader: c.leads.Load, Errors: c.errors, Logger: logger,
	})
	return c, nil
}

// Run runs all controllers until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	defer c.conn.Close()
	work, err := c.tasks(c.conn)
	if err != nil {
		return err
	}
	tasks := []daemon.Task{{Name: "controller", Run: func(ctx context.Context) error {
		// One that starts together with its gateway is not to sit out the pauses after first failures.
		if err := rpc.WaitServing(ctx, c.conn); err != nil {
			return err
		}
		return daemon.Run(ctx, work...)
	}}, {Name: "component", Run: func(ctx context.Context) error {
		if err := rpc.WaitServing(ctx, c.conn); err != nil {
			return err
		}
		return c.self.Run(ctx)
	}}}
	if c.server != nil {
		tasks = append(tasks, daemon.Task{Name: "server", Run: c.server.Run})
	}
	return daemon.Run(ctx, tasks...)
}

// Ready reports what it still waits for. A standby that has seen the cluster is ready: it can take over at once.
func (c *Controller) Ready() error {
	if f := c.informers.Load(); f == nil || !f.HasSynced() {
		return errors.New("the cluster has not been seen yet")
	}
	return nil
}

// tasks builds the controllers on a connection to the gateway.
func (c *Controller) tasks(conn grpc.ClientConnInterface) ([]daemon.Task, error) {
	factory := informer.NewFactory(conn, c.logger)
	events := event.NewRecorder(conn, "trireme-controller")
	controllers, err := newControllers(c.cfg, conn, factory, events, c.logger)
	if err != nil {
		return nil, err
	}
	c.informers.Store(factory)
	// A standby keeps its informers warm, so that it takes over with what it knows.
	control := func(ctx context.Context) error {
		if err := factory.WaitForSync(ctx); err != nil {
			return err
		}
		c.logger.Info("controlling")
		c.leads.Store(true)
		c.self.Wake()
		defer c.leads.Store(false)
		var running []daemon.Task
		for _, controller := range controllers {
			running = append(running, daemon.Task{Name: controller.Config().Name, Run: controller.Run})
		}
		return daemon.Run(ctx, running...)
	}
	lead := control
	if c.cfg.LeaderElect {
		lead = func(ctx context.Context) error {
			return leader.Run(ctx, leader.Config{Name: leaseName, Identity: c.cfg.Identity, Logger: c.logger}, conn,
				func(ctx context.Context, _ *coordinationv1.LeaseClaim) error { return control(ctx) })
		}
	}
	return []daemon.Task{
		{Name: "informers", Run: factory.Run},
		{Name: "events", Run: events.Run},
		{Name: "controllers", Run: lead},
	}, nil
}
