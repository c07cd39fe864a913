package telemetry

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

// metrics is the process's provider, read by Prometheus. Instruments are named as they shall appear: Kubernetes' names
// where the meaning is the same. Nothing is added to them.
type metrics struct {
	provider *sdkmetric.MeterProvider
	handler  http.Handler
}

func startMetrics(res *resource.Resource, t *traces) (*metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(
		otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo(),
		otelprom.WithTranslationStrategy(otlptranslator.NoTranslation))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	m := &metrics{
		provider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(res)),
		handler:  promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}),
	}
	_, err = m.provider.Meter("trireme.dev/kit/telemetry").Int64ObservableCounter("trireme_spans_dropped_total",
		metric.WithDescription("Spans that were recorded and could not be handed over."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(t.dropped())
			return nil
		}))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return m, nil
}
