package deployment

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	appsv1 "trireme.dev/proto/gen/trireme/apps/v1"
)

// The conditions of a Deployment.
const (
	conditionAvailable      = "Available"
	conditionProgressing    = "Progressing"
	conditionReplicaFailure = "ReplicaFailure"
)

// status sums up the sets. after is when the progress deadline is due; zero where it is not running.
func status(d *appsv1.Deployment, newest *appsv1.ReplicaSet, olds []*appsv1.ReplicaSet, r rollout, creates bool, now time.Time) (s *appsv1.DeploymentStatus, after time.Duration) {
	s = &appsv1.DeploymentStatus{
		ObservedGeneration: d.GetMetadata().GetGeneration(),
		UpdatedReplicas:    newest.GetStatus().GetReplicas(),
	}
	if d.GetStatus() != nil {
		s.CollisionCount = d.GetStatus().CollisionCount
	}
	var total, terminating int32
	for _, rs := range append([]*appsv1.ReplicaSet{newest}, olds...) {
		s.Replicas += rs.GetStatus().GetReplicas()
		s.ReadyReplicas += rs.GetStatus().GetReadyReplicas()
		s.AvailableReplicas += rs.GetStatus().GetAvailableReplicas()
		terminating += rs.GetStatus().GetTerminatingReplicas()
		total += rs.GetSpec().GetReplicas()
	}
	s.UnavailableReplicas = max(0, total-s.GetAvailableReplicas())
	s.TerminatingReplicas = proto.Int32(terminating)

	c := conditions{now: timestamppb.New(now.Truncate(time.Second))}
	for _, old := range d.GetStatus().GetConditions() {
		c.list = append(c.list, proto.CloneOf(old))
	}
	if s.GetAvailableReplicas() >= r.desired-r.unavailable {
		c.set(conditionAvailable, "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
	} else {
		c.set(conditionAvailable, "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
	}
	after = c.progress(d, s, newest, creates, now)
	c.failure(newest, olds)
	s.Conditions = c.list
	return s, after
}

// conditions is a Deployment's list of conditions being brought up to date.
type conditions struct {
	list []*appsv1.DeploymentCondition
	now  *timestamppb.Timestamp
}

func (c *conditions) get(kind string) *appsv1.DeploymentCondition {
	for _, have := range c.list {
		if have.GetType() == kind {
			return have
		}
	}
	return nil
}

// set changes a condition, unless it says the same already. Its transition time moves with its status only.
func (c *conditions) set(kind, status, reason, message string) {
	have := c.get(kind)
	if have == nil {
		have = &appsv1.DeploymentCondition{Type: kind}
		c.list = append(c.list, have)
	}
	if have.GetStatus() == status && have.GetReason() == reason && have.GetMessage() == message {
		return
	}
	if have.GetStatus() != status {
		have.LastTransitionTime = c.now
	}
	have.Status, have.Reason, have.Message, have.LastUpdateTime = status, reason, message, c.now
}

// touch notes progress under an unchanged condition.
func (c *conditions) touch(kind string) {
	if have := c.get(kind); have != nil {
		have.LastUpdateTime = c.now
	}
}

// progress says how the rollout goes, and when its deadline is due. The deadline reports and never rolls back.
func (c *conditions) progress(d *appsv1.Deployment, s *appsv1.DeploymentStatus, newest *appsv1.ReplicaSet, creates bool, now time.Time) (after time.Duration) {
	if d.GetSpec().ProgressDeadlineSeconds == nil || d.GetMetadata().GetDeletionTimestamp() != nil {
		return 0
	}
	have := c.get(conditionProgressing)
	if d.GetSpec().GetPaused() {
		c.set(conditionProgressing, "Unknown", "DeploymentPaused", "Deployment is paused")
		return 0
	}
	set := fmt.Sprintf("ReplicaSet %q", newest.GetMetadata().GetName())
	before := d.GetStatus()
	old := before.GetReplicas() - before.GetUpdatedReplicas()
	moved := s.GetUpdatedReplicas() > before.GetUpdatedReplicas() || s.GetReplicas()-s.GetUpdatedReplicas() < old ||
		s.GetReadyReplicas() > before.GetReadyReplicas() || s.GetAvailableReplicas() > before.GetAvailableReplicas()
	switch {
	case creates:
		c.set(conditionProgressing, "True", "NewReplicaSetCreated", "Created new replica set "+fmt.Sprintf("%q", newest.GetMetadata().GetName()))
	case complete(d, newest) && s.GetReplicas() == d.GetSpec().GetReplicas():
		c.set(conditionProgressing, "True", "NewReplicaSetAvailable", set+" has successfully progressed.")
		return 0
	case have == nil || have.GetReason() == "DeploymentPaused":
		c.set(conditionProgressing, "True", "FoundNewReplicaSet", "Found new replica set "+fmt.Sprintf("%q", newest.GetMetadata().GetName()))
	case moved:
		c.set(conditionProgressing, "True", "ReplicaSetUpdated", set+" is progressing.")
		c.touch(conditionProgressing)
	case have.GetReason() == "NewReplicaSetAvailable":
		// The template is the one that was rolled out; that a pod of it is down is no rollout.
		if have.GetMessage() == set+" has successfully progressed." {
			return 0
		}
		c.set(conditionProgressing, "True", "ReplicaSetUpdated", set+" is progressing.")
	}
	have = c.get(conditionProgressing)
	if have.GetReason() == "ProgressDeadlineExceeded" {
		return 0
	}
	left := have.GetLastUpdateTime().AsTime().Add(time.Duration(d.GetSpec().GetProgressDeadlineSeconds()) * time.Second).Sub(now)
	if left > 0 {
		return left
	}
	c.set(conditionProgressing, "False", "ProgressDeadlineExceeded", set+" has timed out progressing.")
	return 0
}

// failure passes on what keeps a set from making pods.
func (c *conditions) failure(newest *appsv1.ReplicaSet, olds []*appsv1.ReplicaSet) {
	for _, rs := range append([]*appsv1.ReplicaSet{newest}, olds...) {
		for _, failed := range rs.GetStatus().GetConditions() {
			if failed.GetType() == conditionReplicaFailure && failed.GetStatus() == "True" {
				c.set(conditionReplicaFailure, "True", failed.GetReason(), failed.GetMessage())
				return
			}
		}
	}
	c.list = slices.DeleteFunc(c.list, func(have *appsv1.DeploymentCondition) bool { return have.GetType() == conditionReplicaFailure })
}
