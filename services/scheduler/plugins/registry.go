// Package plugins lists the scheduler's own plugins, one folder each.
package plugins

import (
	"fmt"

	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/defaultbinder"
	"trireme.dev/services/scheduler/plugins/gangscheduling"
	"trireme.dev/services/scheduler/plugins/imagelocality"
	"trireme.dev/services/scheduler/plugins/interpodaffinity"
	"trireme.dev/services/scheduler/plugins/nodeaffinity"
	"trireme.dev/services/scheduler/plugins/nodename"
	"trireme.dev/services/scheduler/plugins/nodeports"
	"trireme.dev/services/scheduler/plugins/noderesources"
	"trireme.dev/services/scheduler/plugins/nodeunschedulable"
	"trireme.dev/services/scheduler/plugins/podtopologyspread"
	"trireme.dev/services/scheduler/plugins/queuesort"
	"trireme.dev/services/scheduler/plugins/schedulinggates"
	"trireme.dev/services/scheduler/plugins/tainttoleration"
)

// Entry is a plugin by its name, as a configuration knows it.
type Entry struct {
	// Name of the plugin.
	Name string
	// Weight of its score by default; 0 where it has none.
	Weight int64
	// Args returns a pointer to the plugin's default arguments, a struct with Kubernetes' names in its json tags, to decode
	// a configuration into; it may have a method Validate() error. Nil where the plugin takes none.
	Args func() any
	// New builds the plugin with what Args returned; nil stands for the defaults.
	New func(h framework.Handle, args any) (framework.Plugin, error)
}

// Registration enables the plugin with arguments, nil for the defaults, and a weight, 0 for the default.
func (e Entry) Registration(args any, weight int64) framework.Registration {
	if weight == 0 {
		weight = e.Weight
	}
	return framework.Registration{Weight: weight, New: func(h framework.Handle) (framework.Plugin, error) { return e.New(h, args) }}
}

// plain is a plugin that needs nothing.
func plain(name string, weight int64, p framework.Plugin) Entry {
	return Entry{Name: name, Weight: weight, New: func(framework.Handle, any) (framework.Plugin, error) { return p, nil }}
}

// handled is a plugin that needs a Handle.
func handled[P framework.Plugin](name string, weight int64, build func(framework.Handle) P) Entry {
	return Entry{Name: name, Weight: weight, New: func(h framework.Handle, _ any) (framework.Plugin, error) { return build(h), nil }}
}

// withArgs is a plugin that takes arguments of type A.
func withArgs[A any, P framework.Plugin](name string, weight int64, defaults func() *A, build func(framework.Handle, *A) (P, error)) Entry {
	return Entry{
		Name: name, Weight: weight,
		Args: func() any { return defaults() },
		New: func(h framework.Handle, args any) (framework.Plugin, error) {
			a, ok := args.(*A)
			if args == nil {
				a, ok = defaults(), true
			}
			if !ok {
				return nil, fmt.Errorf("plugin %s: arguments of type %T, want %T", name, args, a)
			}
			p, err := build(h, a)
			if err != nil {
				return nil, fmt.Errorf("plugin %s: %w", name, err)
			}
			return p, nil
		},
	}
}

// fromArgs is for plugins that need no Handle.
func fromArgs[A any, P framework.Plugin](build func(*A) P) func(framework.Handle, *A) (P, error) {
	return func(_ framework.Handle, args *A) (P, error) { return build(args), nil }
}

// Registry lists all plugins in the order of the default profile.
func Registry() []Entry {
	return []Entry{
		plain(schedulinggates.Name, 0, schedulinggates.Plugin{}),
		plain(queuesort.Name, 0, queuesort.Plugin{}),
		plain(nodeunschedulable.Name, 0, nodeunschedulable.Plugin{}),
		plain(nodename.Name, 0, nodename.Plugin{}),
		plain(tainttoleration.Name, 3, tainttoleration.Plugin{}),
		plain(nodeaffinity.Name, 2, nodeaffinity.Plugin{}),
		plain(nodeports.Name, 0, nodeports.Plugin{}),
		withArgs(noderesources.FitName, 1, noderesources.DefaultFitArgs, fromArgs(noderesources.NewFit)),
		withArgs(podtopologyspread.Name, 2, podtopologyspread.DefaultArgs, podtopologyspread.New),
		withArgs(interpodaffinity.Name, 2, interpodaffinity.DefaultArgs, interpodaffinity.New),
		withArgs(noderesources.BalancedName, 1, noderesources.DefaultBalancedArgs, fromArgs(noderesources.NewBalanced)),
		handled(imagelocality.Name, 1, imagelocality.New),
		handled(defaultbinder.Name, 0, defaultbinder.New),
		plain(gangscheduling.Name, 0, gangscheduling.Plugin{}),
	}
}

// Default is the profile of all plugins with their defaults.
func Default(schedulerName string) framework.Profile {
	p := framework.Profile{SchedulerName: schedulerName}
	for _, e := range Registry() {
		p.Plugins = append(p.Plugins, e.Registration(nil, 0))
	}
	return p
}
