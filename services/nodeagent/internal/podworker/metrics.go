package podworker

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	instruments "trireme.dev/client/metrics"
	"trireme.dev/services/nodeagent/internal/runtime"
)

// Bounds in seconds are Kubernetes'.
var (
	defaultBounds  = instruments.DefaultBounds()
	podStartBounds = []float64{
		0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
	}
)

// metrics under the kubelet's names.
type metrics struct {
	workerStart, podStart, podStartSLI, worker metric.Float64Histogram
	relist, relistInterval                     metric.Float64Histogram
	startedPods, startedPodErrors              metric.Int64Counter
	startedContainers, startedContainerErrors  metric.Int64Counter
	operations                                 map[string][]metric.RecordOption
}

func newMetrics() *metrics {
	m := &metrics{
		workerStart: instruments.Histogram("kubelet_pod_worker_start_duration_seconds",
			"From a pod being seen to its worker beginning.", defaultBounds),
		podStart: instruments.Histogram("kubelet_pod_start_duration_seconds",
			"From a pod being seen for the first time to its running.", podStartBounds),
		podStartSLI: instruments.Histogram("kubelet_pod_start_sli_duration_seconds",
			"From a pod's creation to its running, without pulls of images and init containers.", podStartBounds),
		worker:         instruments.Histogram("kubelet_pod_worker_duration_seconds", "Duration of syncs of a pod, by type.", defaultBounds),
		relist:         instruments.Histogram("kubelet_pleg_relist_duration_seconds", "Duration of a look at all pods of the runtime.", defaultBounds),
		relistInterval: instruments.Histogram("kubelet_pleg_relist_interval_seconds", "Time between two such looks.", defaultBounds),
		startedPods:    instruments.Counter("kubelet_started_pods_total", "Sandboxes of pods made."),
		startedPodErrors: instruments.Counter("kubelet_started_pods_errors_total",
			"Sandboxes of pods that could not be made."),
		startedContainers: instruments.Counter("kubelet_started_containers_total", "Containers started, by type."),
		startedContainerErrors: instruments.Counter("kubelet_started_containers_errors_total",
			"Containers that could not be started, by type and reason."),
		operations: map[string][]metric.RecordOption{},
	}
	for _, op := range []string{opCreate, opSync, opTerminate} {
		m.operations[op] = []metric.RecordOption{instruments.Labels("operation_type", op)}
	}
	return m
}

func (m *metrics) sync(ctx context.Context, operation string, took time.Duration) {
	m.worker.Record(ctx, took.Seconds(), m.operations[operation]...)
}

// container counts the start of a container; code is why it failed, empty where it did not.
func (m *metrics) container(ctx context.Context, init bool, code string) {
	kind := "container"
	if init {
		kind = "init_container"
	}
	if code == "" {
		m.startedContainers.Add(ctx, 1, instruments.Labels("container_type", kind))
		return
	}
	m.startedContainerErrors.Add(ctx, 1, instruments.Labels("container_type", kind, "code", code))
}

// sandbox counts the making of a sandbox.
func (m *metrics) sandbox(ctx context.Context, err error) {
	if err == nil {
		m.startedPods.Add(ctx, 1)
		return
	}
	m.startedPodErrors.Add(ctx, 1)
}

// Counts are of what the workers have last seen of the runtime.
type Counts struct {
	// Pods with a sandbox, and containers by state, as the kubelet calls the states.
	Pods       int64
	Containers map[string]int64
}

// Counts sums up what the workers have seen.
func (m *Manager) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := Counts{Containers: map[string]int64{"created": 0, "running": 0, "exited": 0, "unknown": 0}}
	for _, w := range m.workers {
		w.mu.Lock()
		if w.counted.Sandbox {
			out.Pods++
		}
		for state, n := range w.counted.Containers {
			out.Containers[state] += n
		}
		w.mu.Unlock()
	}
	return out
}

// counted is one pod's part in Counts.
type counted struct {
	Sandbox    bool
	Containers map[string]int64
}

func countsOf(p *runtime.Pod) counted {
	if p == nil {
		return counted{}
	}
	out := counted{Sandbox: p.Sandbox != nil, Containers: map[string]int64{}}
	for _, c := range p.Containers {
		out.Containers[stateNames[c.State]]++
	}
	return out
}

var stateNames = map[runtime.ContainerState]string{
	runtime.StateUnknown: "unknown", runtime.StateCreated: "created", runtime.StateRunning: "running", runtime.StateExited: "exited",
}
