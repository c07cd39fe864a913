package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"trireme.dev/client/metrics"
	"trireme.dev/services/nodeagent/internal/devices"
	"trireme.dev/services/nodeagent/internal/podworker"
)

// nodeMetrics show what one node has and runs. One process may be several nodes, so each line names its own.
type nodeMetrics struct {
	node    string
	pods    *podworker.Manager
	plugins *devices.Manager
}

func newNodeMetrics(node string, pods *podworker.Manager, plugins *devices.Manager) *nodeMetrics {
	return &nodeMetrics{node, pods, plugins}
}

// run shows them to who reads metrics until ctx ends.
func (m *nodeMetrics) run(ctx context.Context) error {
	metrics.UntilDone(ctx,
		metrics.Gauge("kubelet_node_name", "The node's name; the value is always 1.", func(report func(float64, ...string)) {
			report(1, "node", m.node)
		}),
		metrics.Gauge("kubelet_running_pods", "Pods that have a sandbox.", func(report func(float64, ...string)) {
			report(float64(m.pods.Counts().Pods), "node", m.node)
		}),
		metrics.Gauge("kubelet_running_containers", "Containers, by state.", func(report func(float64, ...string)) {
			for state, n := range m.pods.Counts().Containers {
				report(float64(n), "node", m.node, "container_state", state)
			}
		}),
		metrics.Gauge("trireme_node_devices", "Devices of the node, by resource: capacity, allocatable (healthy), allocated (held by pods).",
			func(report func(float64, ...string)) {
				allocated := m.plugins.Allocated()
				for resource, r := range m.plugins.Resources() {
					report(float64(r.Capacity), "node", m.node, "resource", resource, "state", "capacity")
					report(float64(r.Allocatable), "node", m.node, "resource", resource, "state", "allocatable")
					report(float64(allocated[resource]), "node", m.node, "resource", resource, "state", "allocated")
				}
			}))
	return nil
}

// readyTimeout bounds how long a runtime may take to answer.
const readyTimeout = 2 * time.Second

// Ready says whether every node is registered and its runtime answers; it asks the runtimes.
func (a *Agent) Ready() error {
	a.mu.Lock()
	nodes := a.nodes
	a.mu.Unlock()
	if nodes == nil {
		return errors.New("not running yet")
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	var errs []error
	for _, n := range nodes {
		if !n.self.Registered() {
			errs = append(errs, fmt.Errorf("node %s is not registered yet", n.served.Name))
			continue
		}
		if _, err := n.engine.Info(ctx); err != nil {
			errs = append(errs, fmt.Errorf("runtime of node %s: %w", n.served.Name, err))
		}
	}
	return errors.Join(errs...)
}
