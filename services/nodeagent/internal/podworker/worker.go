package podworker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client/event"
	"trireme.dev/client/tracing"
	"trireme.dev/kit/telemetry"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/nodeagent/internal/devices"
	"trireme.dev/services/nodeagent/internal/plan"
	"trireme.dev/services/nodeagent/internal/podconfig"
	"trireme.dev/services/nodeagent/internal/runtime"
)

type state int

const (
	syncing state = iota
	terminating
	terminated
)

// Keys of operations that are not about one container.
const (
	admitKey   = "/admit"
	setupKey   = "/setup"
	removeKey  = "/remove"
	cleanupKey = "/cleanup"
)

// worker owns one pod.
type worker struct {
	m   *Manager
	uid string
	log *slog.Logger
	// signal wakes run; poked also ends the waits that another part may have ended: network, devices.
	signal chan struct{}
	poked  atomic.Bool
	// look says that the runtime may have changed since it was looked at.
	look atomic.Bool
	// awaitsFlush says that the worker wants to hear when its status is written.
	awaitsFlush atomic.Bool
	// acting counts operations that change the runtime at this moment.
	acting atomic.Int32
	// act serialises those operations: a runtime's calls about one pod come one at a time. It holds one token.
	act chan struct{}
	ops sync.WaitGroup

	mu      sync.Mutex
	pod     *corev1.Pod
	gone    bool
	results []result
	printed string
	counted counted

	// The rest belongs to the goroutine of run.

	trail *trail
	state state
	seen  *runtime.Pod
	past  *corev1.PodStatus
	// busy are the operations under way, by key; opCtx ends them.
	busy     map[string]bool
	opCtx    context.Context
	opCancel context.CancelFunc
	next     time.Time

	// received is when the pod was heard of; runs that it has been seen running, pulls how long images took to come.
	received time.Time
	runs     bool
	pulls    time.Duration

	// setupWait is why the setup is to be tried again.
	setupWait string

	fits, allocated bool
	phase           string
	reason, message string

	// prepared says that paths and objects are fresh enough to start containers with.
	prepared  bool
	paths     map[string]string
	objects   *podconfig.Objects
	refreshed time.Time
	// messages are ends of logs that stand in for termination messages, by container ID.
	messages    map[string]string
	waiting     map[string]plan.Waiting
	restart     map[string]bool
	holds       map[string]hold
	crash       plan.Backoff
	image       plan.Backoff
	imageErrors map[string]imageError
	announced   map[string]time.Time

	began   time.Time
	grace   time.Duration
	drained bool
	killing map[string]bool
	final   bool
}

// result is what an operation hands back: apply runs in the worker's goroutine.
type result struct {
	key   string
	apply func()
}

// hold keeps something that failed from being tried again at once.
type hold struct {
	until time.Time
	delay time.Duration
}

func newWorker(m *Manager, pod *corev1.Pod) *worker {
	uid := pod.GetMetadata().GetUid()
	return &worker{
		m: m, uid: uid, pod: pod, signal: make(chan struct{}, 1), act: make(chan struct{}, 1),
		log: m.deps.Logger.With(slog.String(telemetry.KeyPod, pod.GetMetadata().GetNamespace()+"/"+pod.GetMetadata().GetName()),
			slog.String(telemetry.KeyPodUID, uid)),
		trail: newTrail(m.count, m.cfg.Node().Name, pod), received: time.Now(), past: pod.GetStatus(), busy: map[string]bool{},
		waiting: map[string]plan.Waiting{}, messages: map[string]string{}, restart: map[string]bool{}, holds: map[string]hold{},
		imageErrors: map[string]imageError{}, announced: map[string]time.Time{}, killing: map[string]bool{},
	}
}

// begin tells whether the runtime may have anything of the pod already.
func (w *worker) begin(mayExist bool) { w.look.Store(mayExist) }

func (w *worker) deliver(pod *corev1.Pod, gone bool) {
	w.mu.Lock()
	w.pod = pod
	w.gone = w.gone || gone
	w.mu.Unlock()
	w.nudge()
}

func (w *worker) wanted() (*corev1.Pod, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod, w.gone
}

// nudge asks for a step.
func (w *worker) nudge() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// changed asks for a step that looks at the runtime.
func (w *worker) changed() {
	w.look.Store(true)
	w.nudge()
}

func (w *worker) print() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.printed
}

func (w *worker) setPrint(p *runtime.Pod) {
	w.mu.Lock()
	w.printed, w.counted = fingerprint(p), countsOf(p)
	w.mu.Unlock()
}

// run works until the pod is gone everywhere (true) or ctx ends (false).
func (w *worker) run(ctx context.Context) bool {
	defer w.ops.Wait()
	w.opCtx, w.opCancel = context.WithCancel(ctx)
	defer func() { w.opCancel() }()
	w.trail.begin(ctx)
	defer func() { w.trail.close(nil) }()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w.trail.wake()
		w.applyResults()
		w.next = time.Time{}
		gone := w.step(ctx)
		if len(w.busy) == 0 && w.state != terminating {
			w.trail.close(nil)
		}
		if gone {
			return true
		}
		timer.Stop()
		if !w.next.IsZero() {
			timer.Reset(max(time.Until(w.next), 0))
		}
		select {
		case <-ctx.Done():
			return false
		case <-w.signal:
		case <-timer.C:
			w.look.Store(true)
		}
	}
}

// do starts an operation. Its work runs in a goroutine of its own, what it returns in the worker's. While the pod starts,
// every operation is worth a sync in its trace; later it is where the caller has opened one.
func (w *worker) do(key string, work func(ctx context.Context) (apply func())) {
	w.busy[key] = true
	if w.trail.starting {
		w.trail.open(syncSpan, opCreate)
	}
	ctx := w.trail.under(w.opCtx)
	w.ops.Go(func() {
		apply := work(ctx)
		w.mu.Lock()
		w.results = append(w.results, result{key, apply})
		w.mu.Unlock()
		w.nudge()
	})
}

// acquire waits for its turn to change the runtime, and reports false where ctx ends before. release ends the turn.
func (w *worker) acquire(ctx context.Context) bool {
	begin := time.Now()
	defer func() {
		if end := time.Now(); end.Sub(begin) >= worthSaying {
			tracing.Record(ctx, turnSpan, begin, end, tracing.KeyReason.String("another operation of the pod is under way"))
		}
	}()
	select {
	case w.act <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	if ctx.Err() != nil {
		<-w.act
		return false
	}
	w.acting.Add(1)
	return true
}

func (w *worker) release() {
	w.acting.Add(-1)
	<-w.act
}

func (w *worker) applyResults() {
	w.mu.Lock()
	results := w.results
	w.results = nil
	w.mu.Unlock()
	for _, r := range results {
		delete(w.busy, r.key)
		if r.key != admitKey && r.key != setupKey && r.key != cleanupKey {
			w.look.Store(true)
		}
		r.apply()
	}
}

// again asks for a step at a time at the latest.
func (w *worker) again(at time.Time) {
	if w.next.IsZero() || at.Before(w.next) {
		w.next = at
	}
}

// hold lengthens the wait before something that failed is tried again.
func (w *worker) hold(key string, first, limit time.Duration) {
	h := w.holds[key]
	h.delay = min(max(2*h.delay, first), limit)
	h.until = time.Now().Add(h.delay)
	w.holds[key] = h
}

// held reports whether something is to wait, and asks for a step when it need not any more.
func (w *worker) held(key string) bool {
	h, ok := w.holds[key]
	if !ok || !time.Now().Before(h.until) {
		return false
	}
	w.again(h.until)
	return true
}

// step does what can be done now; true means that the pod is gone everywhere.
func (w *worker) step(ctx context.Context) bool {
	pod, gone := w.wanted()
	if w.poked.Swap(false) {
		delete(w.holds, admitKey)
		delete(w.holds, setupKey)
	}
	if w.state == syncing {
		if gone || pod.GetMetadata().GetDeletionTimestamp() != nil || plan.Terminal(pod.GetStatus().GetPhase()) {
			w.terminate()
		} else {
			w.sync(ctx, pod)
		}
	}
	if w.state == terminating {
		w.end(ctx, pod, gone)
	}
	if w.state == terminated {
		if !gone && pod.GetMetadata().GetDeletionTimestamp() != nil {
			w.m.status.Remove(w.trail.status(), pod)
		}
		return gone
	}
	return false
}

// sync brings a pod that is wanted nearer to what its spec asks for.
func (w *worker) sync(ctx context.Context, pod *corev1.Pod) {
	if !w.observe(ctx) {
		w.again(time.Now().Add(retrySoon))
		return
	}
	if !w.admit(ctx, pod) {
		w.publish(pod)
		return
	}
	actions := plan.Compute(w.input(pod))
	if actions.Done {
		w.terminate()
		return
	}
	w.advance(pod, actions)
	w.publish(pod)
}

func (w *worker) input(pod *corev1.Pod) plan.Input {
	return plan.Input{Pod: pod, Seen: w.seen, Past: w.past, Busy: w.busy, Restart: w.restart}
}

// advance begins the operations that the actions ask for and that nothing holds back.
func (w *worker) advance(pod *corev1.Pod, actions plan.Actions) {
	for _, s := range actions.Stop {
		w.replace(pod, s)
	}
	if len(actions.Remove) > 0 && len(w.busy) == 0 {
		w.removeDead(pod, actions.Remove)
	}
	due := w.due(pod, actions.Start)
	switch {
	case w.busy[setupKey]:
	case w.held(setupKey):
		w.trail.wait(w.setupWait)
	case actions.CreateSandbox, len(due) > 0 && !w.prepared:
		w.setup(pod, actions)
	case len(due) > 0:
		for _, s := range due {
			w.start(pod, s)
		}
		// What is started later may need newer ConfigMaps.
		w.prepared = false
	case w.refreshDue(pod):
		w.setup(pod, plan.Actions{})
	}
}

// observe looks at the runtime, where it may have changed.
func (w *worker) observe(ctx context.Context) bool {
	if !w.look.Swap(false) {
		return true
	}
	seen, err := w.m.deps.Runtime.Pod(ctx, w.uid)
	switch {
	case errors.Is(err, runtime.ErrNotFound):
		seen = nil
	case err != nil:
		w.m.logIfFailed(ctx, "look at the pod's containers", err)
		w.look.Store(true)
		return false
	}
	w.seen = seen
	w.setPrint(seen)
	w.addLogMessages(ctx)
	return true
}

// admit decides once whether the pod may run here.
func (w *worker) admit(ctx context.Context, pod *corev1.Pod) bool {
	runs := w.seen != nil && len(w.seen.Containers) > 0
	if !w.fits {
		if w.trail.starting {
			w.trail.open(syncSpan, opCreate)
		}
		begin := time.Now()
		err := w.m.fit.admit(pod, runs, w.m.cfg.Allocatable())
		if err == nil {
			w.fits = true
			w.allocated = !wantsDevices(pod)
		}
		// Where devices are asked for, their part follows in a span of its own.
		if ctx := w.trail.under(ctx); err != nil || w.allocated {
			_, span := tracing.StartAt(ctx, admitSpan, begin)
			tracing.Fail(span, err)
			span.End()
		}
		if err != nil {
			w.reject(pod, err)
			return false
		}
	}
	if w.allocated {
		return true
	}
	switch {
	case w.busy[admitKey]:
	case w.held(admitKey):
		w.trail.wait(w.reason)
	default:
		w.do(admitKey, func(ctx context.Context) func() {
			ctx, span := tracing.Start(ctx, admitSpan)
			defer span.End()
			err := w.m.deps.Devices.Admit(ctx, pod)
			tracing.Fail(span, err)
			return func() { w.admission(pod, err) }
		})
	}
	// What runs already goes on; what is to be started waits for its devices.
	return runs
}

func wantsDevices(pod *corev1.Pod) bool {
	for _, list := range [][]*corev1.Container{pod.GetSpec().GetInitContainers(), pod.GetSpec().GetContainers()} {
		for _, c := range list {
			for name := range c.GetResources().GetLimits() {
				if devices.IsExtended(name) {
					return true
				}
			}
		}
	}
	return false
}

func (w *worker) admission(pod *corev1.Pod, err error) {
	var rejection *devices.AdmissionError
	switch {
	case err == nil:
		w.allocated, w.reason, w.message = true, "", ""
		delete(w.holds, admitKey)
	case w.state != syncing || w.opCtx.Err() != nil:
	case errors.As(err, &rejection) && w.seen != nil && len(w.seen.Containers) > 0:
		// It was admitted once and runs: an agent that restarts must not end it.
		w.log.LogAttrs(w.trail.own, slog.LevelWarn, "running pod has lost its devices' allocation", slog.Any(telemetry.KeyError, err))
		w.allocated = true
	case errors.As(err, &rejection):
		w.reject(pod, err)
	default:
		w.reason, w.message = "WaitingForDevicePlugin", err.Error()
		w.hold(admitKey, retrySoon, relistPeriod)
	}
}

// reject fails the pod for good. Nothing of it was started by this agent; what an earlier one started is stopped.
func (w *worker) reject(pod *corev1.Pod, err error) {
	var rejection *devices.AdmissionError
	if !errors.As(err, &rejection) {
		rejection = &devices.AdmissionError{Reason: "UnexpectedAdmissionError", Message: "Pod was rejected: " + err.Error()}
	}
	w.phase, w.reason, w.message = plan.Failed, rejection.Reason, rejection.Message
	w.m.deps.Events.Event(pod, event.Warning, rejection.Reason, rejection.Message)
	w.log.LogAttrs(w.trail.own, slog.LevelInfo, "pod rejected", slog.String(telemetry.KeyReason, rejection.Reason),
		slog.String(telemetry.KeyMessage, rejection.Message))
	w.trail.close(err)
	w.terminate()
}

// publish computes the pod's status and has it sent, where it changed.
func (w *worker) publish(pod *corev1.Pod) {
	past := w.past
	if foreignChanged(past, pod.GetStatus()) {
		past = withForeign(past, pod.GetStatus())
	}
	in := w.input(pod)
	in.Past = past
	status := plan.Status(plan.StatusInput{
		Input: in, Waiting: w.waiting, Phase: w.phase, Reason: w.reason, Message: w.message, Final: w.final,
		HostIPs: w.m.cfg.Node().IPs, RuntimeName: w.m.cfg.RuntimeName, Now: time.Now(),
	})
	for _, list := range [][]*corev1.ContainerStatus{status.GetInitContainerStatuses(), status.GetContainerStatuses()} {
		for _, c := range list {
			c.AllocatedResourcesStatus = w.m.deps.Devices.Health(w.uid, c.GetName())
		}
	}
	if before := w.past.GetPhase(); before != status.GetPhase() {
		w.log.LogAttrs(w.trail.own, slog.LevelInfo, "pod phase changed", slog.String(telemetry.KeyPhase, status.GetPhase()))
	}
	w.past = status
	w.m.status.Set(w.trail.status(), pod, status)
	w.seenRunning(status)
}

// seenRunning notes that a pod is up for the first time: from now on what happens to it is its later life.
func (w *worker) seenRunning(status *corev1.PodStatus) {
	if !w.trail.starting {
		return
	}
	if !w.runs && status.GetPhase() == plan.Running {
		w.runs = true
		w.trail.running(w.pulls+initTime(status), w.received)
	}
	if plan.Ready(status) {
		w.trail.starting = false
		return
	}
	// What a wait that begins now is for, unless something better is known.
	if len(w.busy) == 0 && w.trail.reason == "" {
		for _, c := range status.GetContainerStatuses() {
			w.trail.wait(c.GetState().GetWaiting().GetReason())
		}
	}
}

// initTime is how long init containers ran.
func initTime(status *corev1.PodStatus) time.Duration {
	var sum time.Duration
	for _, c := range status.GetInitContainerStatuses() {
		if t := c.GetState().GetTerminated(); t != nil {
			sum += t.GetFinishedAt().AsTime().Sub(t.GetStartedAt().AsTime())
		}
	}
	return sum
}

// withForeign takes over the conditions that others wrote.
func withForeign(past, stored *corev1.PodStatus) *corev1.PodStatus {
	out := &corev1.PodStatus{}
	proto.Merge(out, past)
	out.Conditions = nil
	have := map[string]bool{}
	for _, c := range stored.GetConditions() {
		if !plan.Owned(c.GetType()) {
			out.Conditions = append(out.Conditions, c)
			have[c.GetType()] = true
		}
	}
	for _, c := range past.GetConditions() {
		// A pod that came without a scheduler has this one from us.
		if plan.Owned(c.GetType()) || (c.GetType() == "PodScheduled" && !have[c.GetType()]) {
			out.Conditions = append(out.Conditions, c)
		}
	}
	return out
}

func foreignChanged(past, stored *corev1.PodStatus) bool {
	for _, c := range stored.GetConditions() {
		if plan.Owned(c.GetType()) {
			continue
		}
		same := func(p *corev1.PodCondition) bool { return proto.Equal(c, p) }
		if !slices.ContainsFunc(past.GetConditions(), same) {
			return true
		}
	}
	return false
}
