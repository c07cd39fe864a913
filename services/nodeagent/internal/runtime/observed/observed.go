// Package observed is a runtime as its caller feels it: how often operations are asked for, how long they take and how
// many fail. What the runtime's own libraries would add to a trace is kept out of it: the pod worker's spans say it.
package observed

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"trireme.dev/client/metrics"
	"trireme.dev/services/nodeagent/internal/runtime"
)

// bounds in seconds are those of Kubernetes for operations of the runtime.
var bounds = []float64{.005, .0125, .03125, .078125, .1953125, .48828125, 1.220703125, 3.0517578125, 7.62939453125,
	19.073486328125, 47.6837158203125, 119.20928955078125, 298.0232238769531, 745.0580596923828}

// Operations, in the words of Kubernetes' container runtime interface.
const (
	opStatus          = "status"
	opPods            = "list_podsandbox"
	opPod             = "podsandbox_status"
	opCreateSandbox   = "run_podsandbox"
	opRemoveSandbox   = "remove_podsandbox"
	opCreateContainer = "create_container"
	opStartContainer  = "start_container"
	opStopContainer   = "stop_container"
	opRemoveContainer = "remove_container"
	opExec            = "exec"
	opImageStatus     = "image_status"
	opPullImage       = "pull_image"
	opListImages      = "list_images"
)

// Runtime is a runtime.Runtime over another.
type Runtime struct {
	runtime.Runtime

	total, failed metric.Int64Counter
	seconds       metric.Float64Histogram
	labels        map[string]label
}

type label struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

var _ runtime.Runtime = (*Runtime)(nil)

// New returns the runtime over r.
func New(r runtime.Runtime) *Runtime {
	o := &Runtime{
		Runtime: r,
		total:   metrics.Counter("kubelet_runtime_operations_total", "Operations asked of the runtime, by type."),
		failed:  metrics.Counter("kubelet_runtime_operations_errors_total", "Operations of the runtime that failed, by type."),
		seconds: metrics.Histogram("kubelet_runtime_operations_duration_seconds", "Duration of operations of the runtime, by type.", bounds),
		labels:  map[string]label{},
	}
	for _, op := range []string{
		opStatus, opPods, opPod, opCreateSandbox, opRemoveSandbox, opCreateContainer, opStartContainer, opStopContainer,
		opRemoveContainer, opExec, opImageStatus, opPullImage, opListImages,
	} {
		set := metrics.Labels("operation_type", op)
		o.labels[op] = label{[]metric.AddOption{set}, []metric.RecordOption{set}}
	}
	return o
}

// Unwrap returns the runtime underneath, for who knows which it is.
func (o *Runtime) Unwrap() runtime.Runtime { return o.Runtime }

// quiet is ctx without its trace.
func quiet(ctx context.Context) context.Context {
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{})
}

func (o *Runtime) count(ctx context.Context, op string, begin time.Time, err error) {
	l := o.labels[op]
	o.total.Add(ctx, 1, l.add...)
	o.seconds.Record(ctx, time.Since(begin).Seconds(), l.record...)
	// That something is not there is an answer.
	if err != nil && !errors.Is(err, runtime.ErrNotFound) && !errors.Is(err, context.Canceled) {
		o.failed.Add(ctx, 1, l.add...)
	}
}

// do counts an operation that returns nothing.
func (o *Runtime) do(ctx context.Context, op string, f func(context.Context) error) error {
	begin := time.Now()
	err := f(quiet(ctx))
	o.count(ctx, op, begin, err)
	return err
}

// get counts an operation that returns something.
func get[T any](ctx context.Context, o *Runtime, op string, f func(context.Context) (T, error)) (T, error) {
	begin := time.Now()
	v, err := f(quiet(ctx))
	o.count(ctx, op, begin, err)
	return v, err
}

// Info implements runtime.Runtime.
func (o *Runtime) Info(ctx context.Context) (runtime.Info, error) {
	return get(ctx, o, opStatus, o.Runtime.Info)
}

// Pods implements runtime.Runtime.
func (o *Runtime) Pods(ctx context.Context) ([]*runtime.Pod, error) {
	return get(ctx, o, opPods, o.Runtime.Pods)
}

// Pod implements runtime.Runtime.
func (o *Runtime) Pod(ctx context.Context, uid string) (*runtime.Pod, error) {
	return get(ctx, o, opPod, func(ctx context.Context) (*runtime.Pod, error) { return o.Runtime.Pod(ctx, uid) })
}

// CreateSandbox implements runtime.Runtime. The trace goes on below: setting up the network is a span of the runtime's.
func (o *Runtime) CreateSandbox(ctx context.Context, spec runtime.SandboxSpec) (*runtime.Sandbox, error) {
	begin := time.Now()
	s, err := o.Runtime.CreateSandbox(ctx, spec)
	o.count(ctx, opCreateSandbox, begin, err)
	return s, err
}

// RemoveSandbox implements runtime.Runtime.
func (o *Runtime) RemoveSandbox(ctx context.Context, podUID string) error {
	return o.do(ctx, opRemoveSandbox, func(ctx context.Context) error { return o.Runtime.RemoveSandbox(ctx, podUID) })
}

// CreateContainer implements runtime.Runtime.
func (o *Runtime) CreateContainer(ctx context.Context, spec runtime.ContainerSpec) (string, error) {
	return get(ctx, o, opCreateContainer, func(ctx context.Context) (string, error) { return o.Runtime.CreateContainer(ctx, spec) })
}

// StartContainer implements runtime.Runtime.
func (o *Runtime) StartContainer(ctx context.Context, id string) error {
	return o.do(ctx, opStartContainer, func(ctx context.Context) error { return o.Runtime.StartContainer(ctx, id) })
}

// StopContainer implements runtime.Runtime.
func (o *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return o.do(ctx, opStopContainer, func(ctx context.Context) error { return o.Runtime.StopContainer(ctx, id, grace) })
}

// RemoveContainer implements runtime.Runtime.
func (o *Runtime) RemoveContainer(ctx context.Context, id string) error {
	return o.do(ctx, opRemoveContainer, func(ctx context.Context) error { return o.Runtime.RemoveContainer(ctx, id) })
}

// Exec implements runtime.Runtime.
func (o *Runtime) Exec(ctx context.Context, id string, spec runtime.ExecSpec) (int, error) {
	return get(ctx, o, opExec, func(ctx context.Context) (int, error) { return o.Runtime.Exec(ctx, id, spec) })
}

// Images implements runtime.Runtime.
func (o *Runtime) Images() runtime.Images { return images{o.Runtime.Images(), o} }

type images struct {
	runtime.Images

	o *Runtime
}

// Get implements runtime.Images.
func (i images) Get(ctx context.Context, ref string) (*runtime.Image, error) {
	return get(ctx, i.o, opImageStatus, func(ctx context.Context) (*runtime.Image, error) { return i.Images.Get(ctx, ref) })
}

// Pull implements runtime.Images.
func (i images) Pull(ctx context.Context, ref string) (*runtime.Image, error) {
	return get(ctx, i.o, opPullImage, func(ctx context.Context) (*runtime.Image, error) { return i.Images.Pull(ctx, ref) })
}

// List implements runtime.Images.
func (i images) List(ctx context.Context) ([]*runtime.Image, error) {
	return get(ctx, i.o, opListImages, i.Images.List)
}
