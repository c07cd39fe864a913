// Package metrics makes the instruments by which a process is measured. It is OpenTelemetry's API with the provider of
// the process, so that whatever is counted costs next to nothing where nobody reads it. Names and labels are Kubernetes'
// where the meaning is the same; docs/metrics.md lists all.
//
// Make instruments where the thing that they measure is made, after the process's provider is set. Two makers of one
// name share it. A name that OpenTelemetry refuses is a programming error: it panics.
package metrics

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const scope = "trireme.dev"

// Labels are the labels of a measurement, as pairs of key and value. Build them once and not per measurement.
func Labels(pairs ...string) metric.MeasurementOption {
	return metric.WithAttributeSet(set(pairs))
}

func set(pairs []string) attribute.Set {
	attributes := make([]attribute.KeyValue, len(pairs)/2)
	for i := range attributes {
		attributes[i] = attribute.String(pairs[2*i], pairs[2*i+1])
	}
	return attribute.NewSet(attributes...)
}

// Counter makes a counter.
func Counter(name, description string) metric.Int64Counter {
	return must(meter().Int64Counter(name, metric.WithDescription(description)))
}

// Histogram makes a histogram; bounds are the upper ends of its buckets.
func Histogram(name, description string, bounds []float64) metric.Float64Histogram {
	return must(meter().Float64Histogram(name, metric.WithDescription(description), metric.WithExplicitBucketBoundaries(bounds...)))
}

// Gauge makes a gauge that is looked at only when somebody reads it: observe then reports a value for each combination
// of labels, given as pairs. Two observers of one name must report different labels. stop ends that; call it when what is
// observed ends.
func Gauge(name, description string, observe func(report func(value float64, labels ...string))) (stop func()) {
	return observed(must(meter().Float64ObservableGauge(name, metric.WithDescription(description))), observe)
}

// Total makes a counter of what something counts already; it is observed as a gauge is.
func Total(name, description string, observe func(report func(value float64, labels ...string))) (stop func()) {
	return observed(must(meter().Float64ObservableCounter(name, metric.WithDescription(description))), observe)
}

func observed(instrument metric.Float64Observable, observe func(report func(value float64, labels ...string))) (stop func()) {
	registration := must(meter().RegisterCallback(func(_ context.Context, o metric.Observer) error {
		observe(func(value float64, labels ...string) {
			o.ObserveFloat64(instrument, value, metric.WithAttributeSet(set(labels)))
		})
		return nil
	}, instrument))
	return func() { _ = registration.Unregister() } // it fails only for what was never registered
}

// UntilDone keeps gauges and totals until ctx ends, then stops them.
func UntilDone(ctx context.Context, stops ...func()) {
	<-ctx.Done()
	for _, stop := range stops {
		stop()
	}
}

// DefaultBounds in seconds are those that Prometheus' clients use where nothing else is said.
func DefaultBounds() []float64 { return []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10} }

// Exponential gives n bounds from start on, each factor times the one before.
func Exponential(start, factor float64, n int) []float64 {
	bounds := make([]float64, n)
	for i := range bounds {
		bounds[i] = start
		start *= factor
	}
	return bounds
}

func meter() metric.Meter { return otel.GetMeterProvider().Meter(scope) }

func must[T any](instrument T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("metrics: %v", err))
	}
	return instrument
}
