package podworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"trireme.dev/client/event"
	"trireme.dev/client/tracing"
	"trireme.dev/kit/telemetry"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/nodeagent/internal/containerspec"
	"trireme.dev/services/nodeagent/internal/plan"
	"trireme.dev/services/nodeagent/internal/podconfig"
	"trireme.dev/services/nodeagent/internal/runtime"
	"trireme.dev/services/nodeagent/internal/volume"
)

const (
	fetchTimeout = 10 * time.Second
	// refreshPeriod is how old the ConfigMaps and Secrets in a pod's volumes may get.
	refreshPeriod = time.Minute
	// pullErrorShown is how long ErrImagePull stands before it becomes ImagePullBackOff.
	pullErrorShown = time.Second
	retryLimit     = 30 * time.Second
)

// waitError keeps a container from starting for a reason that its status names.
type waitError struct {
	reason string
	err    error
}

func (e *waitError) Error() string { return e.err.Error() }
func (e *waitError) Unwrap() error { return e.err }

type imageError struct {
	at   time.Time
	text string
}

// due picks those of the containers to be started that no back-off holds, and says of the others what they wait for.
func (w *worker) due(pod *corev1.Pod, starts []plan.Start) []plan.Start {
	var due []plan.Start
	if !w.allocated {
		return nil
	}
	for _, s := range starts {
		name := s.Container.GetName()
		if w.held(name) || w.imageHeld(pod, s.Container) || w.crashHeld(pod, s) {
			w.trail.wait(w.waiting[name].Reason)
			continue
		}
		due = append(due, s)
	}
	return due
}

func (w *worker) imageHeld(pod *corev1.Pod, c *corev1.Container) bool {
	key := imageKey(c)
	until, _ := w.image.WaitSinceUpdate(key)
	now := time.Now()
	if !now.Before(until) {
		return false
	}
	failed := w.imageErrors[key]
	if shown := failed.at.Add(pullErrorShown); now.Before(shown) {
		w.again(shown)
		return true
	}
	w.again(until)
	w.waiting[c.GetName()] = plan.Waiting{
		Reason: "ImagePullBackOff", Message: fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", c.GetImage(), failed.text),
	}
	w.announce(pod, key, until, fmt.Sprintf("Back-off pulling image %q: %s", c.GetImage(), failed.text))
	return true
}

func (w *worker) crashHeld(pod *corev1.Pod, s plan.Start) bool {
	if s.After == nil {
		return false
	}
	name := s.Container.GetName()
	until, delay := w.crash.Wait(crashKey(s.Container), s.After.FinishedAt)
	if !time.Now().Before(until) {
		return false
	}
	w.again(until)
	meta := pod.GetMetadata()
	who := fmt.Sprintf("%s_%s(%s)", meta.GetName(), meta.GetNamespace(), meta.GetUid())
	w.waiting[name] = plan.Waiting{
		Reason: "CrashLoopBackOff", Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", delay, name, who),
	}
	w.announce(pod, crashKey(s.Container), until, fmt.Sprintf("Back-off restarting failed container %s in pod %s", name, who))
	return true
}

// announce emits a BackOff event once for each wait.
func (w *worker) announce(pod *corev1.Pod, key string, until time.Time, text string) {
	if !w.announced[key].Equal(until) {
		w.announced[key] = until
		w.m.deps.Events.Event(pod, event.Warning, "BackOff", text)
	}
}

func imageKey(c *corev1.Container) string { return "image " + c.GetName() + " " + c.GetImage() }
func crashKey(c *corev1.Container) string { return "crash " + plan.Hash(c) }

// refreshDue reports whether volumes show API objects that may have changed, and asks for a step when they may have.
func (w *worker) refreshDue(pod *corev1.Pod) bool {
	shows := false
	for _, v := range pod.GetSpec().GetVolumes() {
		shows = shows || v.GetConfigMap() != nil || v.GetSecret() != nil || v.GetProjected() != nil || v.GetDownwardApi() != nil
	}
	if !shows {
		return false
	}
	at := w.refreshed.Add(refreshPeriod)
	if time.Now().Before(at) {
		w.again(at.Add(time.Duration(rand.Int64N(int64(5 * time.Second)))))
		return false
	}
	return true
}

// setup makes the sandbox, where that is asked for, and the volumes, side by side.
func (w *worker) setup(pod *corev1.Pod, actions plan.Actions) {
	previous := w.objects
	var podIPs []string
	if w.seen != nil && w.seen.Sandbox != nil {
		podIPs = w.seen.Sandbox.IPs
	}
	if actions.RemoveSandbox && w.seen.Sandbox != nil {
		w.m.deps.Events.Event(pod, event.Normal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	if actions.CreateSandbox {
		w.trail.open(syncSpan, opSync)
	}
	w.do(setupKey, func(ctx context.Context) func() {
		var sandbox *runtime.Sandbox
		var sandboxErr error
		var wg sync.WaitGroup
		if actions.CreateSandbox {
			wg.Go(func() { sandbox, sandboxErr = w.makeSandbox(ctx, pod, actions.RemoveSandbox) })
		}
		var objects *podconfig.Objects
		var paths map[string]string
		volumeErr := within(ctx, mountSpan, func(ctx context.Context) (err error) {
			fetch, cancel := context.WithTimeout(ctx, fetchTimeout)
			defer cancel()
			objects = podconfig.Fetch(fetch, w.m.deps.Conn, pod, previous)
			paths, err = w.m.deps.Volumes.Setup(volume.Pod{Pod: pod, Node: w.m.cfg.Node(), PodIPs: podIPs, Objects: objects})
			return err
		}, tracing.KeyCount.Int(len(pod.GetSpec().GetVolumes())))
		wg.Wait()
		if ctx.Err() != nil {
			return func() {}
		}
		return func() {
			w.refreshed = time.Now()
			w.objects, w.paths = objects, paths
			if sandbox != nil {
				w.seen = &runtime.Pod{
					UID: w.uid, Namespace: pod.GetMetadata().GetNamespace(), Name: pod.GetMetadata().GetName(), Sandbox: sandbox,
				}
				w.setPrint(w.seen)
			}
			w.setUp(pod, sandboxErr, volumeErr)
		}
	})
}

func (w *worker) makeSandbox(ctx context.Context, pod *corev1.Pod, remove bool) (*runtime.Sandbox, error) {
	if !w.acquire(ctx) {
		return nil, ctx.Err()
	}
	defer w.release()
	if remove {
		if err := within(ctx, removeSpan, func(ctx context.Context) error { return w.m.deps.Runtime.RemoveSandbox(ctx, w.uid) }); err != nil {
			return nil, err
		}
	}
	var sandbox *runtime.Sandbox
	err := within(ctx, sandboxSpan, func(ctx context.Context) (err error) {
		sandbox, err = w.m.deps.Runtime.CreateSandbox(ctx, containerspec.Sandbox(pod, w.m.cfg.Node()))
		return err
	})
	w.m.count.sandbox(ctx, err)
	return sandbox, err
}

// setUp judges how the setup went.
func (w *worker) setUp(pod *corev1.Pod, sandboxErr, volumeErr error) {
	events := w.m.deps.Events
	switch {
	case errors.Is(sandboxErr, runtime.ErrNetworkNotReady):
		w.setupWait = "NetworkNotReady"
		events.Event(pod, event.Warning, "NetworkNotReady", "network is not ready: "+sandboxErr.Error())
	case sandboxErr != nil:
		w.setupWait = "FailedCreatePodSandBox"
		// The one there was may be gone all the same.
		w.look.Store(true)
		events.Event(pod, event.Warning, "FailedCreatePodSandBox", "Failed to create pod sandbox: "+sandboxErr.Error())
		w.m.logIfFailed(w.opCtx, "create sandbox", sandboxErr)
	}
	for _, err := range unjoin(volumeErr) {
		w.setupWait = "FailedMount"
		events.Event(pod, event.Warning, "FailedMount", err.Error())
	}
	if sandboxErr != nil || volumeErr != nil {
		w.prepared = false
		w.hold(setupKey, retrySoon, retryLimit)
		return
	}
	delete(w.holds, setupKey)
	w.prepared = true
}

func unjoin(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// start begins the start of one container. Others don't wait for it.
func (w *worker) start(pod *corev1.Pod, s plan.Start) {
	if s.After != nil {
		w.crash.Next(crashKey(s.Container), s.After.FinishedAt, time.Now())
	}
	var podIPs []string
	if w.seen != nil && w.seen.Sandbox != nil {
		podIPs = w.seen.Sandbox.IPs
	}
	objects, paths := w.objects, w.paths
	if s.After != nil && !s.Init {
		w.trail.starting = false // it was up, if not for long
	}
	w.trail.open(syncSpan, opSync)
	w.do(s.Container.GetName(), func(ctx context.Context) func() {
		begin := time.Now()
		err := within(ctx, imageSpan, func(ctx context.Context) error { return w.ensureImage(ctx, pod, s.Container) },
			tracing.KeyContainer.String(s.Container.GetName()), tracing.KeyImage.String(s.Container.GetImage()))
		pulled := time.Since(begin)
		var spec runtime.ContainerSpec
		if err == nil {
			spec, err = w.spec(pod, s, podIPs, objects, paths)
		}
		if err == nil {
			err = w.bringUp(ctx, pod, s, spec)
		}
		return func() {
			w.pulls = max(w.pulls, pulled) // side by side
			w.started(pod, s, err)
		}
	})
}

// spec says what the container is made of.
func (w *worker) spec(
	pod *corev1.Pod, s plan.Start, podIPs []string, objects *podconfig.Objects, paths map[string]string,
) (runtime.ContainerSpec, error) {
	c, node := s.Container, w.m.cfg.Node()
	env, err := containerspec.Environment(pod, c, node, podIPs, objects)
	if err != nil {
		return runtime.ContainerSpec{}, &waitError{"CreateContainerConfigError", err}
	}
	spec := containerspec.Container(pod, c, s.Init, env, node)
	spec.Attempt, spec.SpecHash = s.Attempt, plan.Hash(c)
	if spec.Mounts, err = w.m.deps.Volumes.Mounts(pod, c, paths, env.Expand); err != nil {
		return spec, &waitError{"CreateContainerConfigError", err}
	}
	if spec.Devices, err = w.m.deps.Devices.Options(w.uid, c.GetName()); err != nil {
		return spec, &waitError{"CreateContainerConfigError", err}
	}
	spec.LogPath = LogPath(w.m.cfg.LogDir, pod, c.GetName(), s.Attempt)
	if err := os.MkdirAll(filepath.Dir(spec.LogPath), 0o755); err != nil {
		return spec, &waitError{"CreateContainerError", err}
	}
	return spec, nil
}

// bringUp makes and starts the container. No other call about this pod is made meanwhile.
func (w *worker) bringUp(ctx context.Context, pod *corev1.Pod, s plan.Start, spec runtime.ContainerSpec) error {
	// The pod may have come to its end while others were being started.
	if !w.acquire(ctx) {
		return ctx.Err()
	}
	defer w.release()
	r, events := w.m.deps.Runtime, w.m.deps.Events
	if s.Replace != "" {
		if err := r.RemoveContainer(ctx, s.Replace); err != nil {
			return &waitError{"CreateContainerError", err}
		}
	}
	var id string
	err := within(ctx, createSpan, func(ctx context.Context) (err error) {
		id, err = r.CreateContainer(ctx, spec)
		return err
	}, tracing.KeyContainer.String(spec.Name), tracing.KeyAttempt.Int(spec.Attempt+1))
	if err != nil {
		return &waitError{"CreateContainerError", err}
	}
	events.Event(pod, event.Normal, "Created", "Created container: "+spec.Name)
	if err := w.m.deps.Devices.PreStart(ctx, w.uid, spec.Name); err != nil {
		return &waitError{"PreStartContainerError", err}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err = within(ctx, startSpan, func(ctx context.Context) error { return r.StartContainer(ctx, id) },
		tracing.KeyContainer.String(spec.Name), tracing.KeyContainerID.String(id))
	if err != nil {
		return &waitError{"RunContainerError", err}
	}
	events.Event(pod, event.Normal, "Started", "Started container "+spec.Name)
	return nil
}

// started judges how a start went.
func (w *worker) started(pod *corev1.Pod, s plan.Start, err error) {
	c, name := s.Container, s.Container.GetName()
	if w.state != syncing {
		return
	}
	if err == nil {
		w.m.count.container(w.opCtx, s.Init, "")
		delete(w.waiting, name)
		delete(w.restart, name)
		delete(w.holds, name)
		w.image.Forget(imageKey(c))
		return
	}
	if errors.Is(err, context.Canceled) {
		return
	}
	reason := "CreateContainerError"
	var wait *waitError
	if errors.As(err, &wait) {
		reason = wait.reason
	}
	w.waiting[name] = plan.Waiting{Reason: reason, Message: err.Error()}
	w.m.count.container(w.opCtx, s.Init, reason)
	w.log.LogAttrs(w.trail.own, slog.LevelInfo, "container does not start", slog.String(telemetry.KeyContainer, name),
		slog.String(telemetry.KeyReason, reason), slog.Any(telemetry.KeyError, err))
	switch reason {
	case "ErrImagePull":
		now := time.Now()
		w.image.Next(imageKey(c), now, now)
		w.imageErrors[imageKey(c)] = imageError{at: now, text: err.Error()}
		w.m.deps.Events.Event(pod, event.Warning, "Failed", "Error: ErrImagePull")
	case "RunContainerError":
		// The container has exited with this error: its restarts have a back-off of their own.
		delete(w.restart, name)
		w.m.deps.Events.Event(pod, event.Warning, "Failed", "Error: "+err.Error())
	default:
		w.hold(name, retrySoon, retryLimit)
		w.m.deps.Events.Event(pod, event.Warning, "Failed", "Error: "+err.Error())
	}
}

// replace stops a container that is to be made anew.
func (w *worker) replace(pod *corev1.Pod, s plan.Stop) {
	name, id := s.Container.Name, s.Container.ID
	if w.busy[name] || w.held(id) {
		return
	}
	w.m.deps.Events.Event(pod, event.Normal, "Killing", s.Message)
	grace := specGrace(pod)
	// Said before it happens: an end that is seen first must not count as the pod's.
	w.restart[name] = w.restart[name] || s.Restart
	w.trail.open(syncSpan, opSync)
	w.do(name, func(ctx context.Context) func() {
		err := w.stopContainer(ctx, name, id, grace)
		return func() {
			if err != nil {
				w.m.logIfFailed(w.opCtx, "stop container", err)
				w.hold(id, retrySoon, retryLimit)
			}
		}
	})
}

// removeDead removes containers that nobody will ask about any more, and their logs.
func (w *worker) removeDead(pod *corev1.Pod, dead []*runtime.Container) {
	w.do(removeKey, func(ctx context.Context) func() {
		if !w.acquire(ctx) {
			return func() {}
		}
		defer w.release()
		for _, c := range dead {
			err := w.m.deps.Runtime.RemoveContainer(ctx, c.ID)
			if err == nil {
				err = removeLog(c.LogPath)
			}
			w.m.logIfFailed(ctx, "remove dead container", err)
		}
		return func() {}
	})
}
