package cycle

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/metric"

	"trireme.dev/client/metrics"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/runtime"
)

// Results of an attempt, as Kubernetes' metrics name them.
const (
	resultScheduled     = "scheduled"
	resultUnschedulable = "unschedulable"
	resultError         = "error"
)

const (
	// measuredAttempts is one in how many attempts has its plugins timed, as in Kubernetes.
	measuredAttempts = 10
	// manyAttempts is from where on the number of attempts is no label of its own.
	manyAttempts = 15
	codes        = int(framework.Pending) + 1
)

// counters are the metrics of attempts. Labels are made once; what is not safe for concurrent use says so.
type counters struct {
	profile  string
	attempts metric.Int64Counter
	duration metric.Float64Histogram
	sli      metric.Float64Histogram
	tries    metric.Float64Histogram
	point    metric.Float64Histogram
	plugin   metric.Float64Histogram
	rooms    metric.Int64Counter
	victims  metric.Float64Histogram

	results    map[string]metric.MeasurementOption
	triesLabel [manyAttempts + 1]metric.MeasurementOption
	points     map[string]*[codes]metric.MeasurementOption
	// plugins belongs to the cycle's goroutine.
	plugins map[pluginKey]metric.MeasurementOption
}

type pluginKey struct {
	point, plugin string
	code          framework.Code
}

func newCounters(profile string) *counters {
	m := &counters{
		profile:  profile,
		attempts: metrics.Counter("scheduler_schedule_attempts_total", "Attempts to schedule pods, by result: scheduled, unschedulable or error."),
		duration: metrics.Histogram("scheduler_scheduling_attempt_duration_seconds", "How long an attempt took, with the binding.", metrics.Exponential(0.001, 2, 15)),
		sli: metrics.Histogram("scheduler_pod_scheduling_sli_duration_seconds",
			"How long it took to schedule a pod, from the first attempt on, by how many it took.", metrics.Exponential(0.01, 2, 20)),
		tries: metrics.Histogram("scheduler_pod_scheduling_attempts", "How many attempts it took to schedule a pod.", metrics.Exponential(1, 2, 5)),
		point: metrics.Histogram("scheduler_framework_extension_point_duration_seconds",
			"How long all plugins of an extension point took.", metrics.Exponential(0.0001, 2, 12)),
		plugin: metrics.Histogram("scheduler_plugin_execution_duration_seconds",
			"How long a plugin took at an extension point; per node on average where it looks at each. One attempt in ten is measured.",
			metrics.Exponential(0.00001, 1.5, 20)),
		rooms:   metrics.Counter("scheduler_preemption_attempts_total", "How often room was sought for a pod or gang that fits nowhere."),
		victims: metrics.Histogram("scheduler_preemption_victims", "How many pods gave way to a pod or gang for which room was made.", metrics.Exponential(1, 2, 7)),
		results: map[string]metric.MeasurementOption{},
		points:  map[string]*[codes]metric.MeasurementOption{},
		plugins: map[pluginKey]metric.MeasurementOption{},
	}
	for _, r := range []string{resultScheduled, resultUnschedulable, resultError} {
		m.results[r] = metrics.Labels("result", r, "profile", profile)
	}
	for n := range m.triesLabel {
		label := strconv.Itoa(n)
		if n == manyAttempts {
			label += "+"
		}
		m.triesLabel[n] = metrics.Labels("attempts", label)
	}
	for p := range points {
		m.addPoint(p.String())
	}
	for _, p := range []string{runtime.PodGroupPostFilter, runtime.WaitOnPermit, runtime.PreBind, runtime.Bind, runtime.PostBind} {
		m.addPoint(p)
	}
	return m
}

func (m *counters) addPoint(name string) {
	labels := new([codes]metric.MeasurementOption)
	for code := range labels {
		labels[code] = metrics.Labels("extension_point", name, "status", framework.Code(code).String(), "profile", m.profile)
	}
	m.points[name] = labels
}

// ended counts an attempt for n pods.
func (m *counters) ended(result string, n int, begun time.Time) {
	if n == 0 {
		return
	}
	ctx, labels, took := context.Background(), m.results[result], time.Since(begun).Seconds()
	m.attempts.Add(ctx, int64(n), labels)
	for range n {
		m.duration.Record(ctx, took, labels)
	}
}

// scheduled counts n pods that have found their places.
func (m *counters) scheduled(q *framework.Queued, n int, begun time.Time) {
	m.ended(resultScheduled, n, begun)
	ctx, took := context.Background(), time.Since(q.InitialAttempt).Seconds()
	labels := m.triesLabel[min(q.Attempts, manyAttempts)]
	for range n {
		m.sli.Record(ctx, took, labels)
		m.tries.Record(ctx, float64(q.Attempts))
	}
}

// preempted counts n pods that give way; none where no room is made.
func (m *counters) preempted(n int) {
	if n > 0 {
		m.victims.Record(context.Background(), float64(n))
	}
}

// extension counts one run of an extension point.
func (m *counters) extension(point string, took time.Duration, code framework.Code) {
	m.point.Record(context.Background(), took.Seconds(), m.points[point][code])
}

// watched counts what was noted of an attempt. It is for the cycle's goroutine only.
func (m *counters) watched(w *Watch) {
	ctx := context.Background()
	if s := &w.room; !s.begun.IsZero() {
		m.extension(runtime.PodGroupPostFilter, s.took, s.code)
		m.rooms.Add(ctx, 1)
	}
	for i := range w.pods {
		p := &w.pods[i]
		if !p.points[postFilter].begun.IsZero() {
			m.rooms.Add(ctx, 1)
		}
		for at := range points {
			if s := &p.points[at]; !s.begun.IsZero() {
				m.point.Record(ctx, s.took.Seconds(), m.points[at.String()][s.code])
			}
		}
		for _, t := range p.state.Measured() {
			key := pluginKey{t.Point, t.Plugin, t.Code}
			labels, ok := m.plugins[key]
			if !ok {
				labels = metrics.Labels("plugin", t.Plugin, "extension_point", t.Point, "status", t.Code.String())
				m.plugins[key] = labels
			}
			m.plugin.Record(ctx, t.Took.Seconds()/float64(t.Calls), labels)
		}
	}
}

// Observe is Cycle.Observe of the first profile: queue and cache are the same for all.
func (p Profiles) Observe() (stop func()) { return p[0].Observe() }

// Observe makes the gauges of queue, cache and cycle until stop.
func (c *Cycle) Observe() (stop func()) {
	stops := []func(){
		metrics.Gauge("scheduler_pending_pods", "Pods that wait, by part of the queue: active, backoff, unschedulable, gated.",
			func(report func(float64, ...string)) {
				for part, n := range c.Queue.Pending() {
					report(float64(n), "queue", part)
				}
			}),
		metrics.Gauge("scheduler_unschedulable_pods", "Pods that wait for something to change, by the plugin that refused them; one counts for each plugin.",
			func(report func(float64, ...string)) {
				for by, n := range c.Queue.Unschedulable() {
					report(float64(n), "plugin", by.Plugin, "profile", by.Profile)
				}
			}),
		metrics.Gauge("scheduler_cache_size", "What the cache holds: nodes, pods on them, and pods that are only assumed to be.",
			func(report func(float64, ...string)) {
				nodes, pods, assumed := c.Cache.Size()
				report(float64(nodes), "type", "nodes")
				report(float64(pods), "type", "pods")
				report(float64(assumed), "type", "assumed_pods")
			}),
		metrics.Gauge("scheduler_goroutines", "Goroutines at work, by what they do.", func(report func(float64, ...string)) {
			report(float64(c.binding.Load()), "operation", "binding")
		}),
	}
	return func() {
		for _, s := range stops {
			s()
		}
	}
}
