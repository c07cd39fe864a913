package config

import (
	"strings"
	"time"

	"trireme.dev/services/scheduler/framework"
)

// file is the file's shape: Kubernetes' names, and pointers where absent and zero differ.
type file struct {
	APIVersion                string         `json:"apiVersion"`
	Kind                      string         `json:"kind"`
	Parallelism               *int32         `json:"parallelism"`
	LeaderElection            leaderElection `json:"leaderElection"`
	ClientConnection          clientConn     `json:"clientConnection"`
	EnableProfiling           *bool          `json:"enableProfiling"`
	EnableContentionProfiling *bool          `json:"enableContentionProfiling"`
	PercentageOfNodesToScore  *int32         `json:"percentageOfNodesToScore"`
	PodInitialBackoffSeconds  *int64         `json:"podInitialBackoffSeconds"`
	PodMaxBackoffSeconds      *int64         `json:"podMaxBackoffSeconds"`
	DelayCacheUntilActive     *bool          `json:"delayCacheUntilActive"`
	Profiles                  []profileFile  `json:"profiles"`
	Extenders                 *value         `json:"extenders"`
}

type leaderElection struct {
	LeaderElect       *bool          `json:"leaderElect"`
	LeaseDuration     *time.Duration `json:"leaseDuration"`
	RenewDeadline     *time.Duration `json:"renewDeadline"`
	RetryPeriod       *time.Duration `json:"retryPeriod"`
	ResourceLock      *string        `json:"resourceLock"`
	ResourceName      string         `json:"resourceName"`
	ResourceNamespace string         `json:"resourceNamespace"`
}

type clientConn struct {
	Kubeconfig         *string  `json:"kubeconfig"`
	AcceptContentTypes *string  `json:"acceptContentTypes"`
	ContentType        *string  `json:"contentType"`
	QPS                *float64 `json:"qps"`
	Burst              *int32   `json:"burst"`
}

type profileFile struct {
	SchedulerName            *string        `json:"schedulerName"`
	PercentageOfNodesToScore *int32         `json:"percentageOfNodesToScore"`
	Plugins                  pluginsFile    `json:"plugins"`
	PluginConfig             []pluginConfig `json:"pluginConfig"`
}

type pluginsFile struct {
	PreEnqueue         pluginSet `json:"preEnqueue"`
	QueueSort          pluginSet `json:"queueSort"`
	PreFilter          pluginSet `json:"preFilter"`
	Filter             pluginSet `json:"filter"`
	PostFilter         pluginSet `json:"postFilter"`
	PreScore           pluginSet `json:"preScore"`
	Score              pluginSet `json:"score"`
	Reserve            pluginSet `json:"reserve"`
	Permit             pluginSet `json:"permit"`
	PreBind            pluginSet `json:"preBind"`
	Bind               pluginSet `json:"bind"`
	PostBind           pluginSet `json:"postBind"`
	MultiPoint         pluginSet `json:"multiPoint"`
	PlacementGenerate  pluginSet `json:"placementGenerate"`
	PlacementScore     pluginSet `json:"placementScore"`
	PodGroupPostFilter pluginSet `json:"podGroupPostFilter"`
}

type pluginSet struct {
	Enabled  []pluginFile `json:"enabled"`
	Disabled []pluginFile `json:"disabled"`
}

type pluginFile struct {
	Name   string `json:"name"`
	Weight *int32 `json:"weight"`
}

type pluginConfig struct {
	Name string `json:"name"`
	Args *value `json:"args"`
}

// at returns the set of a point.
func (p *pluginsFile) at(point framework.Point) *pluginSet {
	return map[framework.Point]*pluginSet{
		framework.PointPreEnqueue: &p.PreEnqueue, framework.PointQueueSort: &p.QueueSort, framework.PointPreFilter: &p.PreFilter,
		framework.PointFilter: &p.Filter, framework.PointPostFilter: &p.PostFilter, framework.PointPreScore: &p.PreScore,
		framework.PointScore: &p.Score, framework.PointReserve: &p.Reserve, framework.PointPermit: &p.Permit,
		framework.PointPreBind: &p.PreBind, framework.PointBind: &p.Bind, framework.PointPostBind: &p.PostBind,
		framework.PointPlacementGenerate: &p.PlacementGenerate, framework.PointPlacementScore: &p.PlacementScore,
		framework.PointPodGroupPostFilter: &p.PodGroupPostFilter,
	}[point]
}

// key is how a file spells a point.
func key(point framework.Point) string { return strings.ToLower(string(point[:1])) + string(point[1:]) }
