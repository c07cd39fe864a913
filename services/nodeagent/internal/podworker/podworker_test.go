package podworker

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/event"
	"trireme.dev/client/informer"
	"trireme.dev/client/quantity"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
	"trireme.dev/services/nodeagent/internal/containerspec"
	"trireme.dev/services/nodeagent/internal/devices"
	"trireme.dev/services/nodeagent/internal/podsource"
	"trireme.dev/services/nodeagent/internal/runtime"
	"trireme.dev/services/nodeagent/internal/runtime/simulated"
	"trireme.dev/services/nodeagent/internal/volume"
)

// probe is the simulated runtime, watched and slowed down.
type probe struct {
	*simulated.Runtime
	// pullTime of an image.
	pullTime time.Duration
	// onStart hears of each start of a container, by its ID.
	onStart func(id string)
	// onStop decides about each stop of a container, by its ID; nil lets it be.
	onStop func(id string) error
	// listenTime is how long it takes until events are listened to.
	listenTime time.Duration

	mu    sync.Mutex
	pulls map[string]int
}

func (p *probe) StartContainer(ctx context.Context, id string) error {
	if p.onStart != nil {
		p.onStart(id)
	}
	return p.Runtime.StartContainer(ctx, id)
}

func (p *probe) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	if p.onStop != nil {
		if err := p.onStop(id); err != nil {
			return err
		}
	}
	return p.Runtime.StopContainer(ctx, id, grace)
}

func (p *probe) Events(ctx context.Context) (<-chan runtime.Event, error) {
	if p.listenTime > 0 && !pause(ctx, p.listenTime) {
		return nil, ctx.Err()
	}
	return p.Runtime.Events(ctx)
}

func (p *probe) Images() runtime.Images { return probeImages{p.Runtime.Images(), p} }

type probeImages struct {
	runtime.Images
	p *probe
}

func (i probeImages) Pull(ctx context.Context, ref string) (*runtime.Image, error) {
	i.p.mu.Lock()
	i.p.pulls[ref]++
	i.p.mu.Unlock()
	if !pause(ctx, i.p.pullTime) && i.p.pullTime > 0 {
		return nil, ctx.Err()
	}
	return i.Images.Pull(ctx, ref)
}

// agent is the chain from the watch to the status, over a real gateway in memory, in virtual time.
type agent struct {
	*testing.T
	gateway *apitest.Server
	host    *simulated.Host
	runtime *probe
	dir     string
	pods    *client.Resource[*corev1.Pod]
	m       *Manager
	stop    func()
}

func newAgent(t *testing.T) *agent {
	t.Helper()
	host, err := simulated.NewHost("", nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{T: t, gateway: apitest.New(t), host: host, dir: t.TempDir()}
	r, err := simulated.New(simulated.Config{Host: host})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.SetPodCIDR(t.Context(), "10.1.0.0/24"); err != nil {
		t.Fatal(err)
	}
	a.runtime = &probe{Runtime: r, pulls: map[string]int{}}
	a.pods = client.For[*corev1.Pod](a.gateway.Conn())
	a.start()
	t.Cleanup(func() { a.stop() })
	return a
}

func (a *agent) start() {
	a.Helper()
	logger := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		logger = slog.New(slog.NewTextHandler(a.Output(), nil))
	}
	plugins, err := devices.New(devices.Config{PluginDir: a.dir, StateDir: a.dir, Logger: logger})
	if err != nil {
		a.Fatal(err)
	}
	conn := a.gateway.Conn()
	factory, events := informer.NewFactory(conn, logger), event.NewRecorder(conn, "nodeagent")
	events.Logger = logger
	a.m = New(Config{
		Node:        func() containerspec.Node { return containerspec.Node{Name: "n", IPs: []string{"192.0.2.1"}} },
		Allocatable: func() map[string]quantity.Quantity { return map[string]quantity.Quantity{"cpu": quantity.New(4)} },
		LogDir:      a.dir + "/logs", RuntimeName: "simulated",
	}, Deps{
		Conn: conn, Runtime: a.runtime, Devices: plugins, Events: events, Logger: logger,
		Volumes: volume.New(volume.Config{Dir: a.dir + "/pods", Simulated: true}),
	})
	source := podsource.New(factory, "n", podsource.Sink{Update: a.m.Update, Delete: a.m.Delete, Synced: a.m.Synced})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{factory.Run, source.Run, events.Run, a.m.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				a.Errorf("a task ended: %v", err)
			}
		})
	}
	a.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
}

func newPod(name string, command ...string) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: &corev1.PodSpec{
			NodeName:   proto.String("n"),
			Containers: []*corev1.Container{{Name: "main", Image: "busybox:1", Command: command}},
		},
	}
}

func (a *agent) create(p *corev1.Pod) *corev1.Pod {
	a.Helper()
	created, err := a.pods.Create(a.Context(), p)
	if err != nil {
		a.Fatal(err)
	}
	return created
}

func (a *agent) get(name string) *corev1.Pod {
	a.Helper()
	p, err := a.pods.Get(a.Context(), "default", name)
	if err != nil {
		a.Fatal(err)
	}
	return p
}

func (a *agent) delete(name string, grace int64) {
	a.Helper()
	if _, err := a.pods.Delete(a.Context(), "default", name, &metav1.DeleteOptions{GracePeriodSeconds: proto.Int64(grace)}); err != nil {
		a.Fatal(err)
	}
}

// after lets virtual time pass until all that happens by then has happened.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (a *agent) gone(name string) bool {
	a.Helper()
	_, err := a.pods.Get(a.Context(), "default", name)
	if err != nil && !apierr.IsNotFound(err) {
		a.Fatal(err)
	}
	return err != nil
}

func (a *agent) seen() []*runtime.Pod {
	a.Helper()
	pods, err := a.runtime.Pods(a.Context())
	if err != nil {
		a.Fatal(err)
	}
	return pods
}

func mainOf(p *corev1.Pod) *corev1.ContainerStatus {
	for _, s := range p.GetStatus().GetContainerStatuses() {
		if s.GetName() == "main" {
			return s
		}
	}
	return nil
}

func TestCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		var mu sync.Mutex
		var starts []time.Time
		a.runtime.onStart = func(string) {
			mu.Lock()
			defer mu.Unlock()
			starts = append(starts, time.Now())
		}
		a.create(newPod("crash", "exit", "3"))
		after(time.Second)
		s := mainOf(a.get("crash"))
		if w := s.GetState().GetWaiting(); w.GetReason() != "CrashLoopBackOff" || s.GetRestartCount() != 1 || s.GetLastState().GetTerminated().GetExitCode() != 3 {
			t.Errorf("after a second: %v", s)
		}
		after(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		var gaps []int
		for i := range len(starts) - 1 {
			gaps = append(gaps, int(starts[i+1].Sub(starts[i]).Round(time.Second).Seconds()))
		}
		if want := []int{0, 10, 20, 40, 80, 160}; !slices.Equal(gaps, want) {
			t.Errorf("pauses between starts: %v, want %v", gaps, want)
		}
		s = mainOf(a.get("crash"))
		if s.GetRestartCount() != 6 {
			t.Errorf("restarts: %v", s)
		}
		// One dead container is kept.
		if n := len(a.seen()[0].Containers); n != 1 {
			t.Errorf("%d containers are kept", n)
		}
	})
}

func TestTerminationGivesGraceToAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		p := newPod("slow", "sh", "-c", `trap "" TERM; sleep infinity`)
		p.Spec.Containers = append(p.Spec.Containers,
			&corev1.Container{Name: "polite", Image: "busybox:1", Command: []string{"sh", "-c", `trap "exit 0" TERM; sleep infinity`}},
			&corev1.Container{Name: "slow", Image: "busybox:1", Command: []string{"sh", "-c", `trap "" TERM; sleep infinity`}})
		a.create(p)
		after(time.Second)
		if phase := a.get("slow").GetStatus().GetPhase(); phase != "Running" {
			t.Fatalf("phase %s", phase)
		}
		a.delete("slow", 30)
		after(29 * time.Second)
		got := a.get("slow")
		for _, s := range got.GetStatus().GetContainerStatuses() {
			if ended := s.GetState().GetTerminated() != nil; ended != (s.GetName() == "polite") {
				t.Errorf("after 29 s: %v", s)
			}
		}
		after(2 * time.Second)
		if !a.gone("slow") || len(a.seen()) > 0 {
			t.Errorf("after 31 s the pod is there: %v", a.seen())
		}
	})
}

func TestGraceCanBeShortened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		a.create(newPod("slow", "sh", "-c", `trap "" TERM; sleep infinity`))
		after(time.Second)
		a.delete("slow", 600)
		after(5 * time.Second)
		a.delete("slow", 1)
		after(minimumGrace + 100*time.Millisecond)
		if !a.gone("slow") {
			t.Errorf("the pod is there: %v", a.get("slow"))
		}
	})
}

func TestImageIsPulledOnceAndDeletionDoesNotWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		a.runtime.pullTime = time.Minute
		for i := range 3 {
			p := newPod(fmt.Sprintf("p%d", i), "serve")
			p.Spec.Containers[0].ImagePullPolicy = proto.String("Always")
			p.Spec.Containers = append(p.Spec.Containers, &corev1.Container{Name: "quick", Image: "other:1", Command: []string{"serve"}})
			a.create(p)
		}
		after(time.Second)
		quick := a.get("p0").GetStatus().GetContainerStatuses()[1]
		if quick.GetState().GetRunning() == nil {
			t.Errorf("a container waits for another's image: %v", quick)
		}
		a.delete("p1", 30)
		after(time.Second)
		if !a.gone("p1") {
			t.Error("the deletion waits for the pull")
		}
		after(time.Minute)
		if s := mainOf(a.get("p2")); s.GetState().GetRunning() == nil {
			t.Errorf("container: %v", s)
		}
		a.runtime.mu.Lock()
		defer a.runtime.mu.Unlock()
		if n := a.runtime.pulls["busybox:1"]; n != 1 {
			t.Errorf("%d pulls", n)
		}
	})
}

func TestChangedImageReplacesTheContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		p := newPod("web", "serve")
		p.Spec.RestartPolicy = proto.String("Never")
		a.create(p)
		after(time.Second)
		if _, err := a.pods.Patch(t.Context(), "default", "web", metav1.PatchType_PATCH_TYPE_JSON,
			[]byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"busybox:2"}]`), ""); err != nil {
			t.Fatal(err)
		}
		after(time.Second)
		s := mainOf(a.get("web"))
		if s.GetImage() != "busybox:2" || s.GetRestartCount() != 1 || s.GetState().GetRunning() == nil {
			t.Errorf("container: %v", s)
		}
	})
}

// TestRandomLives creates, deletes and restarts at random. Once a pod's deletion has been seen, none of its containers
// starts; in the end nothing is left.
func TestRandomLives(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomLives(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func randomLives(t *testing.T, r *rand.Rand) {
	a := newAgent(t)
	a.runtime.pullTime = 3 * time.Second
	var mu sync.Mutex
	ending := map[string]bool{}
	a.runtime.onStart = func(id string) {
		mu.Lock()
		defer mu.Unlock()
		for uid := range ending {
			if len(id) > len(uid) && id[:len(uid)] == uid {
				t.Errorf("container %s is started after its pod's deletion was seen", id)
			}
		}
	}
	commands := [][]string{
		{"serve"}, {"exit", "1"}, {"true"}, {"sleep", "2"}, {"/absent/program"},
		{"sh", "-c", `trap "" TERM; sleep infinity`}, {"sh", "-c", "sleep 7; exit 2"},
	}
	live := map[string]string{}
	for i := range 45 {
		switch r.IntN(5) {
		case 0, 1:
			p := newPod(fmt.Sprintf("p%d", i), commands[r.IntN(len(commands))]...)
			p.Spec.RestartPolicy = proto.String([]string{"Always", "OnFailure", "Never"}[r.IntN(3)])
			p.Spec.Containers[0].ImagePullPolicy = proto.String([]string{"Always", "IfNotPresent"}[r.IntN(2)])
			p.Spec.Containers = append(p.Spec.Containers, &corev1.Container{Name: "second", Image: "b:1", Command: commands[r.IntN(len(commands))]})
			if r.IntN(2) == 0 {
				p.Spec.InitContainers = []*corev1.Container{{Name: "init", Image: "b:1", Command: commands[r.IntN(len(commands))]}}
			}
			created := a.create(p)
			live[p.GetMetadata().GetName()] = created.GetMetadata().GetUid()
		case 2, 3:
			for name, uid := range live {
				delete(live, name)
				a.delete(name, int64(r.IntN(10)))
				synctest.Wait()
				mu.Lock()
				ending[uid] = true
				mu.Unlock()
				break
			}
		case 4:
			a.stop()
			a.start()
		}
		after(time.Duration(r.IntN(3000)) * time.Millisecond)
	}
	for name := range live {
		a.delete(name, 1)
	}
	after(time.Minute)
	list, err := a.pods.List(t.Context(), client.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		t.Errorf("pod %s is still there: %v", p.GetMetadata().GetName(), p.GetStatus())
	}
	if pods := a.seen(); len(pods) > 0 {
		t.Errorf("the runtime still has %v", pods)
	}
}
