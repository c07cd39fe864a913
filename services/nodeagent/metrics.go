package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"trireme.dev/kit/telemetry"
	"trireme.dev/services/nodeagent/internal/devices"
	"trireme.dev/services/nodeagent/internal/podworker"
)

// nodeMetrics show what one node has and runs. One process may be several nodes, so each line names its own.
type nodeMetrics struct {
	node    attribute.KeyValue
	pods    *podworker.Manager
	plugins *devices.Manager
}

func newNodeMetrics(node string, pods *podworker.Manager, plugins *devices.Manager) *nodeMetrics {
	return &nodeMetrics{attribute.String("node", node), pods, plugins}
}

// run shows them to who reads metrics until ctx ends.
func (m *nodeMetrics) run(ctx context.Context) error {
	i := telemetry.NewInstruments("trireme.dev/services/nodeagent")
	name := i.Gauge("kubelet_node_name", "The node's name; the value is always 1.")
	pods := i.Gauge("kubelet_running_pods", "Pods that have a sandbox.")
	containers := i.Gauge("kubelet_running_containers", "Containers, by state.")
	held := i.Gauge("trireme_node_devices", "Devices of the node, by resource: capacity, allocatable (healthy), allocated (held by pods).")
	stop := i.Observe(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(name, 1, metric.WithAttributes(m.node))
		counts := m.pods.Counts()
		o.ObserveInt64(pods, counts.Pods, metric.WithAttributes(m.node))
		for state, n := range counts.Containers {
			o.ObserveInt64(containers, n, metric.WithAttributes(m.node, attribute.String("container_state", state)))
		}
		allocated := m.plugins.Allocated()
		for resource, r := range m.plugins.Resources() {
			for state, n := range map[string]int64{"capacity": r.Capacity, "allocatable": r.Allocatable, "allocated": allocated[resource]} {
				o.ObserveInt64(held, n, metric.WithAttributes(m.node, attribute.String("resource", resource), attribute.String("state", state)))
			}
		}
		return nil
	}, name, pods, containers, held)
	defer stop()
	<-ctx.Done()
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
