package feed

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"trireme.dev/kit/telemetry"
)

// counts of one kind, guarded by the feed's lock.
type counts struct {
	received, dispatched, terminated int64
}

// observe shows those who read metrics how the feed does, until stop is called. The feed counts under a lock that it holds
// anyway, so events cost nothing more.
func (f *Feed) observe() (stop func()) {
	i := telemetry.NewInstruments("trireme.dev/services/apiserver/internal/feed")
	received := i.Total("apiserver_watch_cache_events_received_total", "Events that came from the store, by resource.")
	dispatched := i.Total("apiserver_watch_cache_events_dispatched_total", "Events handed to watchers, by resource, each as often as it was.")
	terminated := i.Total("apiserver_terminated_watchers_total", "Watchers ended because they did not keep up, by resource.")
	version := i.Gauge("apiserver_watch_cache_resource_version", "Revision up to which all events have been handed out.")
	sets := map[string]metric.MeasurementOption{}
	for prefix := range f.topics {
		sets[prefix] = metric.WithAttributeSet(attribute.NewSet(groupAndResource(prefix)...))
	}
	return i.Observe(func(_ context.Context, o metric.Observer) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		for prefix, t := range f.topics {
			o.ObserveInt64(received, t.counts.received, sets[prefix])
			o.ObserveInt64(dispatched, t.counts.dispatched, sets[prefix])
			o.ObserveInt64(terminated, t.counts.terminated, sets[prefix])
			o.ObserveInt64(version, f.position, sets[prefix])
		}
		return nil
	}, received, dispatched, terminated, version)
}

// groupAndResource reads a kind's prefix, /trireme/<group>/<plural>/, in Kubernetes' terms.
func groupAndResource(prefix string) []attribute.KeyValue {
	parts := strings.Split(prefix, "/")
	if len(parts) != 5 {
		return []attribute.KeyValue{attribute.String("resource", prefix)}
	}
	group := parts[2]
	if group == "core" {
		group = ""
	}
	return []attribute.KeyValue{attribute.String("group", group), attribute.String("resource", parts[3])}
}
