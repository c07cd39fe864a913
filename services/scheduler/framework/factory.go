package framework

import "fmt"

// Factory is a plugin by its name, as a configuration knows it. Who makes a plugin for others exports one, from
// NewFactory, and passes it to the scheduler's New.
type Factory struct {
	// Name of the plugin.
	Name string
	// Weight of its score and placement score by default; 0 where it has neither.
	Weight int64
	// Points at which it takes part.
	Points []Point
	// Args returns a pointer to the plugin's default arguments, a struct with Kubernetes' names in its json tags, to decode
	// a configuration into; it may have a method Validate() error. Nil where the plugin takes none.
	Args func() any
	// New builds the plugin with what Args returned; nil stands for the defaults.
	New func(h Handle, args any) (Plugin, error)
}

// NewFactory describes a plugin of type P with arguments of type A; defaults is nil where it takes none, and build then
// gets nil. weight is 0 where it does not score.
func NewFactory[A any, P Plugin](name string, weight int64, defaults func() *A, build func(Handle, *A) (P, error)) Factory {
	var zero P
	f := Factory{Name: name, Weight: weight, Points: PointsOf(zero)}
	if defaults != nil {
		f.Args = func() any { return defaults() }
	}
	f.New = func(h Handle, args any) (Plugin, error) {
		a, ok := args.(*A)
		switch {
		case args == nil && defaults != nil:
			a = defaults()
		case args != nil && !ok:
			return nil, fmt.Errorf("plugin %s: arguments of type %T, want %T", name, args, a)
		}
		p, err := build(h, a)
		if err != nil {
			return nil, fmt.Errorf("plugin %s: %w", name, err)
		}
		return p, nil
	}
	return f
}

// Registration enables the plugin with arguments, nil for the defaults, and a weight, 0 for the default.
func (f Factory) Registration(args any, weight int64) Registration {
	if weight == 0 {
		weight = f.Weight
	}
	return Registration{Weight: weight, New: func(h Handle) (Plugin, error) { return f.New(h, args) }}
}

// PointsOf are the points that a plugin implements, in the order in which they run; only its type counts.
func PointsOf(p Plugin) []Point {
	var out []Point
	at := func(point Point, implements bool) {
		if implements {
			out = append(out, point)
		}
	}
	_, group := p.(PreEnqueueGroupPlugin)
	at(PointPreEnqueue, is[PreEnqueuePlugin](p) || group)
	at(PointQueueSort, is[QueueSortPlugin](p))
	at(PointPreFilter, is[PreFilterPlugin](p))
	at(PointFilter, is[FilterPlugin](p))
	at(PointPostFilter, is[PostFilterPlugin](p))
	at(PointPreScore, is[PreScorePlugin](p))
	at(PointScore, is[ScorePlugin](p))
	at(PointReserve, is[ReservePlugin](p))
	at(PointPermit, is[PermitPlugin](p))
	at(PointPreBind, is[PreBindPlugin](p))
	at(PointBind, is[BindPlugin](p))
	at(PointPostBind, is[PostBindPlugin](p))
	at(PointPlacementGenerate, is[PlacementGeneratePlugin](p))
	at(PointPlacementScore, is[PlacementScorePlugin](p))
	at(PointPodGroupPostFilter, is[PodGroupPostFilterPlugin](p))
	return out
}

func is[P Plugin](p Plugin) bool {
	_, ok := p.(P)
	return ok
}
