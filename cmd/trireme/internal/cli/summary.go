package cli

import (
	"trireme.dev/cmd/trireme/internal/cli/table"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// summary is a cluster in numbers.
type summary struct {
	ready, running int
	gpus, usedGPUs int64
}

func summarize(nodes []*corev1.Node, pods []*corev1.Pod) summary {
	var s summary
	for _, n := range nodes {
		s.gpus += table.GPUs(n.GetStatus().GetAllocatable())
		for _, condition := range n.GetStatus().GetConditions() {
			if condition.GetType() == "Ready" && condition.GetStatus() == "True" {
				s.ready++
			}
		}
	}
	for _, used := range table.UsedGPUs(pods) {
		s.usedGPUs += used
	}
	for _, p := range pods {
		if p.GetStatus().GetPhase() == "Running" {
			s.running++
		}
	}
	return s
}
