// Package chain puts the parts of a scheduler together: all but what tells it of the cluster, and what lets it act there. It
// is the one place that knows how they hang together, for the service, for a scheduler in memory and for a replay alike.
package chain

import (
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cache"
	"trireme.dev/services/scheduler/internal/cycle"
	"trireme.dev/services/scheduler/internal/intake"
	"trireme.dev/services/scheduler/internal/nominate"
	"trireme.dev/services/scheduler/internal/queue"
	"trireme.dev/services/scheduler/internal/recording"
	"trireme.dev/services/scheduler/internal/report"
	"trireme.dev/services/scheduler/internal/runtime"
)

// Config says what is put together.
type Config struct {
	// Profiles of the scheduler, at least one.
	Profiles []framework.Profile
	// Seed says where ties begin.
	Seed uint64
	// InitialBackoff and MaxBackoff bound the pause of a pod after a failed attempt; 1 s and 10 s where zero.
	InitialBackoff, MaxBackoff time.Duration
	// NoBatching has each pod looked at all by itself.
	NoBatching bool
}

// Deps are what the chain reaches the cluster by. What is nil does nothing, or is nothing.
type Deps struct {
	Binder  framework.Binder
	Evictor framework.Evictor
	Gateway grpc.ClientConnInterface
	// Objects are the listers that plugins may ask for, by kind. Where it is nil, or there are Steps, they are those of a copy
	// that the chain keeps of what Intake is told.
	Objects map[string]any
	// Reporters by profile.
	Reporters map[string]*report.Reporter
	Steps     *recording.Steps
	Logger    *slog.Logger
}

// Chain is a scheduler put together. Whoever has it runs Queue and Cycles, and tells Intake what happens.
type Chain struct {
	Intake    *intake.Intake
	Queue     *queue.Queue
	Cache     *cache.Cache
	Nominator *nominate.Nominator
	Cycles    cycle.Profiles
	// Frameworks of the profiles.
	Frameworks []*runtime.Framework
	// Objects that plugins are given.
	Objects map[string]any
}

// New puts a chain together.
func New(cfg Config, deps Deps) (*Chain, error) {
	c := &Chain{Cache: cache.New(deps.Logger), Nominator: nominate.New(), Objects: deps.Objects}
	var copied *intake.Copy
	if deps.Objects == nil || deps.Steps.Recorded() {
		copied = intake.NewCopy()
		c.Objects = copied.Objects()
	}
	all := &profiles{reporters: deps.Reporters}
	shared := runtime.NewShared()
	for _, p := range cfg.Profiles {
		d := runtime.Deps{
			Binder: deps.Binder, Evictor: deps.Evictor, Gateway: deps.Gateway, Nominator: c.Nominator, Objects: c.Objects,
			Shared: shared, Steps: deps.Steps,
		}
		if r := deps.Reporters[p.SchedulerName]; r != nil {
			d.Event = r.Event
		}
		fw, err := runtime.New(p, d)
		if err != nil {
			return nil, err
		}
		all.frameworks = append(all.frameworks, fw)
	}
	c.Frameworks = all.frameworks
	events := all.events()
	events[cycle.NoNodes] = []framework.EventHint{{
		Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Add},
	}}
	c.Queue = queue.New(queue.Config{
		Less:            all.frameworks[0].Less, // the same in all
		PreEnqueue:      all.preEnqueue,
		PreEnqueueGroup: all.preEnqueueGroup,
		Events:          events,
		Scheduled:       c.Cache.Scheduled,
		Team:            c.Cache.QueueOf,
		FirstTeam:       c.Cache.FirstQueue,
		OnGated:         all.reportGated,
		InitialBackoff:  cfg.InitialBackoff,
		MaxBackoff:      cfg.MaxBackoff,
		Steps:           deps.Steps,
	})
	c.Intake = &intake.Intake{
		SchedulerNames: all.names(), Queue: c.Queue, Cache: c.Cache, Framework: all.frameworks[0], Logger: deps.Logger,
		Steps: deps.Steps, Copy: copied,
	}
	for _, fw := range all.frameworks {
		fw.OnActivate(c.Queue.Activate)
		c.Cycles = append(c.Cycles, cycle.New(cycle.Deps{
			Queue: c.Queue, Cache: c.Cache, Framework: fw, Reporter: deps.Reporters[fw.Profile()], Logger: deps.Logger, Profile: fw.Profile(),
			NoBatching: cfg.NoBatching, Steps: deps.Steps,
		}, cfg.Seed))
	}
	return c, nil
}
