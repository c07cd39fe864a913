package registry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"trireme.dev/client/kind"
	"trireme.dev/kit/telemetry"
)

// eventSizes are Kubernetes' bounds in bytes.
var eventSizes = []float64{1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072}

// metrics count what watchers are sent.
type metrics struct {
	events metric.Int64Counter
	sizes  metric.Float64Histogram
}

func newMetrics() metrics {
	i := telemetry.NewInstruments("trireme.dev/services/apiserver/internal/registry")
	return metrics{
		events: i.Counter("apiserver_watch_events_total", "Events sent to watchers, by resource."),
		sizes:  i.Histogram("apiserver_watch_events_sizes", "Bytes of events sent to watchers, by resource.", eventSizes...),
	}
}

// sent counts an event that goes to a watcher.
func (m *metrics) sent(ctx context.Context, event []byte, of labels) {
	m.events.Add(ctx, 1, of.add...)
	m.sizes.Record(ctx, float64(len(event)), of.record...)
}

// labels of a kind, made once.
type labels struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func labelsOf(k *kind.Kind) labels {
	group := k.Group
	if group == "core" {
		group = "" // as Kubernetes calls it
	}
	set := metric.WithAttributeSet(attribute.NewSet(
		attribute.String("group", group), attribute.String("version", k.Version), attribute.String("resource", k.Plural)))
	return labels{add: []metric.AddOption{set}, record: []metric.RecordOption{set}}
}
