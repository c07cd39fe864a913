package telemetry

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

// Instruments makes the instruments of one package over the process's provider. Names and bounds are constants of the
// caller, so a bad one is a programming error and panics. Make instruments once, when a part is built; to make one of
// the same name again gives the same.
type Instruments struct{ meter metric.Meter }

// NewInstruments takes the caller's import path.
func NewInstruments(scope string) Instruments {
	return Instruments{otel.GetMeterProvider().Meter(scope)}
}

// Counter only grows.
func (i Instruments) Counter(name, help string) metric.Int64Counter {
	return must(i.meter.Int64Counter(name, metric.WithDescription(help)))
}

// Histogram of seconds, or of whatever the name says.
func (i Instruments) Histogram(name, help string, bounds ...float64) metric.Float64Histogram {
	return must(i.meter.Float64Histogram(name, metric.WithDescription(help), metric.WithExplicitBucketBoundaries(bounds...)))
}

// Gauge is observed when somebody reads the metrics.
func (i Instruments) Gauge(name, help string) metric.Int64ObservableGauge {
	return must(i.meter.Int64ObservableGauge(name, metric.WithDescription(help)))
}

// Total is a counter that something else counts already; it is observed when somebody reads the metrics.
func (i Instruments) Total(name, help string) metric.Int64ObservableCounter {
	return must(i.meter.Int64ObservableCounter(name, metric.WithDescription(help)))
}

// Observe calls f whenever somebody reads the metrics, for the instruments named, until stop is called. Two observers of
// one instrument must observe different attributes.
func (i Instruments) Observe(f metric.Callback, of ...metric.Observable) (stop func()) {
	r := must(i.meter.RegisterCallback(f, of...))
	return func() { _ = r.Unregister() } // it fails for callbacks that are none
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("instrument: %v", err))
	}
	return v
}
