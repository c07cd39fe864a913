package podworker

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"trireme.dev/client/tracing"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/nodeagent/internal/plan"
)

// Names of spans.
const (
	waitSpan      = "pod worker wait"
	syncSpan      = "syncPod"
	terminateSpan = "syncTerminatingPod"
	admitSpan     = "Admit"
	sandboxSpan   = "RunPodSandbox"
	mountSpan     = "MountVolumes"
	imageSpan     = "EnsureImage"
	pullSpan      = "PullImage"
	createSpan    = "CreateContainer"
	startSpan     = "StartContainer"
	stopSpan      = "StopContainer"
	removeSpan    = "RemovePodSandbox"
	unmountSpan   = "UnmountVolumes"
	turnSpan      = "runtime wait"
)

// worthSaying is the shortest wait that gets a span, but for the first.
const worthSaying = time.Millisecond

// Kinds of syncs, as the kubelet's metrics call them.
const (
	opCreate    = "create"
	opSync      = "sync"
	opTerminate = "terminate"
)

// trail is what a worker leaves behind of its work: spans, log lines' trace, durations. It belongs to the worker's
// goroutine.
//
// A sync is the time in which operations are under way; between syncs the pod waits, for a reason. Until the pod is
// Ready for the first time both are spans directly below the pod's own trace. What happens to it later, a restart or its
// end, is a trace of its own with a link to the pod's. Syncs that begin no operation leave nothing.
type trail struct {
	m       *metrics
	node    string
	meta    *metav1.ObjectMeta
	sampled bool
	// starting until the pod is Ready for the first time, or comes to its end before.
	starting bool
	// own is the worker's context under the pod's trace.
	own context.Context
	// woke is when the step under way began, idle since when nothing has been under way.
	woke, idle time.Time
	// reason of the wait, and since when there is one.
	reason string
	since  time.Time
	// span of the sync under way, and when it began; zero for none.
	span      trace.Span
	began     time.Time
	operation string
}

func newTrail(m *metrics, node string, pod *corev1.Pod) *trail {
	now := time.Now()
	return &trail{
		m: m, node: node, meta: pod.GetMetadata(), sampled: tracing.Sampled(pod.GetMetadata()), starting: !hasStarted(pod.GetStatus()),
		own: context.Background(), idle: now, since: now,
	}
}

// hasStarted reports whether the status tells of a pod that has been brought up once.
func hasStarted(s *corev1.PodStatus) bool {
	if plan.Ready(s) || plan.Terminal(s.GetPhase()) {
		return true
	}
	for _, c := range s.GetContainerStatuses() {
		if c.GetContainerId() != "" || c.GetRestartCount() > 0 {
			return true
		}
	}
	return false
}

// begin tells the context of the worker, for which it has waited until now.
func (t *trail) begin(ctx context.Context) {
	t.own = ctx
	if t.sampled {
		t.own = tracing.Context(ctx, t.meta)
	}
	t.m.workerStart.Record(ctx, time.Since(t.idle).Seconds())
}

// wake begins a step. What is waited for after it, the step says itself.
func (t *trail) wake() {
	t.woke = time.Now()
	if !t.began.IsZero() {
		t.reason = ""
	}
}

// wait names what the pod waits for.
func (t *trail) wait(reason string) {
	if t.reason == "" && !t.starting {
		t.since = time.Now()
	}
	t.reason = reason
}

// open begins a sync, unless one is under way.
func (t *trail) open(name, operation string) {
	if !t.began.IsZero() {
		return
	}
	if t.starting {
		operation = opCreate
	}
	if t.sampled {
		t.record(name)
	}
	t.began, t.operation, t.reason = t.woke, operation, ""
}

// record begins the span of a sync and writes that of the wait before it.
func (t *trail) record(name string) {
	var why []attribute.KeyValue
	if t.reason != "" {
		why = append(why, tracing.KeyReason.String(t.reason))
	}
	attributes := append(tracing.Pod(t.meta), tracing.KeyNode.String(t.node))
	switch {
	case t.starting:
		if t.operation == "" || t.woke.Sub(t.idle) >= worthSaying {
			tracing.Record(t.own, waitSpan, t.idle, t.woke, why...)
		}
		_, t.span = tracing.StartAt(t.own, name, t.woke, attributes...)
	case t.reason != "":
		// The wait is part of what happens to the pod now: a crash and its back-off.
		var ctx context.Context
		ctx, t.span = tracing.StartLinkedAt(t.own, t.meta, name, t.since, attributes...)
		tracing.Record(ctx, waitSpan, t.since, t.woke, why...)
	default:
		_, t.span = tracing.StartLinkedAt(t.own, t.meta, name, t.woke, attributes...)
	}
}

// close ends the sync under way, if any. err is why it failed.
func (t *trail) close(err error) {
	if t.began.IsZero() {
		return
	}
	if t.span != nil {
		tracing.Fail(t.span, err)
		t.span.End()
		t.span = nil
	}
	now := time.Now()
	t.m.sync(t.own, t.operation, now.Sub(t.began))
	t.began, t.idle, t.since = time.Time{}, now, now
}

// end closes what is under way and begins the pod's end, which is a trace of its own.
func (t *trail) end() {
	t.close(nil)
	t.starting, t.reason = false, ""
	t.open(terminateSpan, opTerminate)
}

// under returns ctx with the sync under way as the parent of spans, and without any parent between syncs.
func (t *trail) under(ctx context.Context) context.Context {
	if t.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, t.span)
}

// status is the context in which a status is handed over: below the pod's own trace while it starts, then in the sync.
func (t *trail) status() context.Context {
	if t.starting {
		return t.own
	}
	return t.under(context.Background())
}

// running counts a pod that runs for the first time. apart is time that Kubernetes' objective leaves out: pulls and init
// containers.
func (t *trail) running(apart time.Duration, received time.Time) {
	now := time.Now()
	t.m.podStart.Record(t.own, now.Sub(received).Seconds())
	if created := t.meta.GetCreationTimestamp(); created != nil {
		t.m.podStartSLI.Record(t.own, max(now.Sub(created.AsTime())-apart, 0).Seconds())
	}
}

// within does something in a span below ctx's.
func within(ctx context.Context, name string, do func(context.Context) error, attributes ...attribute.KeyValue) error {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return do(ctx)
	}
	ctx, span := tracing.Start(ctx, name, attributes...)
	defer span.End()
	err := do(ctx)
	tracing.Fail(span, err)
	return err
}
