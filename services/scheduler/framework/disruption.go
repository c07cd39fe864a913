package framework

// The condition that tells of a pod, or of a group as a whole, that it is being taken away for the sake of others, and its reason
// where the scheduler does it.
const (
	ConditionDisruptionTarget   = "DisruptionTarget"
	ReasonPreemptionByScheduler = "PreemptionByScheduler"
)

// Preempted reports whether the pod is on its way out because the scheduler made it go.
func (p *PodInfo) Preempted() bool {
	if !p.Terminating() {
		return false
	}
	for _, c := range p.Pod.GetStatus().GetConditions() {
		if c.GetType() == ConditionDisruptionTarget {
			return c.GetStatus() == "True" && c.GetReason() == ReasonPreemptionByScheduler
		}
	}
	return false
}
