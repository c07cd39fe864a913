package disruption

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
)

// deletionTimeout is how long an evicted pod may show no sign of ending before it counts again.
const deletionTimeout = 2 * time.Minute

// scales says how many pods their controllers mean to be there.
type scales struct {
	// total of the controllers' replicas.
	total int32
	// unmanaged pods have no controller; they are not meant to be there.
	unmanaged []string
	// err where a pod's controller is gone, or of a kind that has no number of replicas.
	err error
}

// Count is a budget's status for the pods that it covers. again is when it is to be counted anew although nothing
// happens, zero for never; lost are evicted pods that did not go.
func Count(budget *policyv1.PodDisruptionBudget, pods []*corev1.Pod, meant scales, now time.Time) (status *policyv1.PodDisruptionBudgetStatus, again time.Time, lost []*corev1.Pod) {
	generation := budget.GetMetadata().GetGeneration()
	expected, desired, err := want(budget.GetSpec(), int32(len(pods)), meant)
	if err != nil {
		// Nothing may go while nobody knows how many there should be.
		status = clone(budget.GetStatus())
		status.DisruptionsAllowed, status.ObservedGeneration = 0, generation
		status.Conditions = condition(budget, "False", "SyncFailed", err.Error(), now)
		return status, time.Time{}, nil
	}
	status = &policyv1.PodDisruptionBudgetStatus{ObservedGeneration: generation, ExpectedPods: expected, DesiredHealthy: desired}
	disrupted := map[string]*timestamppb.Timestamp{}
	for _, pod := range pods {
		meta := pod.GetMetadata()
		at := budget.GetStatus().GetDisruptedPods()[meta.GetName()]
		switch {
		case meta.GetDeletionTimestamp() != nil:
			continue // it goes: it counts no more, and need not be remembered
		case at != nil && now.Before(at.AsTime().Add(deletionTimeout)):
			disrupted[meta.GetName()] = at
			if expires := at.AsTime().Add(deletionTimeout); again.IsZero() || expires.Before(again) {
				again = expires
			}
			continue
		case at != nil:
			lost = append(lost, pod)
		}
		if ready(pod) {
			status.CurrentHealthy++
		}
	}
	if len(disrupted) > 0 {
		status.DisruptedPods = disrupted
	}
	// A budget that covers nothing yet allows nothing: the first pods are there before they are counted.
	if expected > 0 {
		status.DisruptionsAllowed = max(0, status.GetCurrentHealthy()-desired)
	}
	allowed, reason := "False", "InsufficientPods"
	if status.GetDisruptionsAllowed() > 0 {
		allowed, reason = "True", "SufficientPods"
	}
	status.Conditions = condition(budget, allowed, reason, "", now)
	return status, again, lost
}

// want is how many pods are meant to be there, and how many of them must be healthy.
func want(spec *policyv1.PodDisruptionBudgetSpec, pods int32, meant scales) (expected, desired int32, err error) {
	switch least, most := spec.GetMinAvailable(), spec.GetMaxUnavailable(); {
	case most != nil:
		if meant.err != nil {
			return 0, 0, meant.err
		}
		missing, err := share(most, meant.total)
		if err != nil {
			return 0, 0, fmt.Errorf("spec.maxUnavailable: %w", err)
		}
		return meant.total, max(0, meant.total-missing), nil
	case least == nil:
		return 0, 0, nil
	case strings.HasSuffix(least.GetStringValue(), "%"):
		if meant.err != nil {
			return 0, 0, meant.err
		}
		desired, err := share(least, meant.total)
		if err != nil {
			return 0, 0, fmt.Errorf("spec.minAvailable: %w", err)
		}
		return meant.total, desired, nil
	default:
		desired, err := share(least, 0)
		if err != nil {
			return 0, 0, fmt.Errorf("spec.minAvailable: %w", err)
		}
		return pods, desired, nil
	}
}

// share is a number, or a percentage of total, rounded up.
func share(v *structpb.Value, total int32) (int32, error) {
	switch v.GetKind().(type) {
	case *structpb.Value_NumberValue:
		return int32(v.GetNumberValue()), nil
	case *structpb.Value_StringValue:
		percent, err := strconv.ParseInt(strings.TrimSuffix(v.GetStringValue(), "%"), 10, 32)
		if err == nil && strings.HasSuffix(v.GetStringValue(), "%") {
			return int32(math.Ceil(float64(total) * float64(percent) / 100)), nil
		}
	}
	return 0, fmt.Errorf("%v: want a number or a percentage", v)
}

// condition replaces DisruptionAllowed among the budget's conditions.
func condition(budget *policyv1.PodDisruptionBudget, allowed, reason, message string, now time.Time) []*metav1.Condition {
	next := &metav1.Condition{
		Type: "DisruptionAllowed", Status: allowed, Reason: reason, Message: message,
		ObservedGeneration: budget.GetMetadata().GetGeneration(), LastTransitionTime: timestamppb.New(now.Truncate(time.Second)),
	}
	var out []*metav1.Condition
	for _, old := range budget.GetStatus().GetConditions() {
		if old.GetType() != next.Type {
			out = append(out, old)
		} else if old.GetStatus() == next.Status {
			next.LastTransitionTime = old.GetLastTransitionTime()
		}
	}
	return append(out, next)
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.GetStatus().GetConditions() {
		if c.GetType() == "Ready" {
			return c.GetStatus() == "True"
		}
	}
	return false
}
