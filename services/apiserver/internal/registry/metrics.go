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
		sizes:  instruments.Histogram("apiserver_watch_events_sizes", "Bytes of events sent to watchers, by resource.", eventSizes),
	}
}

// sent counts an event that goes to a watcher.
func (m *metrics) sent(ctx context.Context, event []byte, of labels) {
	m.events.Add(ctx, 1, of.add...)
	m.sizes.Record(ctx, float64(len(event)), of.record...)
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
