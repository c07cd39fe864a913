package devices

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"trireme.dev/kit/telemetry"
)

// metrics under the kubelet's names.
type metrics struct {
	registrations metric.Int64Counter
	seconds       metric.Float64Histogram
}

func newMetrics() metrics {
	i := telemetry.NewInstruments("trireme.dev/services/nodeagent/internal/devices")
	return metrics{
		registrations: i.Counter("kubelet_device_plugin_registration_total", "Registrations of device plugins, by resource."),
		seconds: i.Histogram("kubelet_device_plugin_alloc_duration_seconds", "Duration of allocations by a device plugin, by resource.",
			.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10),
	}
}

func (m metrics) registered(ctx context.Context, resource string) {
	m.registrations.Add(ctx, 1, metric.WithAttributes(attribute.String("resource_name", resource)))
}

func (m metrics) allocated(ctx context.Context, resource string, begin time.Time) {
	m.seconds.Record(ctx, time.Since(begin).Seconds(), metric.WithAttributes(attribute.String("resource_name", resource)))
}
