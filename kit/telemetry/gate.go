package telemetry

import (
	"context"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// gate stands before the SDK's batch processor and counts. The processor drops spans when its queue is full and tells
// nobody; the gate lets in no more than the queue holds, so what is lost is lost here, and known.
type gate struct {
	next    sdktrace.SpanProcessor
	size    int64
	held    atomic.Int64 // let in and not yet exported
	dropped atomic.Int64
}

func newGate(exporter sdktrace.SpanExporter, size int) *gate {
	g := &gate{size: int64(size)}
	// The processor holds a batch beside its queue; never its own queue but ours is the bound.
	g.next = sdktrace.NewBatchSpanProcessor(&counter{SpanExporter: exporter, gate: g}, sdktrace.WithMaxQueueSize(size))
	return g
}

// OnStart implements sdktrace.SpanProcessor.
func (g *gate) OnStart(parent context.Context, s sdktrace.ReadWriteSpan) { g.next.OnStart(parent, s) }

// OnEnd implements sdktrace.SpanProcessor. It never blocks.
func (g *gate) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if g.held.Add(1) > g.size {
		g.held.Add(-1)
		g.dropped.Add(1)
		return
	}
	g.next.OnEnd(s)
}

// Shutdown implements sdktrace.SpanProcessor. What is still held afterwards is lost.
func (g *gate) Shutdown(ctx context.Context) error {
	err := g.next.Shutdown(ctx)
	g.dropped.Add(g.held.Swap(0))
	return err
}

// ForceFlush implements sdktrace.SpanProcessor.
func (g *gate) ForceFlush(ctx context.Context) error { return g.next.ForceFlush(ctx) }

// counter is the exporter as the gate watches it.
type counter struct {
	sdktrace.SpanExporter

	gate *gate
}

// ExportSpans implements sdktrace.SpanExporter.
func (c *counter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		c.gate.dropped.Add(int64(len(spans)))
	}
	c.gate.held.Add(-int64(len(spans)))
	return err
}
