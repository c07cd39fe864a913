// Package status writes the statuses of a node's pods to the gateway, and removes pods from it whose end has come.
//
// It computes nothing: the pod workers set statuses, the newest of a pod is sent at once, and what fails is tried
// again until it is written or the pod is gone. A status never replaces a newer one: versions of a pod only grow, and
// one write of a pod is in flight at a time. It is the last stage of the execution chain.
package status

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/tracing"
	"trireme.dev/client/workqueue"
	"trireme.dev/kit/telemetry"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/nodeagent/internal/plan"
)

const (
	// writers that work on different pods at a time.
	writers     = 8
	callTimeout = 10 * time.Second
	// conflictTries before a pod that others keep changing is put back in the queue.
	conflictTries = 5
)

// Manager owns the last step of a pod's status.
type Manager struct {
	pods    *client.Resource[*corev1.Pod]
	logger  *slog.Logger
	queue   *workqueue.Queue[string]
	written func(uid string)

	mu      sync.Mutex
	entries map[string]*entry
}

type entry struct {
	// pod is the newest state of the object that is known.
	pod    *corev1.Pod
	status *corev1.PodStatus
	// version counts statuses set, sent is the last one that is written, taken the last one that a writer has begun with.
	version, sent, taken int64
	// remove the object once all is sent.
	remove bool
	// gone says that the gateway has no such pod any more.
	gone bool
	// since is when what no writer has begun with was first set, trace is what it is written under.
	since time.Time
	trace trace.SpanContext
}

// New returns a manager. written, which may be nil, hears of each pod whose newest status has been written, or that
// turned out to be gone; it must not block.
func New(conn grpc.ClientConnInterface, logger *slog.Logger, written func(uid string)) *Manager {
	return &Manager{
		pods: client.For[*corev1.Pod](conn).With(&metav1.WriteOptions{FieldManager: "trireme-nodeagent"}), logger: logger, written: written,
		// The gateway being away for a moment must cost no more than that moment.
		queue:   workqueue.New[string](workqueue.Config{BaseDelay: 20 * time.Millisecond, MaxDelay: 2 * time.Second, Rate: 500, Burst: 500}),
		entries: map[string]*entry{},
	}
}

// Observe tells of the object as the gateway has it.
func (m *Manager) Observe(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(pod)
}

func (m *Manager) entry(pod *corev1.Pod) *entry {
	uid := pod.GetMetadata().GetUid()
	e := m.entries[uid]
	if e == nil {
		e = &entry{pod: pod}
		m.entries[uid] = e
	}
	if revision(pod) > revision(e.pod) {
		e.pod = pod
	}
	return e
}

func revision(pod *corev1.Pod) int64 {
	n, err := strconv.ParseInt(pod.GetMetadata().GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Set replaces a pod's status; it is sent at once unless it says what was set last. The writing is a span of ctx's trace,
// where that is recorded.
func (m *Manager) Set(ctx context.Context, pod *corev1.Pod, status *corev1.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entry(pod)
	if e.gone || (e.status != nil && proto.Equal(e.status, status)) {
		return
	}
	if e.taken == e.version {
		e.since = time.Now()
	}
	e.status, e.trace = status, trace.SpanContextFromContext(ctx)
	e.version++
	m.queue.Add(pod.GetMetadata().GetUid())
}

// Remove deletes the pod's object once its last status is written: its node has nothing of it any more. ctx is as
// for Set.
func (m *Manager) Remove(ctx context.Context, pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entry(pod); !e.remove {
		e.remove, e.trace = true, trace.SpanContextFromContext(ctx)
		m.queue.Add(pod.GetMetadata().GetUid())
	}
}

// Forget drops what is known of a pod that the gateway has no more.
func (m *Manager) Forget(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, uid)
}

// Flushed reports whether nothing that was set for a pod is still to be written.
func (m *Manager) Flushed(uid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[uid]
	return e == nil || e.gone || e.sent == e.version
}

// Run writes until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	defer m.queue.Close()
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for {
				uid, err := m.queue.Get(ctx)
				if err != nil {
					return
				}
				if err := m.process(ctx, uid); err != nil {
					if ctx.Err() == nil {
						m.logger.LogAttrs(m.logContext(ctx, uid), slog.LevelWarn, "pod status not written, will retry",
							slog.String(telemetry.KeyPodUID, uid), slog.Any(telemetry.KeyError, err))
					}
					m.queue.AddRateLimited(uid)
				} else {
					m.queue.Forget(uid)
				}
				m.queue.Done(uid)
			}
		})
	}
	wg.Wait()
	return nil
}

// logContext is ctx under the pod's trace, for lines that belong to it.
func (m *Manager) logContext(ctx context.Context, uid string) context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[uid]
	if e == nil {
		return ctx
	}
	return tracing.Context(ctx, e.pod.GetMetadata())
}

// process brings one pod up to date at the gateway.
func (m *Manager) process(ctx context.Context, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for range conflictTries {
		m.mu.Lock()
		e := m.entries[uid]
		if e == nil || e.gone {
			m.mu.Unlock()
			return nil
		}
		pod, status, version, sent, remove := e.pod, e.status, e.version, e.sent, e.remove
		e.taken = version
		since, traced := e.since, trace.ContextWithRemoteSpanContext(ctx, e.trace)
		m.mu.Unlock()

		if version > sent {
			stored, err := m.record(traced, pod, status, since)
			switch {
			case apierr.IsConflict(err):
				if err := m.refresh(ctx, uid, pod); err != nil {
					return err
				}
				continue
			case apierr.IsNotFound(err):
				m.lost(uid)
				return nil
			case err != nil:
				return fmt.Errorf("write status of pod %s: %w", name(pod), err)
			}
			m.sent(uid, version, stored)
			continue
		}
		if !remove {
			return nil
		}
		return m.delete(traced, uid, pod)
	}
	return fmt.Errorf("write status: the pod is changed by others all the time")
}

// Names of spans.
const (
	// WriteSpan is from a status being set until it is written.
	WriteSpan = "status write"
	// ReadySpan marks, without length, that a pod is Ready for the first time.
	ReadySpan = "Ready"
)

// record is write with what is said of it in ctx's trace.
func (m *Manager) record(ctx context.Context, pod *corev1.Pod, status *corev1.PodStatus, since time.Time) (*corev1.Pod, error) {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsSampled() {
		return m.write(ctx, pod, status)
	}
	writing, span := tracing.StartAt(ctx, WriteSpan, since, tracing.KeyPhase.String(status.GetPhase()))
	defer span.End()
	stored, err := m.write(writing, pod, status)
	tracing.Fail(span, err)
	// What happens to a pod later is in traces of its own.
	if err == nil && sc.TraceID() == tracing.SpanContext(pod.GetMetadata()).TraceID() && plan.Ready(status) && !plan.Ready(pod.GetStatus()) {
		now := time.Now()
		tracing.Record(ctx, ReadySpan, now, now, tracing.Pod(pod.GetMetadata())...)
	}
	return stored, err
}

// write sends a status on top of the pod's state that is known; it returns nil for the object where there is nothing
// to change.
func (m *Manager) write(ctx context.Context, pod *corev1.Pod, status *corev1.PodStatus) (*corev1.Pod, error) {
	merged := merge(pod.GetStatus(), status)
	if proto.Equal(merged, pod.GetStatus()) {
		return nil, nil
	}
	meta := pod.GetMetadata()
	return m.pods.UpdateStatus(ctx, &corev1.Pod{
		Metadata: &metav1.ObjectMeta{
			Namespace: meta.GetNamespace(), Name: meta.GetName(), Uid: meta.GetUid(), ResourceVersion: meta.GetResourceVersion(),
		},
		Spec:   pod.GetSpec(),
		Status: merged,
	})
}

// merge puts the agent's status over the gateway's: what others own there stays, and so does a phase that is final.
func merge(stored, own *corev1.PodStatus) *corev1.PodStatus {
	out := proto.CloneOf(own)
	out.NominatedNodeName = stored.GetNominatedNodeName()
	if q := stored.GetQosClass(); q != "" {
		out.QosClass = q
	}
	if plan.Terminal(stored.GetPhase()) && stored.GetPhase() != out.GetPhase() {
		out.Phase, out.Reason, out.Message = stored.GetPhase(), stored.GetReason(), stored.GetMessage()
	}
	out.Conditions = nil
	have := map[string]bool{}
	for _, c := range own.GetConditions() {
		if plan.Owned(c.GetType()) {
			out.Conditions = append(out.Conditions, c)
			have[c.GetType()] = true
		}
	}
	for _, list := range [][]*corev1.PodCondition{stored.GetConditions(), own.GetConditions()} {
		for _, c := range list {
			if !have[c.GetType()] && !plan.Owned(c.GetType()) {
				out.Conditions = append(out.Conditions, c)
				have[c.GetType()] = true
			}
		}
	}
	return out
}

func (m *Manager) refresh(ctx context.Context, uid string, pod *corev1.Pod) error {
	fresh, err := m.pods.Get(ctx, pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName())
	switch {
	case apierr.IsNotFound(err), err == nil && fresh.GetMetadata().GetUid() != uid:
		m.lost(uid)
		return nil
	case err != nil:
		return fmt.Errorf("get pod %s: %w", name(pod), err)
	}
	m.Observe(fresh)
	return nil
}

func (m *Manager) delete(ctx context.Context, uid string, pod *corev1.Pod) error {
	meta := pod.GetMetadata()
	_, err := m.pods.Delete(ctx, meta.GetNamespace(), meta.GetName(), &metav1.DeleteOptions{
		GracePeriodSeconds: proto.Int64(0), Preconditions: &metav1.Preconditions{Uid: proto.String(uid)},
	})
	// A conflict is about the uid: another pod has taken the name.
	if err != nil && !apierr.IsNotFound(err) && !apierr.IsConflict(err) {
		return fmt.Errorf("delete pod %s: %w", name(pod), err)
	}
	m.lost(uid)
	return nil
}

func (m *Manager) sent(uid string, version int64, stored *corev1.Pod) {
	m.mu.Lock()
	e := m.entries[uid]
	done := false
	if e != nil {
		e.sent = version
		if stored != nil && revision(stored) > revision(e.pod) {
			e.pod = stored
		}
		done = e.sent == e.version
	}
	m.mu.Unlock()
	if done {
		m.tell(uid)
	}
}

func (m *Manager) lost(uid string) {
	m.mu.Lock()
	if e := m.entries[uid]; e != nil {
		e.gone = true
	}
	m.mu.Unlock()
	m.tell(uid)
}

func (m *Manager) tell(uid string) {
	if m.written != nil {
		m.written(uid)
	}
}

func name(pod *corev1.Pod) string {
	return pod.GetMetadata().GetNamespace() + "/" + pod.GetMetadata().GetName()
}
