package informer

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"

	"trireme.dev/client/metrics"
)

// Why all objects are asked for anew.
const (
	relistStart   = "start"
	relistRetry   = "retry"   // the last list broke before it was whole
	relistExpired = "expired" // the revision to resume from is compacted
)

// lists counts how often all objects were asked for.
type lists struct {
	kind, selector, reason string
	counter                metric.Int64Counter
}

func newLists(kind string, config Config) lists {
	return lists{
		kind: kind, selector: config.selector(), reason: relistStart,
		counter: metrics.Counter("trireme_informer_relists_total", "Lists of all objects: at the start, and whenever a watch could not resume."),
	}
}

func (l *lists) count() {
	l.counter.Add(context.Background(), 1, metrics.Labels("kind", l.kind, "selector", l.selector, "reason", l.reason))
	l.reason = relistRetry
}

// selector tells informers of one kind apart.
func (c Config) selector() string {
	var parts []string
	for _, part := range []string{c.Namespace, c.LabelSelector, c.FieldSelector} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ",")
}

// measure makes the informer's gauges until stop.
func (i *Informer[T]) measure(kind string) (stop func()) {
	selector := i.config.selector()
	objects := metrics.Gauge("trireme_informer_objects", "Objects in the local copy.", func(report func(float64, ...string)) {
		report(float64(i.store.len()), "kind", kind, "selector", selector)
	})
	heard := metrics.Gauge("trireme_informer_last_event_timestamp", "When the gateway last told of a change or, by a bookmark, that there was none, in seconds since the epoch; 0 before it has.",
		func(report func(float64, ...string)) {
			report(time.Duration(i.heard.Load()).Seconds(), "kind", kind, "selector", selector)
		})
	return func() { objects(); heard() }
}
