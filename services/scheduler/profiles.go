package scheduler

import (
	"fmt"
	"log/slog"
	"os"
	"slices"

	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/config"
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
		if err := c.read(); err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		loaded, err := config.Load(c.ConfigFile, c.configuration, known, c.SchedulerName)
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

// read reads the configuration file, unless a record had what stands in it.
func (c *Config) read() (err error) {
	if c.configuration == nil {
		c.configuration, err = os.ReadFile(c.ConfigFile)
	}
	return err
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
