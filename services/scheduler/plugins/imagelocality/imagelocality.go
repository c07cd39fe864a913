// Package imagelocality prefers nodes that have a pod's images already, the more of the cluster has them the more.
package imagelocality

import (
	"strings"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

// Name of the plugin.
const Name = "ImageLocality"

// What images take on disk counts from the first of these on, and per container up to the second.
const (
	minSize = 23 << 20
	maxSize = 1000 << 20
)

// Plugin is a Score. Make it with New.
type Plugin struct{ handle framework.Handle }

// New returns a Plugin.
func New(h framework.Handle) *Plugin { return &Plugin{h} }

// Name implements framework.Plugin.
func (*Plugin) Name() string { return Name }

// Score implements framework.ScorePlugin: the sizes of the images that are there, each by the share of nodes that have it.
func (p *Plugin) Score(_ *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	nodes := p.handle.Snapshot().Columns()
	var sum int64
	containers := int64(0)
	each(pod, func(image string) {
		containers++
		if size, ok := node.Images[image]; ok {
			sum += scaled(size, nodes.Image(image).Nodes, len(nodes.Nodes))
		}
	})
	return score(sum, containers), nil
}

// ScorePass implements framework.ScorePassPlugin.
func (p *Plugin) ScorePass(_ *framework.CycleState, pod *framework.PodInfo, nodes *framework.Columns, feasible []int32, scores []int64) *framework.Status {
	clear(scores)
	containers := int64(0)
	each(pod, func(image string) {
		containers++
		column := nodes.Image(image)
		if column.Nodes == 0 {
			return
		}
		for k, i := range feasible {
			if size := column.Sizes[i]; size != 0 {
				scores[k] += scaled(size, column.Nodes, len(nodes.Nodes))
			}
		}
	})
	for k, sum := range scores {
		if sum != 0 {
			scores[k] = score(sum, containers)
		}
	}
	return nil
}

func each(pod *framework.PodInfo, fn func(image string)) {
	spec := pod.Pod.GetSpec()
	for _, list := range [][]*corev1.Container{spec.GetInitContainers(), spec.GetContainers()} {
		for _, c := range list {
			fn(tagged(c.GetImage()))
		}
	}
}

// tagged is the name that a node lists an image under: with the tag that a name without one stands for.
func tagged(image string) string {
	if strings.LastIndexByte(image, ':') <= strings.LastIndexByte(image, '/') {
		return image + ":latest"
	}
	return image
}

func scaled(size int64, have, nodes int) int64 {
	return int64(float64(size) * (float64(have) / float64(nodes)))
}

func score(sum, containers int64) int64 {
	most := maxSize * containers
	sum = min(max(sum, minSize), most)
	if most <= minSize {
		return 0
	}
	return framework.MaxScore * (sum - minSize) / (most - minSize)
}

// Sign implements framework.SignPlugin.
func (*Plugin) Sign(pod *framework.PodInfo, signature *framework.Signature) bool {
	if signature.Field("images") {
		each(pod, func(image string) { signature.Text(image) })
	}
	return true
}

// SignEpoch implements framework.SignEpochPlugin: on how many of how many nodes the images are.
func (*Plugin) SignEpoch(pod *framework.PodInfo, nodes *framework.Snapshot) uint64 {
	columns := nodes.Columns()
	epoch := uint64(len(columns.Nodes))
	each(pod, func(image string) { epoch = epoch*1_000_003 + uint64(columns.Image(image).Nodes) })
	return epoch
}
