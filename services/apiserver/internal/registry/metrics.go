package registry

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/metric"

	"trireme.dev/client/kind"
	instruments "trireme.dev/client/metrics"
)

// eventSizes are Kubernetes' bounds in bytes.
var eventSizes = []float64{1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072}

// metrics count what watchers are sent.
type metrics struct {
	events metric.Int64Counter
	sizes  metric.Float64Histogram
}

func newMetrics() metrics {
	return metrics{
		events: instruments.Counter("apiserver_watch_events_total", "Events sent to watchers, by resource."),
		sizes:  instruments.Histogram("apiserver_watch_events_sizes", "Bytes of events encoded for watchers, by resource.", eventSizes),
	}
}

// counted tells of events sent to one watcher.
func (r *Resource) counted(ctx context.Context, events int64) {
	if events > 0 {
		r.registry.metrics.events.Add(ctx, events, r.labels.add...)
	}
}

// measured tells of an event's size; once however many it is sent to: of a hundred watchers, each event would otherwise
// cost as much as encoding it.
func (r *Resource) measured(ctx context.Context, event [][]byte) {
	size := 0
	for _, part := range event {
		size += len(part)
	}
	r.registry.metrics.sizes.Record(ctx, float64(size), r.labels.record...)
}

// Group is what Kubernetes calls a kind's group: that of manifests, empty for core.
func Group(k *kind.Kind) string {
	group, _, found := strings.Cut(k.APIVersions[0], "/")
	if !found {
		return ""
	}
	return group
}

// labels of a kind, made once.
type labels struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func labelsOf(k *kind.Kind) labels {
	set := instruments.Labels("group", Group(k), "version", k.Version, "resource", k.Plural)
	return labels{add: []metric.AddOption{set}, record: []metric.RecordOption{set}}
}
