// Package explain tells people what the scheduler thinks and would do: why a pod waits and what would help, and where pods
// would go if they came. It looks at queue and cache beside the cycle, tries things out on copies of its own, and changes
// nothing. It stands beside the scheduler's chain and serves SchedulerService.
package explain

import (
	"context"
	"sync"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cache"
	"trireme.dev/services/scheduler/internal/cycle"
	"trireme.dev/services/scheduler/internal/nominate"
	"trireme.dev/services/scheduler/internal/queue"
	"trireme.dev/services/scheduler/internal/runtime"
)

// Deps are the parts of the scheduler that are looked at.
type Deps struct {
	// Pods and Groups are the scheduler's copies of the objects.
	Pods   framework.Lister[*corev1.Pod]
	Groups framework.Lister[*schedulingv1.PodGroup]
	Queue  *queue.Queue
	Cache  *cache.Cache
	// Nominator of the cycles.
	Nominator *nominate.Nominator
	// Profiles of the scheduler, at least one.
	Profiles []framework.Profile
	// Objects are the listers that plugins may ask for.
	Objects map[string]any
	// Attempts that are remembered.
	Attempts *Attempts
	// Leads reports whether this scheduler is the one that schedules.
	Leads func() bool
}

// Explainer answers. Make it with New; its methods may be called from anywhere.
type Explainer struct {
	Deps
	schedulingv1.UnimplementedSchedulerServiceServer

	// mu serialises questions: they share the snapshot, and no two of them are to take the cycle's processors at once.
	mu       sync.Mutex
	snapshot cache.Snapshot
}

// New returns one over the parts of a scheduler.
func New(deps Deps) *Explainer { return &Explainer{Deps: deps} }

// profileOf is the profile that a pod names; false where it names none of ours.
func (x *Explainer) profileOf(pod *corev1.Pod) (framework.Profile, bool) {
	for _, p := range x.Profiles {
		if p.SchedulerName == pod.GetSpec().GetSchedulerName() {
			return p, true
		}
	}
	return framework.Profile{}, false
}

// framework builds a profile anew, so that what is tried out shares no memory with the cycle. What it nominates is
// forgotten with it.
func (x *Explainer) framework(profile framework.Profile, nominator *nominate.Nominator) (*runtime.Framework, error) {
	return runtime.New(profile, runtime.Deps{Nominator: nominator, Objects: x.Objects})
}

// nominations are a copy of the cycles'.
func (x *Explainer) nominations() *nominate.Nominator {
	type place struct {
		node string
		pods []*framework.PodInfo
	}
	var all []place
	x.Nominator.Each(func(node string, pods []*framework.PodInfo) { all = append(all, place{node, pods}) })
	out := nominate.New()
	for _, p := range all {
		for _, pod := range p.pods {
			out.Nominate(pod, p.node)
		}
	}
	return out
}

// trial is a copy of the cluster with a decider over it.
type trial struct {
	ctx      context.Context
	fw       *runtime.Framework
	snapshot *cache.Snapshot
	decider  *cycle.Decider
}

// try makes a copy of the cluster as it is now; x.mu is held.
func (x *Explainer) try(ctx context.Context, profile framework.Profile) (*trial, error) {
	if err := x.Cache.Update(&x.snapshot); err != nil {
		return nil, err
	}
	fw, err := x.framework(profile, x.nominations())
	if err != nil {
		return nil, err
	}
	t := &trial{ctx: ctx, fw: fw, snapshot: &cache.Snapshot{}}
	x.snapshot.CopyTo(&t.snapshot.Snapshot)
	t.decider = cycle.NewDecider(fw, t.snapshot, 0)
	return t, nil
}
