// Package telemetrytest shows tests the spans and metrics that code reports. The recorders are the process's providers
// while a test runs, so tests that use them do not run in parallel, and build what they look at after the recorder.
package telemetrytest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"trireme.dev/kit/telemetry"
)

// Span is one that has ended.
type Span struct {
	Name string
	// Trace, ID and Parent in hexadecimal; Parent is empty for the root of a trace.
	Trace, ID, Parent string
	Start, End        time.Time
	// Attributes as text, lists in JSON.
	Attributes map[string]string
	Links      []trace.SpanContext
	// Err is why it failed; empty where it did not.
	Err string
}

// Spans records what is sampled.
type Spans struct{ recorder *tracetest.SpanRecorder }

// RecordSpans makes a recorder the process's provider of spans until the test ends. roots says which spans may begin a
// trace, as telemetry.Start's does: all of those are sampled. Works inside a synctest bubble.
func RecordSpans(t testing.TB, roots func(span string) bool) *Spans {
	t.Helper()
	s := &Spans{tracetest.NewSpanRecorder()}
	otel.SetTracerProvider(sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(s.recorder), sdktrace.WithSampler(telemetry.Sampler(sdktrace.AlwaysSample(), roots))))
	t.Cleanup(func() { otel.SetTracerProvider(tracenoop.NewTracerProvider()) })
	return s
}

// Ended returns the spans that have ended so far, in order of their starts.
func (s *Spans) Ended() []Span {
	var out []Span
	for _, r := range s.recorder.Ended() {
		span := Span{
			Name: r.Name(), Trace: r.SpanContext().TraceID().String(), ID: r.SpanContext().SpanID().String(),
			Start: r.StartTime(), End: r.EndTime(), Attributes: map[string]string{}, Err: r.Status().Description,
		}
		if r.Parent().HasSpanID() {
			span.Parent = r.Parent().SpanID().String()
		}
		for _, a := range r.Attributes() {
			span.Attributes[string(a.Key)] = a.Value.String()
		}
		for _, l := range r.Links() {
			span.Links = append(span.Links, l.SpanContext)
		}
		out = append(out, span)
	}
	slices.SortStableFunc(out, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return out
}

// AllEnded waits until every span that has begun has ended, and returns them in order of their starts: a server's span may
// end after its caller has the answer.
func (s *Spans) AllEnded(t testing.TB) []Span {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		begun := len(s.recorder.Started())
		if all := s.Ended(); len(all) >= begun {
			return all
		}
		if time.Now().After(deadline) {
			t.Fatalf("of %d spans only these end: %q", begun, Paths(s.Ended()))
		}
		<-time.After(time.Millisecond)
	}
}

// Metrics reads what instruments have counted.
type Metrics struct{ reader *sdkmetric.ManualReader }

// RecordMetrics makes a recorder the process's provider of metrics until the test ends.
func RecordMetrics(t testing.TB) *Metrics {
	t.Helper()
	m := &Metrics{sdkmetric.NewManualReader()}
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader)))
	t.Cleanup(func() { otel.SetMeterProvider(metricnoop.NewMeterProvider()) })
	return m
}

// Values returns what an instrument has counted, by its attributes: "code=200,verb=GET". Of histograms it is how often
// something was recorded.
func (m *Metrics) Values(t testing.TB, name string) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			if metric.Name != name {
				continue
			}
			switch data := metric.Data.(type) {
			case metricdata.Sum[int64]:
				values(out, data.DataPoints)
			case metricdata.Sum[float64]:
				values(out, data.DataPoints)
			case metricdata.Gauge[int64]:
				values(out, data.DataPoints)
			case metricdata.Gauge[float64]:
				values(out, data.DataPoints)
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					out[labels(p.Attributes)] = float64(p.Count)
				}
			default:
				t.Fatalf("metric %s is a %T: teach this helper about it", name, data)
			}
		}
	}
	return out
}

func values[N int64 | float64](out map[string]float64, points []metricdata.DataPoint[N]) {
	for _, p := range points {
		out[labels(p.Attributes)] = float64(p.Value)
	}
}

func labels(set attribute.Set) string {
	var out []string
	for _, a := range set.ToSlice() {
		out = append(out, string(a.Key)+"="+a.Value.String())
	}
	return strings.Join(out, ",")
}
