package runtime

import (
	"errors"
	"fmt"
	"slices"

	"trireme.dev/services/scheduler/framework"
)

// build makes the plugins and puts each at its points.
func (f *Framework) build(profile framework.Profile) error {
	var errs []error
	type made struct {
		framework.Plugin
		weight, placement int64
	}
	var plugins []made
	byName := map[string]made{}
	for _, reg := range profile.Plugins {
		p, err := reg.New(f)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if _, ok := byName[p.Name()]; ok {
			errs = append(errs, fmt.Errorf("plugin %s is listed twice", p.Name()))
			continue
		}
		m := made{p, reg.Weight, reg.PlacementWeight}
		if m.placement == 0 {
			m.placement = m.weight
		}
		plugins = append(plugins, m)
		byName[p.Name()] = m
	}

	part := map[string]bool{}
	for _, at := range points {
		list := plugins
		names, chosen := profile.Order[at.name]
		if chosen {
			list = nil
			for _, name := range names {
				m, ok := byName[name]
				if !ok {
					errs = append(errs, fmt.Errorf("%s lists plugin %s, which the profile does not have", at.name, name))
					continue
				}
				list = append(list, m)
			}
		}
		for i, m := range list {
			if slices.ContainsFunc(list[:i], func(o made) bool { return o.Name() == m.Name() }) {
				errs = append(errs, fmt.Errorf("%s lists plugin %s twice", at.name, m.Name()))
				continue
			}
			weight := m.weight
			if at.name == framework.PointPlacementScore {
				weight = m.placement
			}
			ok, err := at.add(f, m.Plugin, weight)
			if err != nil {
				errs = append(errs, err)
			}
			if chosen && !ok {
				errs = append(errs, fmt.Errorf("%s lists plugin %s, which does not implement it", at.name, m.Name()))
			}
			if ok && at.rejects {
				part[m.Name()] = true
			}
			if ok && at.signs {
				f.addSigner(m.Plugin)
			}
		}
	}
	for _, m := range plugins {
		_, score := m.Plugin.(framework.ScorePlugin)
		_, placement := m.Plugin.(framework.PlacementScorePlugin)
		if m.weight != 0 && !score && !placement {
			errs = append(errs, fmt.Errorf("plugin %s does not score but has weight %d", m.Name(), m.weight))
		}
		if x, ok := m.Plugin.(framework.EnqueueExtensions); ok {
			f.events[m.Name()] = x.EventsToRegister()
		} else if part[m.Name()] {
			f.events[m.Name()] = []framework.EventHint{{
				Event: framework.ClusterEvent{Resource: framework.AnyResource, Action: framework.AllActions},
			}}
		}
	}
	f.sites()
	if p := profile.PercentageOfNodesToScore; p < 0 || p > 100 {
		errs = append(errs, fmt.Errorf("percentageOfNodesToScore is %d, want 0 to 100", p))
	}
	if f.sort == nil {
		errs = append(errs, errors.New("no queue sort plugin, want one"))
	}
	if len(f.bind) == 0 {
		errs = append(errs, errors.New("no bind plugin, want at least one"))
	}
	return errors.Join(errs...)
}

// point says how plugins are added at an extension point.
type point struct {
	name framework.Point
	// rejects: plugins here are woken by events; signs: what they answer must be in a pod's signature.
	rejects, signs bool
	// add returns false where the plugin does not implement the point.
	add func(*Framework, framework.Plugin, int64) (bool, error)
}

func list[P framework.Plugin](to func(*Framework) *[]P) func(*Framework, framework.Plugin, int64) (bool, error) {
	return func(f *Framework, p framework.Plugin, _ int64) (bool, error) {
		x, ok := p.(P)
		if ok {
			*to(f) = append(*to(f), x)
		}
		return ok, nil
	}
}

var points = []point{
	{framework.PointPreEnqueue, true, false, func(f *Framework, p framework.Plugin, _ int64) (bool, error) {
		x, one := p.(framework.PreEnqueuePlugin)
		if one {
			f.preEnqueue = append(f.preEnqueue, x)
		}
		g, group := p.(framework.PreEnqueueGroupPlugin)
		if group {
			f.preEnqueueGroup = append(f.preEnqueueGroup, g)
		}
		return one || group, nil
	}},
	{framework.PointQueueSort, false, false, func(f *Framework, p framework.Plugin, _ int64) (bool, error) {
		x, ok := p.(framework.QueueSortPlugin)
		if !ok {
			return false, nil
		}
		if f.sort != nil {
			return true, fmt.Errorf("plugins %s and %s both sort the queue", f.sort.Name(), x.Name())
		}
		f.sort = x
		return true, nil
	}},
	{framework.PointPreFilter, true, true, list(func(f *Framework) *[]framework.PreFilterPlugin { return &f.preFilter })},
	{framework.PointFilter, true, true, list(func(f *Framework) *[]framework.FilterPlugin { return &f.filter })},
	{framework.PointPostFilter, false, false, list(func(f *Framework) *[]framework.PostFilterPlugin { return &f.postFilter })},
	{framework.PointPreScore, false, true, list(func(f *Framework) *[]framework.PreScorePlugin { return &f.preScore })},
	{framework.PointScore, false, true, func(f *Framework, p framework.Plugin, weight int64) (bool, error) {
		x, ok := p.(framework.ScorePlugin)
		if !ok {
			return false, nil
		}
		f.score = append(f.score, weighted{x, weight})
		return true, checkWeight(p, weight)
	}},
	{framework.PointReserve, true, false, list(func(f *Framework) *[]framework.ReservePlugin { return &f.reserve })},
	{framework.PointPermit, true, false, list(func(f *Framework) *[]framework.PermitPlugin { return &f.permit })},
	{framework.PointPreBind, false, false, list(func(f *Framework) *[]framework.PreBindPlugin { return &f.preBind })},
	{framework.PointBind, false, false, list(func(f *Framework) *[]framework.BindPlugin { return &f.bind })},
	{framework.PointPostBind, false, false, list(func(f *Framework) *[]framework.PostBindPlugin { return &f.postBind })},
	{framework.PointPlacementGenerate, false, false, func(f *Framework, p framework.Plugin, _ int64) (bool, error) {
		x, ok := p.(framework.PlacementGeneratePlugin)
		if !ok {
			return false, nil
		}
		if f.placementGenerate != nil {
			return true, fmt.Errorf("plugins %s and %s both generate placements", f.placementGenerate.Name(), x.Name())
		}
		f.placementGenerate = x
		return true, nil
	}},
	{framework.PointPlacementScore, false, false, func(f *Framework, p framework.Plugin, weight int64) (bool, error) {
		x, ok := p.(framework.PlacementScorePlugin)
		if !ok {
			return false, nil
		}
		f.placementScore = append(f.placementScore, weightedPlacement{x, weight})
		return true, checkWeight(p, weight)
	}},
	{framework.PointPodGroupPostFilter, false, false, list(func(f *Framework) *[]framework.PodGroupPostFilterPlugin { return &f.podGroupPostFilter })},
}

func checkWeight(p framework.Plugin, weight int64) error {
	if weight < 1 {
		return fmt.Errorf("plugin %s scores with weight %d, want at least 1", p.Name(), weight)
	}
	return nil
}

// addSigner has the plugin sign pods, or notes that it cannot.
func (f *Framework) addSigner(p framework.Plugin) {
	s, ok := p.(framework.SignPlugin)
	switch {
	case !ok:
		f.unsignable = p.Name()
	case !slices.ContainsFunc(f.signers, func(o framework.SignPlugin) bool { return o.Name() == p.Name() }):
		f.signers = append(f.signers, s)
		if e, ok := p.(framework.SignEpochPlugin); ok {
			f.epochs = append(f.epochs, e)
		}
	}
}

// Sign writes the signature of a pod and reports whether it has one.
func (f *Framework) Sign(pod *framework.PodInfo, signature *framework.Signature) bool {
	if f.unsignable != "" {
		return false
	}
	signature.Reset()
	for _, s := range f.signers {
		if !s.Sign(pod, signature) {
			return false
		}
	}
	return true
}

// SignEpoch changes when the answers for a signed pod may have changed for a reason that is not a node.
func (f *Framework) SignEpoch(pod *framework.PodInfo, nodes *framework.Snapshot) uint64 {
	var sum uint64
	for _, e := range f.epochs {
		// Mixed, so that one going up as another goes down does not go unseen.
		sum = sum*0x9E3779B97F4A7C15 + e.SignEpoch(pod, nodes)
	}
	return sum
}
