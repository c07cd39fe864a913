// Package scheduler puts pods on nodes. It is the scheduling chain of the system:
//
//	informers → intake → queue → cycle → framework (plugins) → bind
//	                        ▲       │ snapshot                   │
//	                        │     cache ◄── assume ──────────────┘
//	                        └── what did not fit
//
// It reads pods, nodes and pod groups from the gateway and writes bindings, the condition PodScheduled, the condition of
// pod groups, and events; it never starts or stops a pod. This file wires the parts.
package scheduler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"trireme.dev/client/informer"
	"trireme.dev/client/leader"
	"trireme.dev/kit/component"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/rpc"
	"trireme.dev/kit/telemetry"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	recordv1 "trireme.dev/proto/gen/trireme/record/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/bind"
	"trireme.dev/services/scheduler/internal/chain"
	"trireme.dev/services/scheduler/internal/evict"
	"trireme.dev/services/scheduler/internal/explain"
	"trireme.dev/services/scheduler/internal/intake"
	"trireme.dev/services/scheduler/internal/recording"
	"trireme.dev/services/scheduler/internal/report"
	"trireme.dev/services/scheduler/internal/tally"
)

// Scheduler is the service. Make it with New and Run it once.
type Scheduler struct {
	cfg      Config
	profiles []framework.Profile
	logger   *slog.Logger
	conn     *grpc.ClientConn
	server   *rpc.Server // nil where it listens nowhere
	errors   *component.Errors
	leads    atomic.Bool
	self     *component.Publisher // nil in tests
	record   *recording.File      // nil for none
	// informers are set once it runs.
	informers atomic.Pointer[informer.Factory]
}

// New checks the configuration and prepares to dial. Plugins of third parties come after the scheduler's own; where there
// is a configuration file, it says whether they run.
func New(cfg Config, logger *slog.Logger, extra ...framework.Factory) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.SchedulerName == "" {
		cfg.SchedulerName = DefaultSchedulerName
	}
	if cfg.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("identity: %w", err)
		}
		cfg.Identity = host + "_" + rand.Text()[:8]
	}
	s := &Scheduler{}
	logger, s.errors = component.Remember(logger)
	s.logger = logger
	var err error
	if s.profiles, err = cfg.configure(logger, extra); err != nil {
		return nil, err
	}
	s.cfg = cfg
	if cfg.Socket != "" || cfg.Listen != "" {
		s.server, err = rpc.NewServer(rpc.ServerConfig{
			Name: "scheduler", UnixSocket: cfg.Socket, TCP: cfg.Listen,
			CertFile: cfg.Gateway.CertFile, KeyFile: cfg.Gateway.KeyFile, CAFile: cfg.Gateway.CAFile, InsecureTCP: cfg.Gateway.InsecureTCP,
		}, logger)
		if err != nil {
			return nil, err
		}
	}
	s.conn, err = rpc.Dial(cfg.Gateway)
	if err != nil {
		return nil, err
	}
	s.self = component.New(s.conn, component.Config{
		Component: "scheduler", Instance: component.Instance(cfg.Listen, cfg.Socket), Address: cfg.address(),
		Leader: s.leads.Load, Errors: s.errors, Logger: logger,
	})
	return s, nil
}

// Run schedules until ctx ends.
func (s *Scheduler) Run(ctx context.Context) error {
	defer s.conn.Close()
	if err := s.beginRecord(); err != nil {
		return err
	}
	if s.record != nil {
		defer s.record.Close()
	}
	return s.run(ctx)
}

// beginRecord creates the record, where one is wanted.
func (s *Scheduler) beginRecord() (err error) {
	if s.cfg.Record == "" {
		return nil
	}
	s.record, err = recording.Create(s.cfg.Record, &recordv1.Header{
		Program: telemetry.Version(), Seed: s.cfg.Seed, SchedulerName: s.cfg.SchedulerName, ConfigFile: s.cfg.ConfigFile, Config: s.cfg.configuration,
		InitialBackoff: durationpb.New(s.cfg.InitialBackoff), MaxBackoff: durationpb.New(s.cfg.MaxBackoff),
	}, s.logger)
	if err != nil {
		return fmt.Errorf("--record: %w", err)
	}
	return nil
}

func (s *Scheduler) run(ctx context.Context) error {
	work, err := s.tasks(s.conn)
	if err != nil {
		return err
	}
	tasks := []daemon.Task{{Name: "scheduler", Run: func(ctx context.Context) error {
		// One that starts together with its gateway is not to sit out the pauses after first failures.
		if err := rpc.WaitServing(ctx, s.conn); err != nil {
			return err
		}
		return daemon.Run(ctx, work...)
	}}, {Name: "component", Run: func(ctx context.Context) error {
		if err := rpc.WaitServing(ctx, s.conn); err != nil {
			return err
		}
		return s.self.Run(ctx)
	}}}
	if s.server != nil {
		tasks = append(tasks, daemon.Task{Name: "server", Run: s.server.Run})
	}
	return daemon.Run(ctx, tasks...)
}

// Ready reports what it still waits for. A standby that has seen the cluster is ready: it can take over at once.
func (s *Scheduler) Ready() error {
	if f := s.informers.Load(); f == nil || !f.HasSynced() {
		return errors.New("the cluster has not been seen yet")
	}
	return nil
}

// tasks builds the chain on a connection to the gateway.
func (s *Scheduler) tasks(conn grpc.ClientConnInterface) ([]daemon.Task, error) {
	factory := informer.NewFactory(conn, s.logger)
	reporters := map[string]*report.Reporter{}
	for _, p := range s.profiles {
		reporters[p.SchedulerName] = report.New(conn, p.SchedulerName, s.logger)
	}
	var made *chain.Chain
	binder := bind.New(conn, func(ctx context.Context, revision int64) error { return made.Intake.WaitForPods(ctx, revision) }, s.logger)
	deps := chain.Deps{
		Binder: binder, Evictor: evict.New(conn), Gateway: conn, Objects: intake.Objects(factory), Reporters: reporters, Logger: s.logger,
	}
	if s.record != nil {
		deps.Steps = recording.NewSteps(s.record.Take)
	}
	var err error
	made, err = chain.New(chain.Config{
		Profiles: s.profiles, Seed: s.cfg.Seed, InitialBackoff: s.cfg.InitialBackoff, MaxBackoff: s.cfg.MaxBackoff,
	}, deps)
	if err != nil {
		return nil, err
	}
	made.Intake.Register(factory)
	counts := tally.New(conn, factory, made.Cache, made.Queue, s.logger)
	attempts := s.explain(factory, explain.Deps{
		Queue: made.Queue, Cache: made.Cache, Nominator: made.Nominator, Profiles: s.profiles, Objects: made.Objects,
	})
	s.informers.Store(factory)
	var tasks []daemon.Task
	for i, fw := range made.Frameworks {
		made.Cycles[i].Ended = attempts.Ended
		tasks = append(tasks, daemon.Task{Name: "reporter " + fw.Profile(), Run: reporters[fw.Profile()].Run},
			daemon.Task{Name: "watchdog " + fw.Profile(), Run: func(ctx context.Context) error { return fw.Watch(ctx, s.logger) }})
	}

	// A standby keeps queue and cache warm, so that it takes over with what it knows.
	schedule := func(ctx context.Context, term *coordinationv1.LeaseClaim) error {
		if err := factory.WaitForSync(ctx); err != nil {
			return err
		}
		if term != nil && !s.takeOver(ctx, made.Intake, conn) {
			return nil // ctx ended
		}
		binder.Lead(term)
		s.logger.Info("scheduling")
		s.leads.Store(true)
		s.self.Wake()
		defer s.leads.Store(false)
		return daemon.Run(ctx, daemon.Task{Name: "cycle", Run: made.Cycles.Run}, daemon.Task{Name: "statuses", Run: counts.Run})
	}
	lead := func(ctx context.Context) error { return schedule(ctx, nil) }
	if s.cfg.LeaderElect {
		lead = func(ctx context.Context) error {
			election := s.cfg.lease
			election.Identity, election.Logger = s.cfg.Identity, s.logger
			return leader.Run(ctx, election, conn, schedule)
		}
	}
	return append(tasks,
		daemon.Task{Name: "informers", Run: factory.Run},
		daemon.Task{Name: "queue", Run: made.Queue.Run},
		daemon.Task{Name: "cycle", Run: lead},
		daemon.Task{Name: "metrics", Run: func(ctx context.Context) error {
			defer made.Cycles.Observe()()
			<-ctx.Done()
			return nil
		}},
	), nil
}

// takeOver waits until the bindings of leaders before this one have been seen; false means that ctx ended. There will be no
// more of them: the gateway refuses those of terms that are over.
func (s *Scheduler) takeOver(ctx context.Context, in *intake.Intake, conn grpc.ClientConnInterface) bool {
	for {
		err := in.CatchUp(ctx, conn)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		s.logger.Warn("cannot see what the leader before has bound, trying again", slog.Any(telemetry.KeyError, err))
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Second):
		}
	}
}
