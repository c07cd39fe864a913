package devices

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	instruments "trireme.dev/client/metrics"
)

// metrics under the kubelet's names.
type metrics struct {
	registrations metric.Int64Counter
	seconds       metric.Float64Histogram
}

func newMetrics() metrics {
	return metrics{
		registrations: instruments.Counter("kubelet_device_plugin_registration_total", "Registrations of device plugins, by resource."),
		seconds: instruments.Histogram("kubelet_device_plugin_alloc_duration_seconds", "Duration of allocations by a device plugin, by resource.",
			instruments.DefaultBounds()),
	}
}

func (m metrics) registered(ctx context.Context, resource string) {
	m.registrations.Add(ctx, 1, instruments.Labels("resource_name", resource))
}

func (m metrics) allocated(ctx context.Context, resource string, begin time.Time) {
	m.seconds.Record(ctx, time.Since(begin).Seconds(), instruments.Labels("resource_name", resource))
}
