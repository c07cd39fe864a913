package watchcache

import "trireme.dev/client/metrics"

// counts of one kind, guarded by the topic's lock.
type counts struct {
	received, dispatched, terminated int64
}

// observe shows those who read metrics how the cache does, until stop is called. It counts under a lock that it holds
// anyway, so events cost nothing more.
func (c *Cache) observe() (stop func()) {
	perTopic := func(value func(*topic) int64) func(report func(float64, ...string)) {
		return func(report func(float64, ...string)) {
			for _, t := range c.topics {
				t.mu.Lock()
				n := value(t)
				t.mu.Unlock()
				report(float64(n), "group", t.group, "resource", t.resource)
			}
		}
	}
	stops := []func(){
		metrics.Total("apiserver_watch_cache_events_received_total", "Events that came from the store, by resource.",
			perTopic(func(t *topic) int64 { return t.counts.received })),
		metrics.Total("apiserver_watch_cache_events_dispatched_total", "Events handed to watchers, by resource, each as often as it was.",
			perTopic(func(t *topic) int64 { return t.counts.dispatched })),
		metrics.Total("apiserver_terminated_watchers_total", "Watchers ended because they did not keep up, by resource.",
			perTopic(func(t *topic) int64 { return t.counts.terminated })),
		metrics.Gauge("apiserver_watch_cache_resource_version", "Revision up to which all events have been handed out.",
			perTopic(func(*topic) int64 { return c.Position() })),
		metrics.Gauge("apiserver_storage_unreadable_objects", "Values in the store that are no objects of their kind, by resource.",
			perTopic(func(t *topic) int64 { return int64(len(t.unreadable)) })),
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}
