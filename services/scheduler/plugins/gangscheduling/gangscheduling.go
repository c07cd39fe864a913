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
		return wait("waiting for pod group %s to appear", group.GroupKey)
	}
	if st := odd(group); st != nil {
		return st
	}
	want, seen := group.MinCount(), len(group.Pods)+group.Scheduled
	if now := want - group.Scheduled; now > framework.MaxGroupPods {
		return wait("pod group %s needs %d pods bound at once, %d are the most that can be", group.GroupKey, now, framework.MaxGroupPods)
	}
	if seen >= want {
		return nil
	}
	pods := "pods"
	if want-seen == 1 {
		pods = "pod"
	}
	return wait("waiting for %d more %s of pod group %s, %d of %d seen", want-seen, pods, group.GroupKey, seen, want)
}

// odd refuses a group whose members do not belong together.
func odd(group *framework.Queued) *framework.Status {
	if len(group.Pods) == 0 {
		return nil
	}
	first, last := group.Pods[0], group.Pods[len(group.Pods)-1] // by priority
	if len(group.Strangers) > 0 {
		other := group.Strangers[0]
		return wait("pods of one group name different schedulers: %s of pod %s, %s of pod %s",
			first.Pod.GetSpec().GetSchedulerName(), first.Name(), other.Pod.GetSpec().GetSchedulerName(), other.Name())
	}
	if first.Priority() != last.Priority() {
		return wait("pods of pod group %s have different priorities, %d of pod %s and %d of pod %s: they must have the same",
			group.GroupKey, first.Priority(), first.Name(), last.Priority(), last.Name())
	}
	if spec := group.Group.GetSpec(); spec.GetPriorityClassName() != "" && spec.GetPriority() != first.Priority() {
		return wait("pod group %s has priority %d, its pod %s %d: they must be the same",
			group.GroupKey, spec.GetPriority(), first.Name(), first.Priority())
	}
	return nil
}

func wait(format string, args ...any) *framework.Status {
	return framework.NewStatus(framework.UnschedulableAndUnresolvable, fmt.Sprintf(format, args...))
}
