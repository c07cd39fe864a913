package table

import (
	"fmt"
	"time"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// PodSummary is a pod in the few words of a table.
type PodSummary struct {
	// Ready of Total containers are ready.
	Ready, Total int
	// Status is the reason that says most: CrashLoopBackOff rather than Running.
	Status string
	// Restarts of all containers, and when the last was.
	Restarts    int
	LastRestart time.Time
}

// SummaryOf finds the words for a pod: the phase or the pod's own reason, then what its init containers wait for, then
// what its containers wait for or ended with, then whether it is being deleted.
func SummaryOf(p *corev1.Pod) PodSummary {
	s := PodSummary{Total: len(p.GetSpec().GetContainers()), Status: p.GetStatus().GetPhase()}
	if r := p.GetStatus().GetReason(); r != "" {
		s.Status = r
	}
	if s.Status == "" {
		s.Status = "Unknown"
	}
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == "PodScheduled" && c.GetReason() == "SchedulingGated" {
			s.Status = "SchedulingGated"
		}
	}
	initializing := s.initContainers(p)
	if !initializing || conditionTrue(p, "Initialized") {
		s.containers(p)
	}
	if p.GetMetadata().GetDeletionTimestamp() != nil {
		switch {
		case p.GetStatus().GetReason() == "NodeLost":
			s.Status = "Unknown"
		case p.GetStatus().GetPhase() != "Succeeded" && p.GetStatus().GetPhase() != "Failed":
			s.Status = "Terminating"
		}
	}
	return s
}

func (s *PodSummary) restarted(c *corev1.ContainerStatus) {
	s.Restarts += int(c.GetRestartCount())
	if t := c.GetLastState().GetTerminated().GetFinishedAt(); t != nil && t.AsTime().After(s.LastRestart) {
		s.LastRestart = t.AsTime()
	}
}

// initContainers reports whether an init container is still to end well.
func (s *PodSummary) initContainers(p *corev1.Pod) bool {
	sidecars := map[string]bool{}
	for _, c := range p.GetSpec().GetInitContainers() {
		if c.GetRestartPolicy() == "Always" {
			sidecars[c.GetName()] = true
			s.Total++
		}
	}
	for i, c := range p.GetStatus().GetInitContainerStatuses() {
		s.restarted(c)
		if sidecars[c.GetName()] && c.GetReady() {
			s.Ready++
		}
		ended, waiting := c.GetState().GetTerminated(), c.GetState().GetWaiting()
		switch {
		case ended != nil && ended.GetExitCode() == 0, sidecars[c.GetName()] && c.GetStarted():
			continue
		case ended != nil:
			s.Status = "Init:" + endReason(ended)
		case waiting.GetReason() != "" && waiting.GetReason() != "PodInitializing":
			s.Status = "Init:" + waiting.GetReason()
		default:
			s.Status = fmt.Sprintf("Init:%d/%d", i, len(p.GetSpec().GetInitContainers()))
		}
		return true
	}
	return false
}

func (s *PodSummary) containers(p *corev1.Pod) {
	running := false
	// Once the pod runs, restarts on the way there no longer matter, but those of sidecars do.
	s.Restarts, s.LastRestart = 0, time.Time{}
	for i, c := range p.GetSpec().GetInitContainers() {
		if statuses := p.GetStatus().GetInitContainerStatuses(); c.GetRestartPolicy() == "Always" && i < len(statuses) {
			s.restarted(statuses[i])
		}
	}
	all := p.GetStatus().GetContainerStatuses()
	// The first container that has something to say has the last word.
	for i := len(all) - 1; i >= 0; i-- {
		c := all[i]
		s.restarted(c)
		state := c.GetState()
		switch {
		case state.GetWaiting().GetReason() != "":
			s.Status = state.GetWaiting().GetReason()
		case state.GetTerminated() != nil:
			s.Status = endReason(state.GetTerminated())
		case state.GetRunning() != nil && c.GetReady():
			running = true
			s.Ready++
		}
	}
	if s.Status == "Completed" && running {
		if s.Status = "NotReady"; conditionTrue(p, "Ready") {
			s.Status = "Running"
		}
	}
}

func endReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.GetReason() != "":
		return t.GetReason()
	case t.GetSignal() != 0:
		return fmt.Sprintf("Signal:%d", t.GetSignal())
	}
	return fmt.Sprintf("ExitCode:%d", t.GetExitCode())
}

func conditionTrue(p *corev1.Pod, name string) bool {
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == name {
			return c.GetStatus() == "True"
		}
	}
	return false
}
