package plan

import (
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// The phases of a pod.
const (
	Pending   = "Pending"
	Running   = "Running"
	Succeeded = "Succeeded"
	Failed    = "Failed"
)

// Terminal reports whether a phase is for good.
func Terminal(phase string) bool { return phase == Succeeded || phase == Failed }

// Ready reports whether a status says that the pod is Ready.
func Ready(status *corev1.PodStatus) bool {
	for _, c := range status.GetConditions() {
		if c.GetType() == "Ready" {
			return c.GetStatus() == "True"
		}
	}
	return false
}

// Phase sums up container statuses. restart names containers that are being replaced, whatever their restart policy.
// final says that the pod is at its end and nothing will be started again.
func Phase(pod *corev1.Pod, status *corev1.PodStatus, restart map[string]bool, final bool) string {
	var unfinished, running, waiting, stopped, succeeded, unknown, restarting int
	sidecarsPending := false
	for _, c := range pod.GetSpec().GetInitContainers() {
		s := statusOf(status, c.GetName())
		if IsSidecar(c) {
			switch state := s.GetState(); {
			case state.GetRunning() != nil:
				running++
			case state.GetTerminated() != nil:
			case state.GetWaiting() != nil && s.GetLastState().GetTerminated() != nil:
			case state.GetWaiting() != nil:
				waiting++
				sidecarsPending = true
			default:
				unknown++
				sidecarsPending = true
			}
			continue
		}
		ended := stoppedState(s)
		switch {
		case ended == nil:
			unfinished++
		case ended.GetExitCode() == 0 && s.GetState().GetTerminated() != nil:
		case ended.GetExitCode() != 0 && !restart[c.GetName()] && (final || !shouldRestartInit(pod, c, int(ended.GetExitCode()))):
			return Failed
		default:
			unfinished++
		}
	}
	active := false
	for _, c := range pod.GetSpec().GetContainers() {
		s := statusOf(status, c.GetName())
		ended := stoppedState(s)
		switch {
		case s.GetState().GetRunning() != nil:
			running++
			active = true
		case ended != nil:
			active = true
			stopped++
			if ended.GetExitCode() == 0 {
				succeeded++
			}
			if restart[c.GetName()] || shouldRestart(pod, c, int(ended.GetExitCode())) {
				restarting++
			}
		case s.GetState().GetWaiting() != nil:
			waiting++
		default:
			unknown++
		}
	}
	switch {
	case unfinished > 0 || (sidecarsPending && !active):
		return Pending
	case waiting > 0:
		return Pending
	case running > 0 && unknown == 0:
		return Running
	case running == 0 && stopped > 0 && unknown == 0:
		switch {
		case !final && restarting > 0:
			return Running
		case stopped == succeeded:
			return Succeeded
		}
		return Failed
	}
	return Pending
}

// stoppedState is how a container ended that does not run now: a waiting one that ran before counts as stopped.
func stoppedState(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if t := s.GetState().GetTerminated(); t != nil {
		return t
	}
	if s.GetState().GetWaiting() != nil {
		return s.GetLastState().GetTerminated()
	}
	return nil
}

func statusOf(status *corev1.PodStatus, name string) *corev1.ContainerStatus {
	for _, list := range [][]*corev1.ContainerStatus{status.GetContainerStatuses(), status.GetInitContainerStatuses()} {
		for _, s := range list {
			if s.GetName() == name {
				return s
			}
		}
	}
	return nil
}
