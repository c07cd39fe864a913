package telemetry

import (
	"context"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// gate stands before the SDK's batch processor and counts. The processor drops spans when its queue is full and tells
// nobody; the gate lets in no more than the queue holds, so what is lost is lost here, and known.
type gate struct {
	next sdktrace.SpanProcessor
	size int64

	ended    atomic.Int64 // sampled spans that came here
	refused  atomic.Int64 // of these, not let in
	exported atomic.Int64 // taken by the collector
	failed   atomic.Int64 // let in, and not taken
	held     atomic.Int64 // let in, and neither exported nor failed yet
	stopped  atomic.Bool
}

func newGate(exporter sdktrace.SpanExporter, size int) *gate {
	g := &gate{size: int64(size)}
	// The processor holds a batch beside its queue; never its own queue but ours is the bound.
	g.next = sdktrace.NewBatchSpanProcessor(&counter{SpanExporter: exporter, gate: g}, sdktrace.WithMaxQueueSize(size))
	return g
}

// dropped is how many spans are lost for good; once the gate is shut, all that were not taken are.
func (g *gate) dropped() int64 {
	if g.stopped.Load() {
		return g.ended.Load() - g.exported.Load()
	}
	return g.refused.Load() + g.failed.Load()
}

// OnStart implements sdktrace.SpanProcessor.
func (g *gate) OnStart(parent context.Context, s sdktrace.ReadWriteSpan) { g.next.OnStart(parent, s) }

// OnEnd implements sdktrace.SpanProcessor. It never blocks.
func (g *gate) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	g.ended.Add(1)
	if g.held.Add(1) > g.size {
		g.held.Add(-1)
		g.refused.Add(1)
		return
	}
	g.next.OnEnd(s)
}

// Shutdown implements sdktrace.SpanProcessor. What is still held afterwards is lost.
func (g *gate) Shutdown(ctx context.Context) error {
	err := g.next.Shutdown(ctx)
	g.stopped.Store(true)
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
	var rejected atomic.Int64
	err := c.SpanExporter.ExportSpans(context.WithValue(ctx, rejectedKey{}, &rejected), spans)
	n := int64(len(spans))
	lost := min(n, rejected.Load())
	if err != nil {
		lost = n
	}
	c.gate.failed.Add(lost)
	c.gate.exported.Add(n - lost)
	c.gate.held.Add(-n)
	return err
}

// rejectedKey is of a context's count of the spans that a collector took the call for, and did not take.
type rejectedKey struct{}

// countRejected takes the rejected spans out of a collector's answer: the exporter would call the whole batch failed.
func (t *traces) countRejected(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	response, ok := reply.(*collectorpb.ExportTraceServiceResponse)
	if err != nil || !ok {
		return err
	}
	if partial := response.GetPartialSuccess(); partial != nil {
		if count, ok := ctx.Value(rejectedKey{}).(*atomic.Int64); ok {
			count.Store(partial.GetRejectedSpans())
		}
		if n, message := partial.GetRejectedSpans(), partial.GetErrorMessage(); n > 0 || message != "" {
			t.report(&rejectedError{spans: n, message: message})
		}
		response.PartialSuccess = nil
	}
	return nil
}
