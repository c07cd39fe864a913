// Package plan decides what to do to a pod: which sandbox and containers to make, keep, stop and remove, and what its
// status is.
//
// It is pure. What is seen comes in, actions or a status come out; there is no clock, no goroutine, no I/O. The pod
// worker feeds it and does what it says:
//
//	spec ─┐
//	seen ─┼─▶ Compute ─▶ Actions      (worker acts, runtime changes, worker looks again)
//	past ─┘└▶ Status  ─▶ phase, conditions, container statuses
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/nodeagent/internal/runtime"
)

// Input is what a decision is made from. Nothing in it is changed.
type Input struct {
	// Pod as it is wanted.
	Pod *corev1.Pod
	// Seen is what the runtime knows of it; nil for nothing.
	Seen *runtime.Pod
	// Past is the status last computed, or the API's at first: it knows of containers that the runtime no longer has.
	Past *corev1.PodStatus
	// Busy names containers that are being started now; they are left alone.
	Busy map[string]bool
	// Restart names containers that were stopped to be made anew, whatever their restart policy.
	Restart map[string]bool
}

// Actions are what to do, in the order of the fields.
type Actions struct {
	// Done says that nothing runs and nothing is to be started again: the pod has come to its end.
	Done bool
	// RemoveSandbox with all containers first, since they cannot be used any more.
	RemoveSandbox bool
	// CreateSandbox before anything starts. Start is empty then: look again when the sandbox stands.
	CreateSandbox bool
	// Stop these containers.
	Stop []Stop
	// Start these containers; each may be held back by a back-off.
	Start []Start
	// Remove these dead containers.
	Remove []*runtime.Container
}

// Stop is a container to stop.
type Stop struct {
	Container *runtime.Container
	// Message for people.
	Message string
	// Restart says that it is to be made anew, whatever its restart policy.
	Restart bool
}

// Start is a container to start.
type Start struct {
	Container *corev1.Container
	// Init says what kind of container it is.
	Init bool
	// Attempt that this will be, from 0.
	Attempt int
	// Replace is the ID of a container that was made for this attempt and never started; it is to be removed first.
	Replace string
	// After is the run that this one follows; nil for the first.
	After *runtime.Container
}

// Hash identifies what a running container was made from. Name and image only: nothing else of a container may change
// while it runs, and defaults added by a later version must not restart anything.
func Hash(c *corev1.Container) string {
	sum := sha256.Sum256([]byte(c.GetName() + "\x00" + c.GetImage()))
	return hex.EncodeToString(sum[:8])
}

// IsSidecar reports whether an init container keeps running beside the others.
func IsSidecar(c *corev1.Container) bool { return c.GetRestartPolicy() == "Always" }

// Latest returns the newest container of a name, or nil.
func Latest(seen *runtime.Pod, name string) *runtime.Container {
	var latest *runtime.Container
	if seen != nil {
		for _, c := range seen.Containers {
			if c.Name == name && (latest == nil || c.Attempt >= latest.Attempt) {
				latest = c
			}
		}
	}
	return latest
}

// Compute decides what to do to a pod that is wanted.
func Compute(in Input) Actions {
	if actions, ok := in.sandbox(); ok {
		return actions
	}
	d := decision{in: in}
	if d.initialized() {
		d.apps()
	}
	d.actions.Remove = in.leftovers()
	return d.actions
}

// sandbox decides about the sandbox; false means that the one there is serves.
func (in Input) sandbox() (Actions, bool) {
	host := in.Pod.GetSpec().GetHostNetwork()
	if in.Seen != nil && in.Seen.Sandbox != nil {
		s := in.Seen.Sandbox
		if s.Ready && s.HostNetwork == host && (host || len(s.IPs) > 0) {
			return Actions{}, false
		}
	}
	if in.hasRun() && !in.wantsAnother() {
		return Actions{Done: true}, true
	}
	return Actions{RemoveSandbox: in.Seen != nil, CreateSandbox: true}, true
}

// hasRun reports whether any container of the pod was ever made.
func (in Input) hasRun() bool {
	if in.Seen != nil && len(in.Seen.Containers) > 0 {
		return true
	}
	for _, s := range in.Past.GetInitContainerStatuses() {
		if s.GetContainerId() != "" {
			return true
		}
	}
	for _, s := range in.Past.GetContainerStatuses() {
		if s.GetContainerId() != "" {
			return true
		}
	}
	return false
}

// wantsAnother reports whether a pod that has run and lost its sandbox is to get another.
func (in Input) wantsAnother() bool {
	for _, c := range in.Pod.GetSpec().GetContainers() {
		if RestartPolicy(in.Pod, c) == "Never" {
			continue
		}
		if code, ended := in.exit(c.GetName()); !ended || shouldRestart(in.Pod, c, code) {
			return true
		}
	}
	return false
}

// exit returns how the newest run of a container ended. A run that the runtime no longer knows has ended as the past
// status says, and one that was running then was lost: 137.
func (in Input) exit(name string) (code int, ended bool) {
	if c := Latest(in.Seen, name); c != nil {
		return c.ExitCode, c.State == runtime.StateExited
	}
	s := statusOf(in.Past, name)
	switch {
	case s.GetContainerId() == "":
		return 0, false
	case s.GetState().GetTerminated() != nil:
		return int(s.GetState().GetTerminated().GetExitCode()), true
	case s.GetState().GetRunning() != nil:
		return lostExitCode, true
	case s.GetLastState().GetTerminated() != nil:
		return int(s.GetLastState().GetTerminated().GetExitCode()), true
	}
	return 0, false
}

// RestartPolicy of a container: its own, or the pod's.
func RestartPolicy(pod *corev1.Pod, c *corev1.Container) string {
	if p := c.GetRestartPolicy(); p != "" {
		return p
	}
	if p := pod.GetSpec().GetRestartPolicy(); p != "" {
		return p
	}
	return "Always"
}

func shouldRestart(pod *corev1.Pod, c *corev1.Container, code int) bool {
	for _, rule := range c.GetRestartPolicyRules() {
		in := slices.Contains(rule.GetExitCodes().GetValues(), int32(code))
		if in == (rule.GetExitCodes().GetOperator() == "In") && rule.GetAction() == "Restart" {
			return true
		}
	}
	switch RestartPolicy(pod, c) {
	case "Never":
		return false
	case "OnFailure":
		return code != 0
	}
	return true
}

// shouldRestartInit is shouldRestart for an init container: one that succeeded has done its work.
func shouldRestartInit(pod *corev1.Pod, c *corev1.Container, code int) bool {
	return IsSidecar(c) || (code != 0 && shouldRestart(pod, c, code))
}

// leftovers are dead containers but for the newest dead one of each name, which the last state and the previous log
// are read from.
func (in Input) leftovers() []*runtime.Container {
	newest := map[string]*runtime.Container{}
	for _, c := range in.Seen.Containers {
		if n := newest[c.Name]; c.State == runtime.StateExited && (n == nil || c.Attempt > n.Attempt) {
			newest[c.Name] = c
		}
	}
	var old []*runtime.Container
	for _, c := range in.Seen.Containers {
		if c.State == runtime.StateExited && newest[c.Name] != c && !in.Busy[c.Name] {
			old = append(old, c)
		}
	}
	return old
}

// decision gathers actions about containers.
type decision struct {
	in      Input
	actions Actions
}

// start adds a container to be started after its newest run.
func (d *decision) start(c *corev1.Container, init bool) {
	s := Start{Container: c, Init: init}
	if past := statusOf(d.in.Past, c.GetName()); past.GetContainerId() != "" {
		s.Attempt = int(past.GetRestartCount()) + 1
	}
	if latest := Latest(d.in.Seen, c.GetName()); latest != nil {
		if latest.State == runtime.StateCreated {
			s.Attempt, s.Replace = latest.Attempt, latest.ID
		} else {
			s.Attempt, s.After = max(s.Attempt, latest.Attempt+1), latest
		}
	}
	d.actions.Start = append(d.actions.Start, s)
}

func (d *decision) stop(c *runtime.Container, message string, restart bool) {
	d.actions.Stop = append(d.actions.Stop, Stop{Container: c, Message: message, Restart: restart})
}

// initialized advances the init containers and reports whether the app containers may run.
func (d *decision) initialized() bool {
	inits := d.in.Pod.GetSpec().GetInitContainers()
	if len(inits) == 0 || d.anyAppMade() {
		return true
	}
	next := 0
scan:
	for i := len(inits) - 1; i >= 0; i-- {
		c, latest := inits[i], Latest(d.in.Seen, inits[i].GetName())
		switch {
		case d.in.Busy[c.GetName()]:
			d.sidecars(inits[:i])
			return false
		case latest == nil:
			continue
		case latest.State == runtime.StateRunning && !IsSidecar(c):
			d.sidecars(inits[:i])
			return false
		case latest.State == runtime.StateRunning, latest.State == runtime.StateExited && latest.ExitCode == 0 && !IsSidecar(c):
			next = i + 1
		case latest.State == runtime.StateUnknown:
			d.stop(latest, "Init container "+c.GetName()+" is in an unknown state, try killing it before restart", true)
			return false
		case latest.State == runtime.StateExited && !d.in.Restart[c.GetName()] && !shouldRestartInit(d.in.Pod, c, latest.ExitCode):
			d.actions.Done = true
			return false
		default:
			next = i
		}
		break scan
	}
	if next == len(inits) {
		return true
	}
	d.sidecars(inits[:next])
	d.start(inits[next], true)
	return false
}

func (d *decision) anyAppMade() bool {
	for _, c := range d.in.Pod.GetSpec().GetContainers() {
		if d.in.Busy[c.GetName()] || Latest(d.in.Seen, c.GetName()) != nil {
			return true
		}
	}
	return false
}

// sidecars starts those of the init containers again that should run and don't.
func (d *decision) sidecars(inits []*corev1.Container) {
	for _, c := range inits {
		if !IsSidecar(c) || d.in.Busy[c.GetName()] {
			continue
		}
		latest := Latest(d.in.Seen, c.GetName())
		switch {
		case latest != nil && latest.State == runtime.StateUnknown:
			d.stop(latest, "Container "+c.GetName()+" is in an unknown state, try killing it before restart", true)
		case latest == nil || latest.State != runtime.StateRunning:
			d.start(c, true)
		case latest.SpecHash != Hash(c):
			d.stop(latest, "Container "+c.GetName()+" definition changed, will be restarted", true)
		}
	}
}

// apps decides about the app containers of an initialized pod.
func (d *decision) apps() {
	kept := 0
	for _, c := range d.in.Pod.GetSpec().GetContainers() {
		name := c.GetName()
		latest := Latest(d.in.Seen, name)
		switch {
		case d.in.Busy[name]:
			kept++
		case latest == nil:
			code, ended := d.in.exit(name)
			if !ended || shouldRestart(d.in.Pod, c, code) {
				d.start(c, false)
			}
		case latest.State == runtime.StateUnknown:
			d.stop(latest, "Container "+name+" is in an unknown state, try killing it before restart", true)
		case latest.State == runtime.StateCreated:
			d.start(c, false)
		case latest.State == runtime.StateExited:
			if d.in.Restart[name] || shouldRestart(d.in.Pod, c, latest.ExitCode) {
				d.start(c, false)
			}
		case latest.SpecHash != Hash(c):
			d.stop(latest, "Container "+name+" definition changed, will be restarted", true)
		default:
			kept++
		}
	}
	if kept == 0 && len(d.actions.Start) == 0 && len(d.actions.Stop) == 0 {
		d.actions.Done = true
		return
	}
	d.sidecars(d.in.Pod.GetSpec().GetInitContainers())
}
