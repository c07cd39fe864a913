package workqueue

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"trireme.dev/client/metrics"
)

// measured are the metrics of a queue. All methods bear nil.
type measured struct {
	labels       metric.MeasurementOption
	adds, again  metric.Int64Counter
	waited, took metric.Float64Histogram
	gauges       []func()
}

// measure makes the metrics of a queue of that name; work is asked when somebody reads them.
func measure(name string, work func() (depth int, unfinished, longest time.Duration)) *measured {
	bounds := metrics.Exponential(1e-8, 10, 12)
	return &measured{
		labels: metrics.Labels("name", name),
		adds:   metrics.Counter("workqueue_adds_total", "Keys added to a work queue; one that waits already does not count again."),
		again:  metrics.Counter("workqueue_retries_total", "Retries that a work queue handled."),
		waited: metrics.Histogram("workqueue_queue_duration_seconds", "How long a key waited in a work queue before a worker took it.", bounds),
		took:   metrics.Histogram("workqueue_work_duration_seconds", "How long a worker had a key in hand.", bounds),
		gauges: []func(){
			metrics.Gauge("workqueue_depth", "Keys that wait in a work queue.", func(report func(float64, ...string)) {
				depth, _, _ := work()
				report(float64(depth), "name", name)
			}),
			metrics.Gauge("workqueue_unfinished_work_seconds", "How long the keys in hand have been so, all together: one that grows tells of a stuck worker.",
				func(report func(float64, ...string)) {
					_, unfinished, _ := work()
					report(unfinished.Seconds(), "name", name)
				}),
			metrics.Gauge("workqueue_longest_running_processor_seconds", "How long the worker that has been busy for longest has been so.",
				func(report func(float64, ...string)) {
					_, _, longest := work()
					report(longest.Seconds(), "name", name)
				}),
		},
	}
}

func (m *measured) add() {
	if m != nil {
		m.adds.Add(context.Background(), 1, m.labels)
	}
}

func (m *measured) retry() {
	if m != nil {
		m.again.Add(context.Background(), 1, m.labels)
	}
}

func (m *measured) take(t turn) {
	if m != nil {
		m.waited.Record(context.Background(), t.begun.Sub(t.added).Seconds(), m.labels)
	}
}

func (m *measured) done(t turn) {
	if m != nil {
		m.took.Record(context.Background(), time.Since(t.begun).Seconds(), m.labels)
	}
}

// stop ends what is asked of the queue. The registry calls back with a lock of its own, so this must not hold the queue's.
func (m *measured) stop() {
	if m == nil {
		return
	}
	for _, stop := range m.gauges {
		stop()
	}
}
