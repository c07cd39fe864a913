// Package plugins lists the scheduler's own plugins, one folder each.
package plugins

import (
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/defaultbinder"
	"trireme.dev/services/scheduler/plugins/defaultpreemption"
	"trireme.dev/services/scheduler/plugins/gangscheduling"
	"trireme.dev/services/scheduler/plugins/imagelocality"
	"trireme.dev/services/scheduler/plugins/interpodaffinity"
	"trireme.dev/services/scheduler/plugins/nodeaffinity"
	"trireme.dev/services/scheduler/plugins/nodename"
	"trireme.dev/services/scheduler/plugins/nodeports"
	"trireme.dev/services/scheduler/plugins/noderesources"
	"trireme.dev/services/scheduler/plugins/nodeunschedulable"
	"trireme.dev/services/scheduler/plugins/nodevolumelimits"
	"trireme.dev/services/scheduler/plugins/podtopologyspread"
	"trireme.dev/services/scheduler/plugins/queuequota"
	"trireme.dev/services/scheduler/plugins/queuesort"
	"trireme.dev/services/scheduler/plugins/schedulinggates"
	"trireme.dev/services/scheduler/plugins/tainttoleration"
	"trireme.dev/services/scheduler/plugins/topologyplacement"
	"trireme.dev/services/scheduler/plugins/volumebinding"
	"trireme.dev/services/scheduler/plugins/volumerestrictions"
	"trireme.dev/services/scheduler/plugins/volumezone"
)

// plain is a plugin that needs nothing.
func plain(name string, weight int64, p framework.Plugin) framework.Factory {
	return framework.Factory{
		Name: name, Weight: weight, Points: framework.PointsOf(p),
		New: func(framework.Handle, any) (framework.Plugin, error) { return p, nil },
	}
}

// handled is a plugin that needs a Handle.
func handled[P framework.Plugin](name string, weight int64, build func(framework.Handle) P) framework.Factory {
	return framework.NewFactory(name, weight, nil, func(h framework.Handle, _ *struct{}) (P, error) { return build(h), nil })
}

// withArgs is a plugin that takes arguments of type A.
func withArgs[A any, P framework.Plugin](name string, weight int64, defaults func() *A, build func(framework.Handle, *A) (P, error)) framework.Factory {
	return framework.NewFactory(name, weight, defaults, build)
}

// fromArgs is for plugins that need no Handle.
func fromArgs[A any, P framework.Plugin](build func(*A) P) func(framework.Handle, *A) (P, error) {
	return func(_ framework.Handle, args *A) (P, error) { return build(args), nil }
}

// Registry lists all plugins in the order of the default profile.
func Registry() []framework.Factory {
	return []framework.Factory{
		plain(schedulinggates.Name, 0, schedulinggates.Plugin{}),
		plain(queuesort.Name, 0, queuesort.Plugin{}),
		plain(nodeunschedulable.Name, 0, nodeunschedulable.Plugin{}),
		plain(nodename.Name, 0, nodename.Plugin{}),
		plain(tainttoleration.Name, 3, tainttoleration.Plugin{}),
		withArgs(nodeaffinity.Name, 2, nodeaffinity.DefaultArgs, fromArgs(nodeaffinity.New)),
		plain(nodeports.Name, 0, nodeports.Plugin{}),
		withArgs(noderesources.FitName, 1, noderesources.DefaultFitArgs, fromArgs(noderesources.NewFit)),
		handled(volumerestrictions.Name, 0, volumerestrictions.New),
		handled(nodevolumelimits.Name, 0, nodevolumelimits.New),
		withArgs(volumebinding.Name, 0, volumebinding.DefaultArgs, volumebinding.New),
		handled(volumezone.Name, 0, volumezone.New),
		withArgs(podtopologyspread.Name, 2, podtopologyspread.DefaultArgs, podtopologyspread.New),
		withArgs(interpodaffinity.Name, 2, interpodaffinity.DefaultArgs, interpodaffinity.New),
		withArgs(defaultpreemption.Name, 0, defaultpreemption.DefaultArgs, defaultpreemption.New),
		withArgs(noderesources.BalancedName, 1, noderesources.DefaultBalancedArgs, fromArgs(noderesources.NewBalanced)),
		handled(imagelocality.Name, 1, imagelocality.New),
		handled(defaultbinder.Name, 0, defaultbinder.New),
		plain(gangscheduling.Name, 0, gangscheduling.Plugin{}),
		handled(queuequota.Name, 0, queuequota.New),
		plain(topologyplacement.GeneratorName, 0, topologyplacement.Generator{}),
		plain(topologyplacement.PodsCountName, 1, topologyplacement.PodsCount{}),
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
