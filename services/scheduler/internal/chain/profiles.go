package chain

import (
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/queue"
	"trireme.dev/services/scheduler/internal/report"
	"trireme.dev/services/scheduler/internal/runtime"
)

// profiles are the frameworks of all profiles and who speaks for each. The queue, which they share, asks them by the
// scheduler that a pod names.
type profiles struct {
	frameworks []*runtime.Framework
	reporters  map[string]*report.Reporter
}

// names of the schedulers that pods may choose.
func (p *profiles) names() []string {
	var out []string
	for _, fw := range p.frameworks {
		out = append(out, fw.Profile())
	}
	return out
}

// of is the framework of a pod; of one that names no profile, the first.
func (p *profiles) of(pod *framework.PodInfo) *runtime.Framework {
	if len(p.frameworks) > 1 {
		name := pod.Pod.GetSpec().GetSchedulerName()
		for _, fw := range p.frameworks {
			if fw.Profile() == name {
				return fw
			}
		}
	}
	return p.frameworks[0]
}

func (p *profiles) reporter(pod *framework.PodInfo) *report.Reporter {
	return p.reporters[p.of(pod).Profile()]
}

func (p *profiles) preEnqueue(pod *framework.PodInfo) *framework.Status {
	return p.of(pod).RunPreEnqueue(pod)
}

func (p *profiles) preEnqueueGroup(group *framework.Queued) *framework.Status {
	if len(group.Pods) == 0 {
		return p.frameworks[0].RunPreEnqueueGroup(group)
	}
	return p.of(group.Pods[0]).RunPreEnqueueGroup(group)
}

// events are what the plugins of all profiles registered. A plugin that several profiles have is asked about a pod only as
// the pod's profile has it.
func (p *profiles) events() map[string][]framework.EventHint {
	out := map[string][]framework.EventHint{}
	for _, fw := range p.frameworks {
		name := fw.Profile()
		for plugin, hints := range fw.Events() {
			for _, h := range hints {
				if hint := h.Hint; len(p.frameworks) > 1 {
					h.Hint = func(pod *framework.PodInfo, change *framework.Change) framework.Hint {
						if pod.Pod.GetSpec().GetSchedulerName() != name {
							return framework.QueueSkip
						}
						if hint == nil {
							return framework.Queue
						}
						return hint(pod, change)
					}
				}
				out[plugin] = append(out[plugin], h)
			}
		}
	}
	return out
}

// reportGated tells people what holds pods back before they are even tried. No event: nothing was attempted.
func (p *profiles) reportGated(g queue.Gated) {
	for _, held := range g.Pods {
		v := report.Verdict{Reason: report.ReasonUnschedulable, Message: held.Status.Message()}
		if gated(held.Pod.Pod) {
			v.Reason = report.ReasonSchedulingGated
		}
		p.reporter(held.Pod).Pod(held.Pod.Pod, v)
	}
	if g.Group != nil && g.Status != nil {
		speaks := p.reporters[p.frameworks[0].Profile()]
		if len(g.Pods) > 0 {
			speaks = p.reporter(g.Pods[0].Pod)
		}
		speaks.Group(g.Group, report.Verdict{Reason: report.ReasonUnschedulable, Message: g.Status.Message()})
	}
}

func gated(pod *corev1.Pod) bool { return len(pod.GetSpec().GetSchedulingGates()) > 0 }
