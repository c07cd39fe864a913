package plan

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/nodeagent/internal/runtime"
)

// lostExitCode is what Kubernetes reports of a container whose end nobody saw.
const lostExitCode = 137

// Waiting says what a container waits for.
type Waiting struct{ Reason, Message string }

// StatusInput is what a status is computed from, besides the pod and what is seen of it.
type StatusInput struct {
	Input
	// Waiting says what containers wait for that do not run: CrashLoopBackOff, ErrImagePull.
	Waiting map[string]Waiting
	// Reason and Message of the pod as a whole, and Phase where it does not follow from the containers: a pod that was
	// rejected is Failed.
	Phase, Reason, Message string
	// Final says that the pod is at its end: nothing runs and nothing will be started again.
	Final bool
	// HostIPs of the node.
	HostIPs []string
	// RuntimeName prefixes container IDs: containerd.
	RuntimeName string
	// Now is when the status is computed.
	Now time.Time
}

// Status computes a pod's status. The phase of a pod that has ended once stays. Conditions of types that the agent does
// not own are kept as Past has them.
func Status(in StatusInput) *corev1.PodStatus {
	spec := in.Pod.GetSpec()
	out := &corev1.PodStatus{
		ObservedGeneration: in.Pod.GetMetadata().GetGeneration(),
		NominatedNodeName:  in.Past.GetNominatedNodeName(),
		QosClass:           in.Past.GetQosClass(),
		StartTime:          in.Past.GetStartTime(),
		PodIp:              in.Past.GetPodIp(),
		PodIps:             in.Past.GetPodIps(),
		Reason:             in.Reason,
		Message:            in.Message,
	}
	if out.StartTime == nil {
		out.StartTime = timestamppb.New(in.Now.Truncate(time.Second))
	}
	in.addresses(out)
	// A pod that was rejected has no containers to speak of.
	if in.Phase == "" || in.hasRun() {
		for _, c := range spec.GetInitContainers() {
			out.InitContainerStatuses = append(out.InitContainerStatuses, in.container(c, true))
		}
		for _, c := range spec.GetContainers() {
			out.ContainerStatuses = append(out.ContainerStatuses, in.container(c, false))
		}
	}
	out.Phase = in.Phase
	if out.Phase == "" {
		out.Phase = Phase(in.Pod, out, in.Restart, in.Final)
	}
	if past := in.Past.GetPhase(); Terminal(past) {
		out.Phase = past
	}
	if out.Phase == in.Past.GetPhase() && out.Reason == "" && Terminal(out.Phase) {
		out.Reason, out.Message = in.Past.GetReason(), in.Past.GetMessage()
	}
	out.Conditions = in.conditions(out)
	return out
}

func (in StatusInput) addresses(out *corev1.PodStatus) {
	for i, ip := range in.HostIPs {
		if i == 0 {
			out.HostIp = ip
		}
		out.HostIps = append(out.HostIps, &corev1.HostIP{Ip: ip})
	}
	var ips []string
	switch {
	case in.Seen == nil || in.Seen.Sandbox == nil || !in.Seen.Sandbox.Ready:
		return
	case in.Pod.GetSpec().GetHostNetwork():
		ips = in.HostIPs
	default:
		ips = in.Seen.Sandbox.IPs
	}
	if len(ips) == 0 {
		return
	}
	out.PodIp, out.PodIps = ips[0], nil
	for _, ip := range ips {
		out.PodIps = append(out.PodIps, &corev1.PodIP{Ip: ip})
	}
}

func (in StatusInput) container(c *corev1.Container, init bool) *corev1.ContainerStatus {
	name := c.GetName()
	past := statusOf(in.Past, name)
	out := &corev1.ContainerStatus{
		Name: name, Image: c.GetImage(), RestartCount: past.GetRestartCount(), LastState: past.GetLastState(),
		ImageId: past.GetImageId(), ContainerId: past.GetContainerId(), State: &corev1.ContainerState{},
	}
	if out.LastState == nil {
		out.LastState = &corev1.ContainerState{}
	}
	latest, before := Latest(in.Seen, name), in.before(name)
	switch {
	case latest == nil:
		in.unseen(c, past, out)
	case latest.State == runtime.StateCreated:
		// Not a run yet: what is known of the one before stays.
		in.unseen(c, past, out)
	default:
		out.Image, out.ImageId, out.ContainerId = latest.Image, latest.ImageID, in.id(latest)
		out.RestartCount = max(int32(latest.Attempt), past.GetRestartCount())
		out.State = in.state(latest)
		if before != nil {
			out.LastState = &corev1.ContainerState{Terminated: in.terminated(before)}
		}
	}
	if w, ok := in.Waiting[name]; ok && in.waits(c, init, out) {
		if t := out.GetState().GetTerminated(); t != nil {
			out.LastState = &corev1.ContainerState{Terminated: t}
		}
		out.State = &corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: w.Reason, Message: w.Message}}
	}
	running := out.GetState().GetRunning() != nil
	out.Ready, out.Started = running, proto.Bool(running)
	if init && !IsSidecar(c) {
		t := out.GetState().GetTerminated()
		out.Ready = t != nil && t.GetExitCode() == 0
	}
	return out
}

// waits reports whether a container is still to be started.
func (in StatusInput) waits(c *corev1.Container, init bool, s *corev1.ContainerStatus) bool {
	if in.Final || s.GetState().GetRunning() != nil {
		return false
	}
	t := s.GetState().GetTerminated()
	switch {
	case t == nil || in.Restart[c.GetName()]:
		return true
	case init:
		return shouldRestartInit(in.Pod, c, int(t.GetExitCode()))
	}
	return shouldRestart(in.Pod, c, int(t.GetExitCode()))
}

// unseen is a container of which no run is seen. A run that the past knew and nobody saw end was lost.
func (in StatusInput) unseen(c *corev1.Container, past, out *corev1.ContainerStatus) {
	switch state := past.GetState(); {
	case state.GetTerminated() != nil:
		out.State = state
	case state.GetRunning() != nil:
		out.State = &corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: lostExitCode, Reason: "ContainerStatusUnknown",
			Message:     "The container could not be located when the pod was last looked at",
			StartedAt:   state.GetRunning().GetStartedAt(),
			FinishedAt:  timestamppb.New(in.Now.Truncate(time.Second)),
			ContainerId: past.GetContainerId(),
		}}
	default:
		reason := "ContainerCreating"
		if len(in.Pod.GetSpec().GetInitContainers()) > 0 {
			reason = "PodInitializing"
		}
		out.State = &corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
}

// before returns the newest dead run of a container older than its latest, or nil.
func (in StatusInput) before(name string) *runtime.Container {
	if in.Seen == nil {
		return nil
	}
	latest := Latest(in.Seen, name)
	var before *runtime.Container
	for _, c := range in.Seen.Containers {
		if c.Name == name && c != latest && c.State == runtime.StateExited && (before == nil || c.Attempt > before.Attempt) {
			before = c
		}
	}
	return before
}

func (in StatusInput) id(c *runtime.Container) string { return in.RuntimeName + "://" + c.ID }

func (in StatusInput) state(c *runtime.Container) *corev1.ContainerState {
	switch c.State {
	case runtime.StateRunning:
		return &corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: stamp(c.StartedAt)}}
	case runtime.StateExited:
		return &corev1.ContainerState{Terminated: in.terminated(c)}
	}
	return &corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: lostExitCode, Reason: "ContainerStatusUnknown", Message: "The runtime does not know the state of the container",
		StartedAt: stamp(c.StartedAt), ContainerId: in.id(c),
	}}
}

func (in StatusInput) terminated(c *runtime.Container) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{
		ExitCode: int32(c.ExitCode), Message: c.TerminationMessage, ContainerId: in.id(c),
		StartedAt: stamp(c.StartedAt), FinishedAt: stamp(c.FinishedAt),
	}
	switch {
	case c.OOMKilled:
		t.Reason = "OOMKilled"
	case c.StartError != "":
		t.Reason, t.Message = "StartError", c.StartError
	case c.ExitCode == 0:
		t.Reason = "Completed"
	default:
		t.Reason = "Error"
	}
	return t
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t.Truncate(time.Second))
}

// owned are the types of conditions that the agent computes. PodScheduled is the scheduler's; the agent adds it only
// where a pod came to its node without a scheduler.
var owned = []string{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"}

func (in StatusInput) conditions(out *corev1.PodStatus) []*corev1.PodCondition {
	var list []*corev1.PodCondition
	add := func(kind string, ok bool, reason, message string) {
		status := "False"
		if ok {
			status = "True"
		}
		list = append(list, &corev1.PodCondition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: out.GetObservedGeneration(),
		})
	}
	sandbox := in.Seen != nil && in.Seen.Sandbox != nil && in.Seen.Sandbox.Ready && !in.Final
	add("PodReadyToStartContainers", sandbox && out.GetPodIp() != "", "", "")

	incomplete := in.incomplete(out)
	switch {
	case len(incomplete) == 0 && out.GetPhase() == Succeeded:
		add("Initialized", true, "PodCompleted", "")
	case len(incomplete) == 0:
		add("Initialized", true, "", "")
	default:
		add("Initialized", false, "ContainersNotInitialized", "containers with incomplete status: ["+strings.Join(incomplete, " ")+"]")
	}

	ready, reason, message := in.ready(out)
	gates, gateMessage := in.gates()
	switch {
	case ready && !gates:
		add("Ready", false, "ReadinessGatesNotReady", gateMessage)
	default:
		add("Ready", ready, reason, message)
	}
	add("ContainersReady", ready, reason, message)

	for _, c := range list {
		in.transition(c)
	}
	return append(list, in.foreign()...)
}

// foreign are the conditions of others, kept as they are.
func (in StatusInput) foreign() []*corev1.PodCondition {
	var list []*corev1.PodCondition
	scheduled := false
	for _, c := range in.Past.GetConditions() {
		if !Owned(c.GetType()) {
			list = append(list, c)
			scheduled = scheduled || c.GetType() == "PodScheduled"
		}
	}
	if !scheduled {
		list = append(list, &corev1.PodCondition{
			Type: "PodScheduled", Status: "True", LastTransitionTime: stamp(in.Now),
			ObservedGeneration: in.Pod.GetMetadata().GetGeneration(),
		})
	}
	return list
}

// Owned reports whether the agent computes conditions of this type.
func Owned(kind string) bool {
	for _, o := range owned {
		if o == kind {
			return true
		}
	}
	return false
}

func (in StatusInput) incomplete(out *corev1.PodStatus) []string {
	var names []string
	for _, c := range in.Pod.GetSpec().GetInitContainers() {
		if s := statusOf(out, c.GetName()); !s.GetReady() {
			names = append(names, c.GetName())
		}
	}
	for _, s := range out.GetContainerStatuses() {
		if s.GetState().GetRunning() != nil || s.GetState().GetTerminated() != nil || s.GetLastState().GetTerminated() != nil {
			return nil
		}
	}
	return names
}

func (in StatusInput) ready(out *corev1.PodStatus) (ok bool, reason, message string) {
	switch out.GetPhase() {
	case Succeeded:
		return false, "PodCompleted", ""
	case Failed:
		return false, "PodFailed", ""
	}
	var unready []string
	for _, list := range [][]*corev1.ContainerStatus{out.GetInitContainerStatuses(), out.GetContainerStatuses()} {
		for _, s := range list {
			if !s.GetReady() {
				unready = append(unready, s.GetName())
			}
		}
	}
	if len(unready) > 0 {
		return false, "ContainersNotReady", "containers with unready status: [" + strings.Join(unready, " ") + "]"
	}
	return true, "", ""
}

func (in StatusInput) gates() (bool, string) {
	var messages []string
gates:
	for _, g := range in.Pod.GetSpec().GetReadinessGates() {
		for _, c := range in.Past.GetConditions() {
			if c.GetType() == g.GetConditionType() {
				if c.GetStatus() != "True" {
					messages = append(messages, `the status of pod readiness gate "`+g.GetConditionType()+`" is not "True", but `+c.GetStatus())
				}
				continue gates
			}
		}
		messages = append(messages, `corresponding condition of pod readiness gate "`+g.GetConditionType()+`" does not exist.`)
	}
	return len(messages) == 0, strings.Join(messages, ", ")
}

// transition keeps the time of the last change where the status is the same.
func (in StatusInput) transition(c *corev1.PodCondition) {
	for _, past := range in.Past.GetConditions() {
		if past.GetType() == c.GetType() && past.GetStatus() == c.GetStatus() {
			c.LastTransitionTime = past.GetLastTransitionTime()
			return
		}
	}
	c.LastTransitionTime = stamp(in.Now)
}
