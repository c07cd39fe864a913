package framework

import (
	"time"

	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// Queued is what the queue hands out and a cycle tries: one pod, or the waiting members of a gang. It is a view that
// does not change once handed out.
type Queued struct {
	// GroupKey names the group; the zero value for a lone pod.
	GroupKey GroupKey
	// Group is the group's object; nil for a lone pod, and for members whose group does not exist (yet).
	Group *schedulingv1.PodGroup
	// Pods to place: exactly one, or the waiting members of the group, by priority, then age, then name.
	Pods []*PodInfo
	// Strangers are members that wait for another scheduler.
	Strangers []*PodInfo
	// Scheduled is how many members of the group are on nodes already, assumed ones included.
	Scheduled int
	// Timestamp is when it last entered the queue; refreshed by each failed attempt.
	Timestamp time.Time
	// InitialTimestamp is when it first entered the queue.
	InitialTimestamp time.Time
	// InitialAttempt is when it was first tried; zero before that.
	InitialAttempt time.Time
	// Attempts so far, the one in progress included.
	Attempts int
}

// MaxGroupPods is how many pods can be bound at once.
const MaxGroupPods = 5000

// IsGroup reports whether q is a group and not a lone pod.
func (q *Queued) IsGroup() bool { return q.GroupKey != GroupKey{} }

// MinCount is how many of the group's pods must be on nodes for any to be; 1 for a lone pod.
func (q *Queued) MinCount() int {
	if gang := q.Group.GetSpec().GetSchedulingPolicy().GetGang(); gang != nil {
		return int(gang.GetMinCount())
	}
	return 1
}

// Priority is the group's own, or else that of its highest member.
func (q *Queued) Priority() int32 {
	if spec := q.Group.GetSpec(); spec != nil && spec.Priority != nil {
		return spec.GetPriority()
	}
	if len(q.Pods) == 0 {
		return 0
	}
	return q.Pods[0].Priority()
}

// Name is what people know it by: "namespace/name" of the pod or of the group.
func (q *Queued) Name() string {
	if q.IsGroup() {
		return q.GroupKey.String()
	}
	return q.Pods[0].Name()
}
