package watchcache

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"trireme.dev/kit/telemetry"
)

// counts of one kind, guarded by the topic's lock.
type counts struct {
	received, dispatched, terminated int64
}

// observe shows those who read metrics how the cache does, until stop is called. It counts under a lock that it holds
// anyway, so events cost nothing more.
func (c *Cache) observe() (stop func()) {
	i := telemetry.NewInstruments("trireme.dev/services/apiserver/internal/watchcache")
	received := i.Total("apiserver_watch_cache_events_received_total", "Events that came from the store, by resource.")
	dispatched := i.Total("apiserver_watch_cache_events_dispatched_total", "Events handed to watchers, by resource, each as often as it was.")
	terminated := i.Total("apiserver_terminated_watchers_total", "Watchers ended because they did not keep up, by resource.")
	version := i.Gauge("apiserver_watch_cache_resource_version", "Revision up to which all events have been handed out.")
	sets := map[string]metric.MeasurementOption{}
	for prefix, t := range c.topics {
		sets[prefix] = metric.WithAttributeSet(attribute.NewSet(
			attribute.String("group", t.group), attribute.String("resource", t.resource)))
	}
	return i.Observe(func(_ context.Context, o metric.Observer) error {
		for prefix, t := range c.topics {
			t.mu.Lock()
			n := t.counts
			t.mu.Unlock()
			o.ObserveInt64(received, n.received, sets[prefix])
			o.ObserveInt64(dispatched, n.dispatched, sets[prefix])
			o.ObserveInt64(terminated, n.terminated, sets[prefix])
			o.ObserveInt64(version, c.Position(), sets[prefix])
		}
		return nil
	}, received, dispatched, terminated, version)
}
