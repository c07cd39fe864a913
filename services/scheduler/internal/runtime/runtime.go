// Package runtime runs the plugins of a profile: at each extension point in the order in which they are listed, with the
// contract that package framework states. It stands between the cycle, which decides what to run, and the plugins; it
// knows neither queue nor cache.
package runtime

import (
	"errors"
	"fmt"

	"trireme.dev/services/scheduler/framework"
)

// Names of extension points, as Kubernetes' metrics have them.
const (
	PreFilter    = "PreFilter"
	Filter       = "Filter"
	PostFilter   = "PostFilter"
	PreScore     = "PreScore"
	Score        = "Score"
	Reserve      = "Reserve"
	Permit       = "Permit"
	WaitOnPermit = "WaitOnPermit"
	PreBind      = "PreBind"
	Bind         = "Bind"
	PostBind     = "PostBind"
)

// Framework is a profile, built and ready. It implements framework.Handle. Its Run methods are called by one cycle at
// a time, those from WaitOnPermit on by any number of bindings.
type Framework struct {
	binder   framework.Binder
	snapshot framework.Snapshot
	waiting  waitingPods

	sort            framework.QueueSortPlugin
	preEnqueue      []framework.PreEnqueuePlugin
	preEnqueueGroup []framework.PreEnqueueGroupPlugin
	preFilter       []framework.PreFilterPlugin
	filter          []framework.FilterPlugin
	postFilter      []framework.PostFilterPlugin
	preScore        []framework.PreScorePlugin
	score           []weighted
	reserve         []framework.ReservePlugin
	permit          []framework.PermitPlugin
	preBind         []framework.PreBindPlugin
	bind            []framework.BindPlugin
	postBind        []framework.PostBindPlugin
	events          map[string][]framework.EventHint
}

type weighted struct {
	framework.ScorePlugin
	weight int64
}

// New builds the plugins of a profile. All that is wrong with the list is said at once.
func New(profile []framework.Registration, binder framework.Binder) (*Framework, error) {
	f := &Framework{binder: binder, events: make(map[string][]framework.EventHint)}
	f.waiting.pods = make(map[string]*waitingPod)
	names := make(map[string]bool)
	var errs []error
	for _, reg := range profile {
		p := reg.New(f)
		if names[p.Name()] {
			errs = append(errs, fmt.Errorf("plugin %s is listed twice", p.Name()))
			continue
		}
		names[p.Name()] = true
		if err := f.register(p, reg.Weight); err != nil {
			errs = append(errs, err)
		}
	}
	if f.sort == nil {
		errs = append(errs, errors.New("no queue sort plugin, want one"))
	}
	if len(f.bind) == 0 {
		errs = append(errs, errors.New("no bind plugin, want at least one"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return f, nil
}

func (f *Framework) register(p framework.Plugin, weight int64) error {
	var errs []error
	rejects := false
	if x, ok := p.(framework.QueueSortPlugin); ok {
		if f.sort != nil {
			errs = append(errs, fmt.Errorf("plugins %s and %s both sort the queue", f.sort.Name(), x.Name()))
		}
		f.sort = x
	}
	if x, ok := p.(framework.PreEnqueuePlugin); ok {
		f.preEnqueue, rejects = append(f.preEnqueue, x), true
	}
	if x, ok := p.(framework.PreEnqueueGroupPlugin); ok {
		f.preEnqueueGroup, rejects = append(f.preEnqueueGroup, x), true
	}
	if x, ok := p.(framework.PreFilterPlugin); ok {
		f.preFilter, rejects = append(f.preFilter, x), true
	}
	if x, ok := p.(framework.FilterPlugin); ok {
		f.filter, rejects = append(f.filter, x), true
	}
	if x, ok := p.(framework.PostFilterPlugin); ok {
		f.postFilter = append(f.postFilter, x)
	}
	if x, ok := p.(framework.PreScorePlugin); ok {
		f.preScore = append(f.preScore, x)
	}
	switch x, ok := p.(framework.ScorePlugin); {
	case ok && weight < 1:
		errs = append(errs, fmt.Errorf("plugin %s scores with weight %d, want at least 1", p.Name(), weight))
	case ok:
		f.score = append(f.score, weighted{x, weight})
	case weight != 0:
		errs = append(errs, fmt.Errorf("plugin %s does not score but has weight %d", p.Name(), weight))
	}
	if x, ok := p.(framework.ReservePlugin); ok {
		f.reserve, rejects = append(f.reserve, x), true
	}
	if x, ok := p.(framework.PermitPlugin); ok {
		f.permit, rejects = append(f.permit, x), true
	}
	if x, ok := p.(framework.PreBindPlugin); ok {
		f.preBind = append(f.preBind, x)
	}
	if x, ok := p.(framework.BindPlugin); ok {
		f.bind = append(f.bind, x)
	}
	if x, ok := p.(framework.PostBindPlugin); ok {
		f.postBind = append(f.postBind, x)
	}
	if x, ok := p.(framework.EnqueueExtensions); ok {
		f.events[p.Name()] = x.EventsToRegister()
	} else if rejects {
		f.events[p.Name()] = []framework.EventHint{{
			Event: framework.ClusterEvent{Resource: framework.AnyResource, Action: framework.AllActions},
		}}
	}
	return errors.Join(errs...)
}

// Events that plugins registered, by plugin.
func (f *Framework) Events() map[string][]framework.EventHint { return f.events }

// SetSnapshot says which snapshot the plugins see from now on.
func (f *Framework) SetSnapshot(s framework.Snapshot) { f.snapshot = s }

// Snapshot implements framework.Handle.
func (f *Framework) Snapshot() framework.Snapshot { return f.snapshot }

// Binder implements framework.Handle.
func (f *Framework) Binder() framework.Binder { return f.binder }

// Less orders the queue.
func (f *Framework) Less(a, b *framework.Queued) bool { return f.sort.Less(a, b) }

// RunPreEnqueue stops at the first plugin that holds the pod back.
func (f *Framework) RunPreEnqueue(pod *framework.PodInfo) *framework.Status {
	for _, p := range f.preEnqueue {
		if st := p.PreEnqueue(pod); !st.IsSuccess() {
			return st.WithPlugin(p.Name())
		}
	}
	return nil
}

// RunPreEnqueueGroup stops at the first plugin that holds the group back.
func (f *Framework) RunPreEnqueueGroup(group *framework.Queued) *framework.Status {
	for _, p := range f.preEnqueueGroup {
		if st := p.PreEnqueueGroup(group); !st.IsSuccess() {
			return st.WithPlugin(p.Name())
		}
	}
	return nil
}
