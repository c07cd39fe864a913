// Package report tells people what became of pods and groups: it writes the condition PodScheduled of pods that were not
// placed, the condition of pod groups, and events. Nothing waits for it: of several reports on the same object only the
// newest is written, and one that says what the object says already is not written at all.
package report

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/event"
	"trireme.dev/client/workqueue"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/telemetry"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
)

// Reasons of the condition PodScheduled while it is False, and of the condition of a group.
const (
	ReasonUnschedulable   = "Unschedulable"
	ReasonSchedulerError  = "SchedulerError"
	ReasonSchedulingGated = "SchedulingGated"
	ReasonScheduled       = "Scheduled"
)

const (
	podScheduled = "PodScheduled"
	// groupScheduled is Kubernetes' name of the condition since 1.37; 1.36 called it PodGroupScheduled.
	groupScheduled = "PodGroupInitiallyScheduled"

	statusTrue, statusFalse = "True", "False"

	writers  = 4
	maxTries = 8
)

// Verdict is what a report says.
type Verdict struct {
	// Scheduled is the condition's status.
	Scheduled bool
	// Reason in one CamelCase word; empty for a nomination alone.
	Reason string
	// Message for people.
	Message string
	// NominatedNode is where room is being made for the pod; empty leaves the field.
	NominatedNode string
	// ClearNomination empties the field.
	ClearNomination bool
}

// Reporter writes conditions and events. A nil one tells nobody.
type Reporter struct {
	events *event.Recorder
	pods   *client.Resource[*corev1.Pod]
	groups *client.Resource[*schedulingv1.PodGroup]
	queue  *workqueue.Queue[key]
	logger *slog.Logger

	mu      sync.Mutex
	pending map[key]report
}

type key struct {
	group           bool
	namespace, name string
}

// report holds the object as it was when the report was made; exactly one of the two is set.
type report struct {
	pod     *corev1.Pod
	group   *schedulingv1.PodGroup
	verdict Verdict
}

// New returns a reporter for the scheduler of that name.
func New(conn grpc.ClientConnInterface, component string, logger *slog.Logger) *Reporter {
	events := event.NewRecorder(conn, component)
	events.Logger = logger
	return &Reporter{
		events:  events,
		pods:    client.For[*corev1.Pod](conn),
		groups:  client.For[*schedulingv1.PodGroup](conn),
		queue:   workqueue.New[key](workqueue.Config{BaseDelay: 20 * time.Millisecond, MaxDelay: 30 * time.Second, Rate: 1000, Burst: 1000}),
		logger:  logger,
		pending: make(map[key]report),
	}
}

// Run writes until ctx ends.
func (r *Reporter) Run(ctx context.Context) error {
	tasks := []daemon.Task{{Name: "events", Run: r.events.Run}}
	for range writers {
		tasks = append(tasks, daemon.Task{Name: "conditions", Run: r.write})
	}
	return daemon.Run(ctx, tasks...)
}

// Scheduled says that the pod was bound. The gateway wrote the condition with the binding.
func (r *Reporter) Scheduled(pod *corev1.Pod, node string) {
	if r == nil {
		return
	}
	meta := pod.GetMetadata()
	r.forget(key{namespace: meta.GetNamespace(), name: meta.GetName()})
	r.events.Event(pod, event.Normal, "Scheduled",
		"Successfully assigned "+meta.GetNamespace()+"/"+meta.GetName()+" to "+node)
}

// Event tells people about an object.
func (r *Reporter) Event(object client.Object, eventType, reason, message string) {
	r.events.Event(object, eventType, reason, message)
}

// Nominated says that the pod is going to be bound to the node, and what is still to be done before takes a while.
func (r *Reporter) Nominated(pod *corev1.Pod, node string) { r.Pod(pod, Verdict{NominatedNode: node}) }

// FailedScheduling says that an attempt at the pod failed, by event and condition.
func (r *Reporter) FailedScheduling(pod *corev1.Pod, v Verdict) {
	if r == nil {
		return
	}
	r.events.Event(pod, event.Warning, "FailedScheduling", v.Message)
	r.Pod(pod, v)
}

// Pod sets the condition PodScheduled.
func (r *Reporter) Pod(pod *corev1.Pod, v Verdict) {
	k := key{namespace: pod.GetMetadata().GetNamespace(), name: pod.GetMetadata().GetName()}
	r.add(k, report{pod: pod, verdict: v})
}

// Group sets the group's condition. Once True it stays so. A group whose pods were preempted as a whole is no more about to go
// once it is scheduled anew.
func (r *Reporter) Group(group *schedulingv1.PodGroup, v Verdict) {
	if group == nil {
		return
	}
	k := key{group: true, namespace: group.GetMetadata().GetNamespace(), name: group.GetMetadata().GetName()}
	r.add(k, report{group: group, verdict: v})
}

func (r *Reporter) add(k key, rep report) {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.pending[k] = rep
	r.mu.Unlock()
	r.queue.Add(k)
}

func (r *Reporter) forget(k key) {
	r.mu.Lock()
	delete(r.pending, k)
	r.mu.Unlock()
}

func (r *Reporter) write(ctx context.Context) error {
	for {
		k, err := r.queue.Get(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		r.mu.Lock()
		rep, ok := r.pending[k]
		delete(r.pending, k)
		r.mu.Unlock()
		if ok {
			err = r.writeOne(ctx, rep)
		}
		r.queue.Done(k)
		switch {
		case err == nil, apierr.IsNotFound(err), ctx.Err() != nil:
			r.queue.Forget(k)
		case r.queue.Failures(k) >= maxTries:
			r.queue.Forget(k)
			r.logger.Warn("condition not written", slog.String(telemetry.KeyKey, k.namespace+"/"+k.name), slog.Any(telemetry.KeyError, err))
		default:
			r.mu.Lock()
			if _, newer := r.pending[k]; !newer {
				r.pending[k] = rep
			}
			r.mu.Unlock()
			r.queue.AddRateLimited(k)
		}
	}
}

// writeOne writes the status as a whole under its resourceVersion: a patch of one condition would replace the list, and
// with it what others wrote meanwhile.
func (r *Reporter) writeOne(ctx context.Context, rep report) error {
	for try := 0; ; try++ {
		var err error
		if rep.group != nil {
			err = r.writeGroup(ctx, rep.group, rep.verdict)
		} else {
			err = r.writePod(ctx, rep.pod, rep.verdict)
		}
		if !apierr.IsConflict(err) || try >= 3 {
			return err
		}
		if rep.group != nil {
			fresh, err := r.groups.Get(ctx, rep.group.GetMetadata().GetNamespace(), rep.group.GetMetadata().GetName())
			if err != nil {
				return err
			}
			if fresh.GetMetadata().GetUid() != rep.group.GetMetadata().GetUid() {
				return nil
			}
			rep.group = fresh
			continue
		}
		fresh, err := r.pods.Get(ctx, rep.pod.GetMetadata().GetNamespace(), rep.pod.GetMetadata().GetName())
		if err != nil {
			return err
		}
		if fresh.GetMetadata().GetUid() != rep.pod.GetMetadata().GetUid() {
			return nil // another pod of that name
		}
		rep.pod = fresh
	}
}

func (r *Reporter) writePod(ctx context.Context, pod *corev1.Pod, v Verdict) error {
	if pod.GetSpec().GetNodeName() != "" {
		return nil // bound meanwhile: the condition is the gateway's
	}
	pod = proto.CloneOf(pod)
	if pod.Status == nil {
		pod.Status = &corev1.PodStatus{}
	}
	changed := v.Reason != "" && setPodCondition(pod, v)
	if n := v.NominatedNode; (n != "" || v.ClearNomination) && pod.GetStatus().GetNominatedNodeName() != n {
		pod.Status.NominatedNodeName, changed = n, true
	}
	if !changed {
		return nil
	}
	_, err := r.pods.UpdateStatus(ctx, pod)
	return err
}

func setPodCondition(pod *corev1.Pod, v Verdict) bool {
	now := timestamppb.Now()
	status := statusOf(v)
	for _, c := range pod.Status.Conditions {
		if c.GetType() != podScheduled {
			continue
		}
		if c.GetStatus() == status && c.GetReason() == v.Reason && c.GetMessage() == v.Message {
			return false
		}
		if c.GetStatus() != status {
			c.LastTransitionTime = now
		}
		c.Status, c.Reason, c.Message = status, v.Reason, v.Message
		return true
	}
	pod.Status.Conditions = append(pod.Status.Conditions, &corev1.PodCondition{
		Type: podScheduled, Status: status, Reason: v.Reason, Message: v.Message, LastTransitionTime: now,
	})
	return true
}

func (r *Reporter) writeGroup(ctx context.Context, group *schedulingv1.PodGroup, v Verdict) error {
	group = proto.CloneOf(group)
	changed := setGroupCondition(group, v)
	if v.Scheduled && endDisruption(group, v) {
		changed = true
	}
	if !changed {
		return nil
	}
	_, err := r.groups.UpdateStatus(ctx, group)
	return err
}

func setGroupCondition(group *schedulingv1.PodGroup, v Verdict) bool {
	if group.Status == nil {
		group.Status = &schedulingv1.PodGroupStatus{}
	}
	now := timestamppb.Now()
	status := statusOf(v)
	for _, c := range group.Status.Conditions {
		if c.GetType() != groupScheduled {
			continue
		}
		if c.GetStatus() == statusTrue || (c.GetStatus() == status && c.GetReason() == v.Reason && c.GetMessage() == v.Message) {
			return false
		}
		if c.GetStatus() != status {
			c.LastTransitionTime = now
		}
		c.Status, c.Reason, c.Message = status, v.Reason, v.Message
		c.ObservedGeneration = group.GetMetadata().GetGeneration()
		return true
	}
	group.Status.Conditions = append(group.Status.Conditions, &metav1.Condition{
		Type: groupScheduled, Status: status, Reason: v.Reason, Message: v.Message, LastTransitionTime: now,
		ObservedGeneration: group.GetMetadata().GetGeneration(),
	})
	return true
}

func endDisruption(group *schedulingv1.PodGroup, v Verdict) bool {
	for _, c := range group.Status.Conditions {
		if c.GetType() == framework.ConditionDisruptionTarget && c.GetStatus() == statusTrue {
			c.Status, c.Reason, c.Message, c.LastTransitionTime = statusFalse, v.Reason, v.Message, timestamppb.Now()
			return true
		}
	}
	return false
}

func statusOf(v Verdict) string {
	if v.Scheduled {
		return statusTrue
	}
	return statusFalse
}
