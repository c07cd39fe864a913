package podworker

import (
	"log/slog"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/kit/telemetry"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/nodeagent/internal/plan"
)

// publish computes the pod's status and has it sent, where it changed.
func (w *worker) publish(pod *corev1.Pod) {
	past := w.past
	if foreignChanged(past, pod.GetStatus()) {
		past = withForeign(past, pod.GetStatus())
	}
	in := w.input(pod)
	in.Past = past
	status := plan.Status(plan.StatusInput{
		Input: in, Waiting: w.waiting, Phase: w.phase, Reason: w.reason, Message: w.message, Final: w.final,
		HostIPs: w.m.cfg.Node().IPs, RuntimeName: w.m.cfg.RuntimeName, Now: time.Now(),
	})
	for _, list := range [][]*corev1.ContainerStatus{status.GetInitContainerStatuses(), status.GetContainerStatuses()} {
		for _, c := range list {
			c.AllocatedResourcesStatus = w.m.deps.Devices.Health(w.uid, c.GetName())
		}
	}
	if before := w.past.GetPhase(); before != status.GetPhase() {
		w.log.LogAttrs(w.trail.own, slog.LevelInfo, "pod phase changed", slog.String(telemetry.KeyPhase, status.GetPhase()))
	}
	w.past = status
	w.m.status.Set(w.trail.status(), pod, status)
	w.seenRunning(status)
}

// seenRunning notes that a pod is up for the first time: from now on what happens to it is its later life.
func (w *worker) seenRunning(status *corev1.PodStatus) {
	if !w.trail.starting {
		return
	}
	if !w.runs && status.GetPhase() == plan.Running {
		w.runs = true
		w.trail.running(w.pulls+initTime(status), w.received)
	}
	if plan.Ready(status) {
		w.trail.starting = false
		return
	}
	// What a wait that begins now is for, unless something better is known.
	if len(w.busy) == 0 && w.trail.reason == "" {
		for _, c := range status.GetContainerStatuses() {
			w.trail.wait(c.GetState().GetWaiting().GetReason())
		}
	}
}

// initTime is how long init containers ran.
func initTime(status *corev1.PodStatus) time.Duration {
	var sum time.Duration
	for _, c := range status.GetInitContainerStatuses() {
		if t := c.GetState().GetTerminated(); t != nil {
			sum += t.GetFinishedAt().AsTime().Sub(t.GetStartedAt().AsTime())
		}
	}
	return sum
}

// withForeign takes over the conditions that others wrote.
func withForeign(past, stored *corev1.PodStatus) *corev1.PodStatus {
	out := &corev1.PodStatus{}
	proto.Merge(out, past)
	out.Conditions = nil
	have := map[string]bool{}
	for _, c := range stored.GetConditions() {
		if !plan.Owned(c.GetType()) {
			out.Conditions = append(out.Conditions, c)
			have[c.GetType()] = true
		}
	}
	for _, c := range past.GetConditions() {
		// A pod that came without a scheduler has this one from us.
		if plan.Owned(c.GetType()) || (c.GetType() == "PodScheduled" && !have[c.GetType()]) {
			out.Conditions = append(out.Conditions, c)
		}
	}
	return out
}

func foreignChanged(past, stored *corev1.PodStatus) bool {
	for _, c := range stored.GetConditions() {
		if plan.Owned(c.GetType()) {
			continue
		}
		same := func(p *corev1.PodCondition) bool { return proto.Equal(c, p) }
		if !slices.ContainsFunc(past.GetConditions(), same) {
			return true
		}
	}
	return false
}
