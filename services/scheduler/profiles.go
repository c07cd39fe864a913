package scheduler

import (
	"fmt"
	"log/slog"
	"os"
	"slices"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/config"
	"trireme.dev/services/scheduler/internal/queue"
	"trireme.dev/services/scheduler/internal/report"
	"trireme.dev/services/scheduler/internal/runtime"
	"trireme.dev/services/scheduler/plugins"
)

// configure works out the profiles: from the configuration file where there is one, whose word goes before that of flags.
// Plugins of third parties run by default where there is no file, and where a file enables them.
func (c *Config) configure(logger *slog.Logger, extra []framework.Factory) ([]framework.Profile, error) {
	factories := slices.Concat(plugins.Registry(), extra)
	var known []config.Plugin
	for i, f := range factories {
		if slices.ContainsFunc(known, func(p config.Plugin) bool { return p.Name == f.Name }) {
			return nil, fmt.Errorf("two plugins have the name %s", f.Name)
		}
		known = append(known, config.Plugin{
			Name: f.Name, Points: f.Points, Weight: f.Weight, Args: f.Args,
			Optional: c.ConfigFile != "" && i >= len(factories)-len(extra),
		})
	}
	said := config.Default(c.SchedulerName, known)
	if c.ConfigFile != "" {
		data, err := os.ReadFile(c.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		loaded, err := config.Load(c.ConfigFile, data, known, c.SchedulerName)
		if err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		said = *loaded
	}
	for _, notice := range said.Notices {
		logger.Warn("configuration without effect", slog.String("notice", notice))
	}
	c.take(&said)
	var out []framework.Profile
	for _, p := range said.Profiles {
		profile := framework.Profile{
			SchedulerName: p.SchedulerName, PercentageOfNodesToScore: p.PercentageOfNodesToScore, Order: p.Points,
		}
		for _, e := range p.Plugins {
			f := factories[slices.IndexFunc(factories, func(f framework.Factory) bool { return f.Name == e.Name })]
			profile.Plugins = append(profile.Plugins, framework.Registration{
				Weight: max(e.Weight, e.PlacementWeight), PlacementWeight: e.PlacementWeight,
				New: f.Registration(e.Args, 0).New,
			})
			if e.Weight != 0 {
				profile.Plugins[len(profile.Plugins)-1].Weight = e.Weight
			}
		}
		out = append(out, profile)
	}
	return out, nil
}

// take takes over what a file says.
func (c *Config) take(said *config.Configuration) {
	set(&c.InitialBackoff, said.PodInitialBackoff)
	set(&c.MaxBackoff, said.PodMaxBackoff)
	l := said.LeaderElection
	set(&c.LeaderElect, l.LeaderElect)
	set(&c.lease.LeaseDuration, l.LeaseDuration)
	set(&c.lease.RenewDeadline, l.RenewDeadline)
	set(&c.lease.RetryPeriod, l.RetryPeriod)
	c.lease.Name, c.lease.Namespace = leaseName, l.ResourceNamespace
	if l.ResourceName != "" {
		c.lease.Name = l.ResourceName
	}
}

func set[T any](field, said *T) {
	if said != nil {
		*field = *said
	}
}

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
