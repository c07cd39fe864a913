// Package config reads the scheduler's configuration file, in the shape of Kubernetes' KubeSchedulerConfiguration, and
// works out which plugins each profile runs at which point. It is strict: what it does not know, what says the same thing
// twice, and what could not have been meant is an error with the line it stands on, all of them at once.
//
// It is pure: bytes and the plugins that there are in, profiles out. It builds no plugin and opens no file.
package config

import (
	"slices"
	"time"

	"trireme.dev/services/scheduler/framework"
)

// The apiVersions and kinds that a file may have.
const (
	APIVersion           = "scheduler.trireme.dev/v1"
	Kind                 = "SchedulerConfiguration"
	kubernetesAPIVersion = "kubescheduler.config.k8s.io/v1"
	kubernetesKind       = "KubeSchedulerConfiguration"
)

// Plugin is a plugin that a file may enable.
type Plugin struct {
	// Name that files know it by.
	Name string
	// Points that it implements.
	Points []framework.Point
	// Weight of its score and placement score in the default profile; 0 where it has neither.
	Weight int64
	// Args returns a pointer to its default arguments, to decode a file into; it may have a method Validate() error. Nil
	// where it takes none.
	Args func() any
	// Optional plugins run only where a file enables them; the others are the default profile, in their order.
	Optional bool
}

func (p *Plugin) has(point framework.Point) bool { return slices.Contains(p.Points, point) }

// Configuration is what a file says. Nil means that it does not say.
type Configuration struct {
	// Parallelism of filtering and scoring.
	Parallelism *int32
	// LeaderElection by a Lease.
	LeaderElection LeaderElection
	// PodInitialBackoff and PodMaxBackoff bound the pause after a failed attempt.
	PodInitialBackoff, PodMaxBackoff *time.Duration
	// Profiles by which pods may choose, at least one.
	Profiles []Profile
	// Notices name what was accepted and has no effect here, each with its place.
	Notices []string
}

// LeaderElection is how one of several schedulers is chosen. Nil and empty mean that the file does not say.
type LeaderElection struct {
	LeaderElect                               *bool
	LeaseDuration, RenewDeadline, RetryPeriod *time.Duration
	ResourceName, ResourceNamespace           string
}

// Profile is a way to schedule, worked out: nothing in it is left to a default.
type Profile struct {
	// SchedulerName by which pods choose it.
	SchedulerName string
	// PercentageOfNodesToScore; 0 considers all nodes.
	PercentageOfNodesToScore int32
	// Plugins that run at any point, each once, in the order in which they are built.
	Plugins []Enabled
	// Points name the plugins of every point, in the order in which they run there.
	Points map[framework.Point][]string
}

// Enabled is a plugin of a profile.
type Enabled struct {
	Name string
	// Weight of its score and PlacementWeight of its placement score; 0 where it has none.
	Weight, PlacementWeight int64
	// Args are of the type that Plugin.Args returns; nil where it takes none.
	Args any
}

// points that a file may name, in Kubernetes' order.
var points = []framework.Point{
	framework.PointPreEnqueue, framework.PointQueueSort, framework.PointPreFilter, framework.PointFilter, framework.PointPostFilter,
	framework.PointPreScore, framework.PointScore, framework.PointReserve, framework.PointPermit, framework.PointPreBind,
	framework.PointBind, framework.PointPostBind, framework.PointPlacementGenerate, framework.PointPlacementScore,
	framework.PointPodGroupPostFilter,
}

// elsewhere are Kubernetes' own plugins that Trireme has not: a file may disable them, which they are.
var elsewhere = []string{"DynamicResources", "NodeDeclaredFeatures"}

// Default is the configuration of no file: one profile of that name, with all plugins that are not optional.
func Default(schedulerName string, plugins []Plugin) Configuration {
	r := resolver{plugins: plugins, fail: func(string, string, ...any) {}}
	return Configuration{Profiles: []Profile{r.profile(schedulerName, 0, &profileFile{})}}
}
