package devices_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/nodeagent/internal/devices"
)

const gpu = "nvidia.com/gpu"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testPlugin is a device plugin over a real socket whose answers a test can steer.
type testPlugin struct {
	v1beta1.UnimplementedDevicePluginServer
	resource string
	endpoint string
	options  *v1beta1.DevicePluginOptions
	envs     map[string]string

	mu        sync.Mutex
	devices   []*v1beta1.Device
	changed   chan struct{}
	failWith  error
	preferred []string
	preStarts int
	stop      func()
}

func newPlugin(resource, endpoint string, ids ...string) *testPlugin {
	p := &testPlugin{resource: resource, endpoint: endpoint, changed: make(chan struct{}), options: &v1beta1.DevicePluginOptions{}}
	for _, id := range ids {
		p.devices = append(p.devices, &v1beta1.Device{ID: id, Health: v1beta1.Healthy})
	}
	return p
}

func (p *testPlugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return p.options, nil
}

func (p *testPlugin) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	for {
		p.mu.Lock()
		list, changed := slices.Clone(p.devices), p.changed
		p.mu.Unlock()
		if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: list}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

func (p *testPlugin) GetPreferredAllocation(context.Context, *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	return &v1beta1.PreferredAllocationResponse{
		ContainerResponses: []*v1beta1.ContainerPreferredAllocationResponse{{DeviceIDs: p.preferred}},
	}, nil
}

func (p *testPlugin) Allocate(_ context.Context, in *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failWith != nil {
		return nil, p.failWith
	}
	ids := in.GetContainerRequests()[0].GetDevicesIds()
	response := &v1beta1.ContainerAllocateResponse{Envs: map[string]string{"VISIBLE": strings.Join(ids, ",")}}
	for k, v := range p.envs {
		response.Envs[k] = v
	}
	for _, id := range ids {
		response.Devices = append(response.Devices, &v1beta1.DeviceSpec{HostPath: "/dev/null", ContainerPath: "/dev/" + id, Permissions: "rw"})
	}
	return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{response}}, nil
}

func (p *testPlugin) PreStartContainer(context.Context, *v1beta1.PreStartContainerRequest) (*v1beta1.PreStartContainerResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.preStarts++
	return &v1beta1.PreStartContainerResponse{}, nil
}

func (p *testPlugin) setHealth(id, health string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, d := range p.devices {
		if d.GetID() == id {
			p.devices[i] = &v1beta1.Device{ID: id, Health: health}
		}
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *testPlugin) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failWith = err
}

// serve listens in the folder and registers.
func (p *testPlugin) serve(t *testing.T, dir string) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(dir, p.endpoint))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	v1beta1.RegisterDevicePluginServer(server, p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	p.stop = func() { server.Stop(); <-done }
	t.Cleanup(p.stop)
	if err := register(t, dir, &v1beta1.RegisterRequest{Version: v1beta1.Version, Endpoint: p.endpoint, ResourceName: p.resource}); err != nil {
		t.Fatal(err)
	}
}

func register(t *testing.T, dir string, in *v1beta1.RegisterRequest) error {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = v1beta1.NewRegistrationClient(conn).Register(t.Context(), in, grpc.WaitForReady(true))
	return err
}

// agent is a running manager.
type agent struct {
	*devices.Manager
	cfg  devices.Config
	kill func()
}

func start(t *testing.T, cfg devices.Config) *agent {
	t.Helper()
	m, err := devices.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	a := &agent{Manager: m, cfg: cfg, kill: sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})}
	t.Cleanup(a.kill)
	return a
}

func config(t *testing.T) devices.Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "dev") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "p"), 0o750); err != nil {
		t.Fatal(err)
	}
	return devices.Config{PluginDir: filepath.Join(dir, "p"), StateDir: filepath.Join(dir, "s"), Logger: slog.New(slog.DiscardHandler)}
}

// until waits for a number of allocatable devices.
func (a *agent) until(t *testing.T, resource string, want devices.Resource) {
	t.Helper()
	limit := time.After(10 * time.Second)
	for a.Resources()[resource] != want {
		select {
		case <-a.Changed():
		case <-limit:
			t.Fatalf("%s = %+v, want %+v", resource, a.Resources()[resource], want)
		}
	}
}

// pod asks for GPUs: its containers c0, c1, ... in turn.
func pod(uid string, gpus ...int) *corev1.Pod {
	p := &corev1.Pod{Metadata: &metav1.ObjectMeta{Uid: uid, Name: uid, Namespace: "default"}, Spec: &corev1.PodSpec{}}
	for i, n := range gpus {
		p.Spec.Containers = append(p.Spec.Containers, containerOf(fmt.Sprintf("c%d", i), gpu, n))
	}
	return p
}

func containerOf(name, resource string, n int) *corev1.Container {
	return &corev1.Container{Name: name, Resources: &corev1.ResourceRequirements{Limits: map[string]string{resource: fmt.Sprint(n), "cpu": "1"}}}
}

func (a *agent) visible(t *testing.T, uid, container string) string {
	t.Helper()
	options, err := a.Options(uid, container)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range options.Env {
		if v, ok := strings.CutPrefix(e, "VISIBLE="); ok {
			return v
		}
	}
	return ""
}

func rejection(t *testing.T, err error) string {
	t.Helper()
	var e *devices.AdmissionError
	if !errors.As(err, &e) || e.Reason != "UnexpectedAdmissionError" {
		t.Fatalf("err = %v, want an AdmissionError", err)
	}
	return e.Message
}

func TestDevicesAreGivenOnceAndComeBack(t *testing.T) {
	a := start(t, config(t))
	p := newPlugin(gpu, "p.sock", "a", "b", "c", "d")
	p.serve(t, a.cfg.PluginDir)
	a.until(t, gpu, devices.Resource{Capacity: 4, Allocatable: 4})

	if err := a.Admit(t.Context(), pod("one", 1, 2)); err != nil {
		t.Fatal(err)
	}
	if c0, c1 := a.visible(t, "one", "c0"), a.visible(t, "one", "c1"); c0 != "a" || c1 != "b,c" {
		t.Errorf("containers see %q and %q", c0, c1)
	}
	options, err := a.Options("one", "c1")
	if err != nil || len(options.Devices) != 2 || options.Devices[0].ContainerPath != "/dev/b" {
		t.Errorf("options %+v, %v", options, err)
	}
	if got := rejection(t, a.Admit(t.Context(), pod("two", 2))); !strings.Contains(got,
		"requested number of devices unavailable for nvidia.com/gpu. Requested: 2, Available: 1") {
		t.Errorf("message %q", got)
	}
	if err := a.Admit(t.Context(), pod("one", 1, 2)); err != nil {
		t.Errorf("admitted again: %v", err)
	}
	if got := rejection(t, a.Admit(t.Context(), pod("one", 1, 1))); !strings.Contains(got,
		`pod "one" container "c1" changed request for resource "nvidia.com/gpu" from 2 to 1`) {
		t.Errorf("message %q", got)
	}
	a.Release("one")
	if err := a.Admit(t.Context(), pod("two", 4)); err != nil {
		t.Errorf("after the release: %v", err)
	}
	a.Retain(map[string]bool{"three": true})
	if err := a.Admit(t.Context(), pod("three", 4)); err != nil {
		t.Errorf("after Retain: %v", err)
	}
}

func TestAPodGetsAllItsDevicesOrNone(t *testing.T) {
	a := start(t, config(t))
	newPlugin(gpu, "p.sock", "a", "b").serve(t, a.cfg.PluginDir)
	a.until(t, gpu, devices.Resource{Capacity: 2, Allocatable: 2})
	rejection(t, a.Admit(t.Context(), pod("greedy", 1, 2)))
	if err := a.Admit(t.Context(), pod("modest", 2)); err != nil {
		t.Errorf("what the rejected pod's first container got is lost: %v", err)
	}
}

func TestInitContainersPassTheirDevicesOn(t *testing.T) {
	a := start(t, config(t))
	newPlugin(gpu, "p.sock", "a", "b", "c").serve(t, a.cfg.PluginDir)
	a.until(t, gpu, devices.Resource{Capacity: 3, Allocatable: 3})
	p := pod("p", 1)
	sidecar := containerOf("sidecar", gpu, 1)
	sidecar.RestartPolicy = proto.String("Always")
	p.Spec.InitContainers = []*corev1.Container{containerOf("init", gpu, 2), sidecar}
	if err := a.Admit(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if i, s, c := a.visible(t, "p", "init"), a.visible(t, "p", "sidecar"), a.visible(t, "p", "c0"); i != "a,b" || s != "a" || c != "b" {
		t.Errorf("init sees %q, sidecar %q, container %q; want a,b then a kept by the sidecar, then b", i, s, c)
	}
	if err := a.Admit(t.Context(), pod("q", 1)); err != nil {
		t.Errorf("the third device is free: %v", err)
	}
}

func TestAllocationsSurviveAKilledAgent(t *testing.T) {
	cfg := config(t)
	a := start(t, cfg)
	p := newPlugin(gpu, "p.sock", "a", "b")
	p.serve(t, cfg.PluginDir)
	a.until(t, gpu, devices.Resource{Capacity: 2, Allocatable: 2})
	if err := a.Admit(t.Context(), pod("one", 1)); err != nil {
		t.Fatal(err)
	}
	a.kill()
	p.stop()

	b := start(t, cfg)
	if got := b.Resources()[gpu]; got != (devices.Resource{Capacity: 2, Allocatable: 2}) {
		t.Errorf("right after the restart: %+v, want what was there before", got)
	}
	if err := b.Admit(t.Context(), pod("one", 1)); err != nil {
		t.Errorf("a pod that holds its devices needs no plugin: %v", err)
	}
	if err := b.Admit(t.Context(), pod("two", 1)); !errors.Is(err, devices.ErrWaiting) {
		t.Errorf("err = %v, want ErrWaiting until the plugin is back", err)
	}
	newPlugin(gpu, "p2.sock", "a", "b").serve(t, cfg.PluginDir)
	b.until(t, gpu, devices.Resource{Capacity: 2, Allocatable: 2})
	if err := admitted(t, b, pod("two", 1)); err != nil {
		t.Fatal(err)
	}
	if got := b.visible(t, "two", "c0"); got != "b" {
		t.Errorf("the second pod got %q, want b: a is held", got)
	}
}

// admitted admits a pod once the plugin has listed its devices.
func admitted(t *testing.T, a *agent, p *corev1.Pod) error {
	t.Helper()
	for {
		err := a.Admit(t.Context(), p)
		if !errors.Is(err, devices.ErrWaiting) {
			return err
		}
		select {
		case <-a.Changed():
		case <-time.After(10 * time.Second):
			return err
		}
	}
}

func TestTheEndOfAnOldPluginLeavesItsSuccessorAlone121994(t *testing.T) {
	a := start(t, config(t))
	first := newPlugin(gpu, "old.sock", "a")
	first.serve(t, a.cfg.PluginDir)
	a.until(t, gpu, devices.Resource{Capacity: 1, Allocatable: 1})
	newPlugin(gpu, "new.sock", "a", "b").serve(t, a.cfg.PluginDir)
	a.until(t, gpu, devices.Resource{Capacity: 2, Allocatable: 2})
	first.stop()
	if err := a.Admit(t.Context(), pod("p", 2)); err != nil {
		t.Errorf("after the old plugin left: %v", err)
	}
	if got := a.Resources()[gpu]; got != (devices.Resource{Capacity: 2, Allocatable: 2}) {
		t.Errorf("resources %+v", got)
	}
}

func TestUnhealthyDevicesAreNotGiven(t *testing.T) {
	a := start(t, config(t))
	p := newPlugin(gpu, "p.sock", "a", "b")
	p.serve(t, a.cfg.PluginDir)
	a.until(t, gpu, devices.Resource{Capacity: 2, Allocatable: 2})
	if err := a.Admit(t.Context(), pod("holder", 1)); err != nil {
		t.Fatal(err)
	}
	p.setHealth("a", v1beta1.Unhealthy)
	a.until(t, gpu, devices.Resource{Capacity: 2, Allocatable: 1})
	if err := a.Admit(t.Context(), pod("holder", 1)); err != nil {
		t.Errorf("whoever holds it keeps it: %v", err)
	}
	p.setHealth("b", "Sick")
	a.until(t, gpu, devices.Resource{Capacity: 2, Allocatable: 0})
	if got := rejection(t, a.Admit(t.Context(), pod("late", 1))); !strings.Contains(got, "no healthy devices present") {
		t.Errorf("message %q", got)
	}
}

func TestPluginFailures(t *testing.T) {
	a := start(t, config(t))
	p := newPlugin(gpu, "p.sock", "a")
	p.serve(t, a.cfg.PluginDir)
	a.until(t, gpu, devices.Resource{Capacity: 1, Allocatable: 1})
	p.fail(errors.New("broken bridge"))
	if got := rejection(t, a.Admit(t.Context(), pod("p", 1))); !strings.Contains(got, "broken bridge") {
		t.Errorf("message %q", got)
	}
	p.fail(nil)
	if err := a.Admit(t.Context(), pod("p", 1)); err != nil {
		t.Errorf("the failed allocation holds the device: %v", err)
	}
	a.Release("p")
	p.stop()
	for !errors.Is(a.Admit(t.Context(), pod("p", 1)), devices.ErrWaiting) {
		a.Release("p")
	}
}

func TestPluginsThatContradictEachOtherAreRefused(t *testing.T) {
	a := start(t, config(t))
	other := newPlugin("example.com/nic", "nic.sock", "n0")
	newPlugin(gpu, "p.sock", "a").serve(t, a.cfg.PluginDir)
	other.serve(t, a.cfg.PluginDir)
	a.until(t, gpu, devices.Resource{Capacity: 1, Allocatable: 1})
	a.until(t, "example.com/nic", devices.Resource{Capacity: 1, Allocatable: 1})
	p := pod("p", 1)
	p.Spec.Containers[0].Resources.Limits["example.com/nic"] = "1"
	if got := rejection(t, a.Admit(t.Context(), p)); !strings.Contains(got, "variable VISIBLE of nvidia.com/gpu contradicts") {
		t.Errorf("message %q", got)
	}
}

func TestPreferredDevicesAndPreStart(t *testing.T) {
	a := start(t, config(t))
	p := newPlugin(gpu, "p.sock", "a", "b", "c")
	p.options = &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: true, PreStartRequired: true}
	p.preferred = []string{"c", "b", "unknown"}
	p.serve(t, a.cfg.PluginDir)
	a.until(t, gpu, devices.Resource{Capacity: 3, Allocatable: 3})
	if err := a.Admit(t.Context(), pod("p", 2)); err != nil {
		t.Fatal(err)
	}
	if got := a.visible(t, "p", "c0"); got != "b,c" {
		t.Errorf("got %q, want the preferred devices", got)
	}
	for range 2 {
		if err := a.PreStart(t.Context(), "p", "c0"); err != nil {
			t.Fatal(err)
		}
	}
	if p.preStarts != 2 {
		t.Errorf("PreStartContainer was called %d times, want before each of two starts", p.preStarts)
	}
	if err := a.PreStart(t.Context(), "p", "other"); err != nil || p.preStarts != 2 {
		t.Errorf("a container without devices: %v, %d calls", err, p.preStarts)
	}
}

func TestRegistrationsThatAreRefused(t *testing.T) {
	a := start(t, config(t))
	for _, c := range []struct{ version, resource, endpoint, want string }{
		{"v1alpha1", gpu, "p.sock", `requested API version "v1alpha1" is not supported by kubelet. Supported version is ["v1beta1"]`},
		{"v1beta1", "gpu", "p.sock", `the ResourceName "gpu" is invalid`},
		{"v1beta1", "kubernetes.io/gpu", "p.sock", `the ResourceName "kubernetes.io/gpu" is invalid`},
		{"v1beta1", gpu, "../p.sock", `endpoint "../p.sock"`},
		{"v1beta1", gpu, "kubelet.sock", `endpoint "kubelet.sock"`},
	} {
		err := register(t, a.cfg.PluginDir, &v1beta1.RegisterRequest{Version: c.version, ResourceName: c.resource, Endpoint: c.endpoint})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: err = %v", c, err)
		}
	}
}

func TestASecondAgentIsRefused(t *testing.T) {
	a := start(t, config(t))
	newPlugin(gpu, "p.sock", "a").serve(t, a.cfg.PluginDir) // the first agent listens
	m, err := devices.New(a.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("err = %v, want one that says the socket is in use", err)
	}
}

func TestATornCheckpointIsRefused(t *testing.T) {
	cfg := config(t)
	if err := os.MkdirAll(cfg.StateDir, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", `{"data":{"devices":{}},"checksum":"00"}`} {
		if err := os.WriteFile(filepath.Join(cfg.StateDir, "devices.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := devices.New(cfg); err == nil || !strings.Contains(err.Error(), "devices.json") {
			t.Errorf("%q: err = %v, want one that names the file", text, err)
		}
	}
}

func TestNoDeviceIsEverHeldTwice(t *testing.T) {
	cfg := config(t)
	a := start(t, cfg)
	all := []string{"a", "b", "c", "d", "e"}
	newPlugin(gpu, "p.sock", all...).serve(t, cfg.PluginDir)
	a.until(t, gpu, devices.Resource{Capacity: 5, Allocatable: 5})
	rapid.Check(t, func(rt *rapid.T) {
		a.Retain(nil)
		live := map[string]*corev1.Pod{}
		for i := range rapid.IntRange(1, 20).Draw(rt, "steps") {
			if uid := fmt.Sprintf("p%d", rapid.IntRange(0, i).Draw(rt, "pod")); live[uid] != nil {
				a.Release(uid)
				delete(live, uid)
			} else {
				p := pod(uid, rapid.IntRange(0, 2).Draw(rt, "c0"), rapid.IntRange(0, 2).Draw(rt, "c1"))
				if err := a.Admit(t.Context(), p); err == nil {
					live[uid] = p
				}
			}
			held := map[string]string{}
			for uid, p := range live {
				for _, c := range p.GetSpec().GetContainers() {
					ids := strings.FieldsFunc(a.visible(t, uid, c.GetName()), func(r rune) bool { return r == ',' })
					if fmt.Sprint(len(ids)) != c.GetResources().GetLimits()[gpu] {
						rt.Fatalf("%s/%s holds %v", uid, c.GetName(), ids)
					}
					for _, id := range ids {
						if other, ok := held[id]; ok {
							rt.Fatalf("%s is held by %s and %s", id, other, uid)
						}
						held[id] = uid
					}
				}
			}
		}
	})
}
