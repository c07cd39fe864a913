// Package schedulinggates keeps pods out of the queue while they carry scheduling gates.
package schedulinggates

import (
	"fmt"

	"trireme.dev/services/scheduler/framework"
)

// Name of the plugin.
const Name = "SchedulingGates"

// Plugin is a PreEnqueue. The zero value is ready.
type Plugin struct{}

// Name implements framework.Plugin.
func (Plugin) Name() string { return Name }

// EventsToRegister implements framework.EnqueueExtensions.
func (Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{{
		Event: framework.ClusterEvent{Resource: framework.UnscheduledPod, Action: framework.UpdatePodGatesEliminated},
	}}
}

// PreEnqueue implements framework.PreEnqueuePlugin.
func (Plugin) PreEnqueue(pod *framework.PodInfo) *framework.Status {
	gates := pod.Pod.GetSpec().GetSchedulingGates()
	if len(gates) == 0 {
		return nil
	}
	names := make([]string, len(gates))
	for i, g := range gates {
		names[i] = g.GetName()
	}
	return framework.NewStatus(framework.UnschedulableAndUnresolvable, fmt.Sprintf("waiting for scheduling gates: %v", names))
}
