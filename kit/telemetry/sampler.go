package telemetry

import (
	"fmt"
	"os"
	"strconv"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// rootSampler is what OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG say about new traces. A trace that has begun is
// always followed: with or without "parentbased_" the names mean the same.
func rootSampler() (sdktrace.Sampler, error) {
	const name, arg = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
	switch value := os.Getenv(name); value {
	case "", "always_on", "parentbased_always_on":
		return sdktrace.AlwaysSample(), nil
	case "always_off", "parentbased_always_off":
		return sdktrace.NeverSample(), nil
	case "traceidratio", "parentbased_traceidratio":
		ratio := 1.0
		if a := os.Getenv(arg); a != "" {
			var err error
			if ratio, err = strconv.ParseFloat(a, 64); err != nil || ratio < 0 || ratio > 1 {
				return nil, fmt.Errorf("%s: %q is not a number from 0 to 1", arg, a)
			}
		}
		return sdktrace.TraceIDRatioBased(ratio), nil
	default:
		return nil, fmt.Errorf("%s: %q is none of always_on, always_off, traceidratio (each also with parentbased_)", name, value)
	}
}

// Sampler follows every trace that has begun. Of spans without one, root decides about those that roots names, and
// about all others only a link to a recorded trace does; roots is nil for a process that begins none.
func Sampler(root sdktrace.Sampler, roots func(span string) bool) sdktrace.Sampler {
	if roots == nil {
		return sdktrace.ParentBased(linked{})
	}
	return sdktrace.ParentBased(chosen{Sampler: root, roots: roots})
}

// chosen asks its sampler about the spans that may begin a trace, and begins none with others.
type chosen struct {
	sdktrace.Sampler

	roots func(span string) bool
}

// ShouldSample implements sdktrace.Sampler.
func (c chosen) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if c.roots(p.Name) {
		return c.Sampler.ShouldSample(p)
	}
	return linked{}.ShouldSample(p)
}

// linked records a new trace where it is linked to one that is recorded: the later life of an object whose beginning
// was sampled. A process that does not decide on traces begins no others.
type linked struct{}

// ShouldSample implements sdktrace.Sampler.
func (linked) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	result := sdktrace.SamplingResult{
		Decision: sdktrace.Drop, Tracestate: trace.SpanContextFromContext(p.ParentContext).TraceState(),
	}
	for _, l := range p.Links {
		if l.SpanContext.IsSampled() {
			result.Decision = sdktrace.RecordAndSample
		}
	}
	return result
}

// Description implements sdktrace.Sampler.
func (linked) Description() string { return "Linked" }
