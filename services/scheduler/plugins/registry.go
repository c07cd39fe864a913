// Package plugins lists the scheduler's own plugins, one folder each.
package plugins

import (
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/defaultbinder"
	"trireme.dev/services/scheduler/plugins/gangscheduling"
	"trireme.dev/services/scheduler/plugins/nodeaffinity"
	"trireme.dev/services/scheduler/plugins/nodename"
	"trireme.dev/services/scheduler/plugins/noderesources"
	"trireme.dev/services/scheduler/plugins/nodeunschedulable"
	"trireme.dev/services/scheduler/plugins/queuesort"
	"trireme.dev/services/scheduler/plugins/schedulinggates"
	"trireme.dev/services/scheduler/plugins/tainttoleration"
)

// Default returns the plugins of the default profile in order.
func Default() []framework.Registration {
	return []framework.Registration{
		{New: func(framework.Handle) framework.Plugin { return schedulinggates.Plugin{} }},
		{New: func(framework.Handle) framework.Plugin { return queuesort.Plugin{} }},
		{New: func(framework.Handle) framework.Plugin { return nodeunschedulable.Plugin{} }},
		{New: func(framework.Handle) framework.Plugin { return nodename.Plugin{} }},
		{New: func(framework.Handle) framework.Plugin { return tainttoleration.Plugin{} }, Weight: 3},
		{New: func(framework.Handle) framework.Plugin { return nodeaffinity.Plugin{} }, Weight: 2},
		{New: func(framework.Handle) framework.Plugin { return noderesources.Fit{} }, Weight: 1},
		{New: func(framework.Handle) framework.Plugin { return noderesources.BalancedAllocation{} }, Weight: 1},
		{New: func(h framework.Handle) framework.Plugin { return defaultbinder.New(h) }},
		{New: func(framework.Handle) framework.Plugin { return gangscheduling.Plugin{} }},
	}
}
