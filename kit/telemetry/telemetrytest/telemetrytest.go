// Package telemetrytest records the spans and reads the metrics of the process that runs a test, with OpenTelemetry's own
// SDK. It is for tests only and exports nothing to anywhere.
package telemetrytest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// Recorder holds all spans that have ended since Record, and reads metrics.
type Recorder struct {
	t     testing.TB
	spans *tracetest.InMemoryExporter
	read  *sdkmetric.ManualReader
}

// Span is a span that has ended.
type Span struct {
	Name string
	// Trace, ID and Parent are hexadecimal; Parent is empty for a root.
	Trace, ID, Parent string
	Start, End        time.Time
	// Attributes are values as text.
	Attributes map[string]string
	// Links are the ids of the spans linked to.
	Links []string
	// Error is the description where the span's status is Error.
	Error string
	// Failed reports whether its status is Error.
	Failed bool
}

// Record sets the process's global providers until the test ends. Spans begin no traces by themselves: like every service
// but the gateway, the process only follows those that are sampled. Tests that use it must not run in parallel.
func Record(t testing.TB) *Recorder {
	t.Helper()
	r := &Recorder{t: t, spans: tracetest.NewInMemoryExporter(), read: sdkmetric.NewManualReader()}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.read))
	oldTraces, oldMeters, oldPropagator := otel.GetTracerProvider(), otel.GetMeterProvider(), otel.GetTextMapPropagator()
	otel.SetTracerProvider(traces)
	otel.SetMeterProvider(meters)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	t.Cleanup(func() {
		otel.SetTracerProvider(oldTraces)
		otel.SetMeterProvider(oldMeters)
		otel.SetTextMapPropagator(oldPropagator)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = traces.Shutdown(ctx) // there is nothing to flush
		_ = meters.Shutdown(ctx)
	})
	return r
}

// Spans of a trace, by the time at which they began; of all traces where it is empty.
func (r *Recorder) Spans(trace string) []Span {
	var out []Span
	for _, s := range r.spans.GetSpans() {
		span := Span{
			Name: s.Name, Trace: s.SpanContext.TraceID().String(), ID: s.SpanContext.SpanID().String(),
			Start: s.StartTime, End: s.EndTime, Attributes: map[string]string{},
			Error: s.Status.Description, Failed: s.Status.Code == codes.Error,
		}
		if trace != "" && span.Trace != trace {
			continue
		}
		if s.Parent.IsValid() {
			span.Parent = s.Parent.SpanID().String()
		}
		for _, a := range s.Attributes {
			span.Attributes[string(a.Key)] = text(a.Value)
		}
		for _, l := range s.Links {
			span.Links = append(span.Links, l.SpanContext.SpanID().String())
		}
		out = append(out, span)
	}
	slices.SortStableFunc(out, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return out
}

func text(v attribute.Value) string {
	if v.Type() == attribute.STRINGSLICE {
		return strings.Join(v.AsStringSlice(), ", ")
	}
	return v.Emit()
}

// Reset forgets the spans so far.
func (r *Recorder) Reset() { r.spans.Reset() }

// Metrics reads all metrics as Prometheus names them: name{label="value",...}, labels by name. Of a histogram it gives
// name_count and name_sum.
func (r *Recorder) Metrics() map[string]float64 {
	r.t.Helper()
	var data metricdata.ResourceMetrics
	if err := r.read.Collect(context.Background(), &data); err != nil {
		r.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				points(out, m.Name, d.DataPoints)
			case metricdata.Sum[float64]:
				points(out, m.Name, d.DataPoints)
			case metricdata.Gauge[int64]:
				points(out, m.Name, d.DataPoints)
			case metricdata.Gauge[float64]:
				points(out, m.Name, d.DataPoints)
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					out[m.Name+"_count"+labels(p.Attributes)] = float64(p.Count)
					out[m.Name+"_sum"+labels(p.Attributes)] = p.Sum
				}
			}
		}
	}
	return out
}

func points[N int64 | float64](out map[string]float64, name string, data []metricdata.DataPoint[N]) {
	for _, p := range data {
		out[name+labels(p.Attributes)] = float64(p.Value)
	}
}

func labels(set attribute.Set) string {
	if set.Len() == 0 {
		return ""
	}
	var pairs []string
	for _, a := range set.ToSlice() {
		pairs = append(pairs, string(a.Key)+`="`+text(a.Value)+`"`)
	}
	return "{" + strings.Join(pairs, ",") + "}"
}
