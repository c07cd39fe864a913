// Package gangscheduling keeps the members of a pod group out of the queue until the group exists and, if it is a gang,
// until enough of them do. That they are then placed and bound all or nothing is the cycle's doing.
package gangscheduling

import (
	"fmt"

	"trireme.dev/services/scheduler/framework"
)

// Name of the plugin.
const Name = "GangScheduling"

// Plugin is a PreEnqueueGroup. The zero value is ready.
type Plugin struct{}

// Name implements framework.Plugin.
func (Plugin) Name() string { return Name }

// EventsToRegister implements framework.EnqueueExtensions. The queue itself asks again when a member comes or goes, or
// when the group's object changes; only a member that lands on a node by another way is news.
func (Plugin) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{{
		Event: framework.ClusterEvent{Resource: framework.AssignedPod, Action: framework.Add},
		Hint: func(pod *framework.PodInfo, change *framework.Change) framework.Hint {
			mine, ok := pod.Group()
			if theirs, ok2 := change.NewPod.Group(); ok && ok2 && mine == theirs {
				return framework.Queue
			}
			return framework.QueueSkip
		},
	}}
}

// PreEnqueueGroup implements framework.PreEnqueueGroupPlugin. Members that are on nodes count towards minCount, those
// that have ended do not.
func (Plugin) PreEnqueueGroup(group *framework.Queued) *framework.Status {
	if group.Group == nil {
		return framework.NewStatus(framework.UnschedulableAndUnresolvable,
			fmt.Sprintf("waiting for pod group %s to appear", group.GroupKey))
	}
	want, seen := group.MinCount(), len(group.Pods)+group.Scheduled
	if seen >= want {
		return nil
	}
	pods := "pods"
	if want-seen == 1 {
		pods = "pod"
	}
	return framework.NewStatus(framework.UnschedulableAndUnresolvable,
		fmt.Sprintf("waiting for %d more %s of pod group %s, %d of %d seen", want-seen, pods, group.GroupKey, seen, want))
}
