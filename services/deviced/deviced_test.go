package deviced_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/rpc"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	devicev1 "trireme.dev/proto/gen/trireme/device/v1"
	"trireme.dev/services/deviced"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agent is the registration side of a node agent: what a kubelet does when a plugin registers.
type agent struct {
	v1beta1.UnimplementedRegistrationServer
	dir        string
	endpoint   string
	registered chan *v1beta1.RegisterRequest
	refuse     bool
	server     *grpc.Server
}

// startAgent deletes every socket of the folder, as kubelets do, and listens.
func startAgent(t *testing.T, dir string, refuse bool) *agent {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{dir: dir, refuse: refuse, registered: make(chan *v1beta1.RegisterRequest, 16), server: grpc.NewServer()}
	v1beta1.RegisterRegistrationServer(a.server, a)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.server.Serve(listener); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	t.Cleanup(func() { a.server.Stop(); <-done })
	return a
}

func (a *agent) Register(_ context.Context, in *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	a.registered <- in
	if a.refuse {
		return nil, apierr.ToStatus(apierr.Forbidden("DevicePlugin", in.GetResourceName(), "not now"))
	}
	return &v1beta1.Empty{}, nil
}

// plugin waits for a registration and dials the plugin back.
func (a *agent) plugin(t *testing.T) v1beta1.DevicePluginClient {
	t.Helper()
	for {
		in := receive(t, a.registered)
		if in.GetVersion() != "v1beta1" || in.GetResourceName() != "nvidia.com/gpu" {
			t.Fatalf("registration %v", in)
		}
		a.endpoint = in.GetEndpoint()
		// A plugin may be about to register while the agent deletes its socket and listens. It notices, and comes again.
		if _, err := os.Stat(filepath.Join(a.dir, a.endpoint)); err == nil {
			break
		}
	}
	return v1beta1.NewDevicePluginClient(a.conn(t))
}

// conn dials the plugin that registered last.
func (a *agent) conn(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(a.dir, a.endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came within 10 s")
		panic("unreachable")
	}
}

// run runs a deviced until the test ends and returns its socket.
func run(t *testing.T, cfg deviced.Config) string {
	t.Helper()
	cfg.Socket = filepath.Join(shortDir(t), "d.sock")
	d, err := deviced.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return cfg.Socket
}

// shortDir is a folder whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dev")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func list(t *testing.T, p v1beta1.DevicePluginClient) grpc.ServerStreamingClient[v1beta1.ListAndWatchResponse] {
	t.Helper()
	stream, err := p.ListAndWatch(t.Context(), &v1beta1.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func healthy(t *testing.T, stream grpc.ServerStreamingClient[v1beta1.ListAndWatchResponse]) []string {
	t.Helper()
	response, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, d := range response.GetDevices() {
		if d.GetHealth() == v1beta1.Healthy {
			ids = append(ids, d.GetID())
		}
	}
	return ids
}

func TestPluginRegistersListsAndAllocates(t *testing.T) {
	dir := shortDir(t)
	a := startAgent(t, dir, false)
	socket := run(t, deviced.Config{PluginDirs: []string{"n1=" + dir}, SimulatedGPUs: 4, SimulatedNUMANodes: 2})
	p := a.plugin(t)

	options, err := p.GetDevicePluginOptions(t.Context(), &v1beta1.Empty{})
	if err != nil || !options.GetGetPreferredAllocationAvailable() || options.GetPreStartRequired() {
		t.Errorf("options %v, %v", options, err)
	}
	stream := list(t, p)
	all := []string{"GPU-n1-0", "GPU-n1-1", "GPU-n1-2", "GPU-n1-3"}
	if got := healthy(t, stream); !slices.Equal(got, all) {
		t.Errorf("devices %v, want %v", got, all)
	}

	preferred, err := p.GetPreferredAllocation(t.Context(), &v1beta1.PreferredAllocationRequest{
		ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{
			{AvailableDeviceIDs: all[1:], AllocationSize: 2},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := preferred.GetContainerResponses()[0].GetDeviceIDs(); !slices.Equal(got, all[2:]) {
		t.Errorf("preferred %v, want both of the NUMA node that is whole", got)
	}

	response, err := p.Allocate(t.Context(), &v1beta1.AllocateRequest{
		ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: []string{"GPU-n1-3", "GPU-n1-2"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := response.GetContainerResponses()[0]
	if got := c.GetEnvs()["NVIDIA_VISIBLE_DEVICES"]; got != "GPU-n1-2,GPU-n1-3" {
		t.Errorf("NVIDIA_VISIBLE_DEVICES = %q", got)
	}
	var paths []string
	for _, d := range c.GetDevices() {
		paths = append(paths, d.GetHostPath()+":"+d.GetContainerPath())
	}
	if want := []string{"/dev/null:/dev/nvidia2", "/dev/null:/dev/nvidia3"}; !slices.Equal(paths, want) {
		t.Errorf("device nodes %v, want %v", paths, want)
	}
	_, err = p.Allocate(t.Context(), &v1beta1.AllocateRequest{
		ContainerRequests: []*v1beta1.ContainerAllocateRequest{{DevicesIds: []string{"GPU-n2-0"}}},
	})
	if err == nil || !strings.Contains(err.Error(), "GPU-n2-0") {
		t.Errorf("err = %v, want one that names the unknown device", err)
	}

	told, err := componentv1.NewStatusServiceClient(a.conn(t)).GetStatus(t.Context(), &componentv1.GetStatusRequest{})
	if err != nil || told.GetStatus().GetVersion() == "" || told.GetStatus().GetPid() != int64(os.Getpid()) {
		t.Errorf("status %v, %v", told, err)
	}

	conn, err := rpc.Dial(rpc.ClientConfig{Address: "unix://" + socket})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	service := devicev1.NewDeviceServiceClient(conn)
	if _, err := service.SetHealth(t.Context(), &devicev1.SetHealthRequest{ResourceName: "nvidia.com/gpu", Id: "GPU-n1-1"}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	if got := healthy(t, stream); !slices.Equal(got, []string{"GPU-n1-0", "GPU-n1-2", "GPU-n1-3"}) {
		t.Errorf("after one was made unhealthy: %v", got)
	}
	_, err = service.SetHealth(t.Context(), &devicev1.SetHealthRequest{ResourceName: "nvidia.com/gpu", Id: "nope"})
	if !apierr.IsNotFound(apierr.FromStatus(err)) {
		t.Errorf("unknown device: %v, want NotFound", err)
	}
	devices, err := service.ListDevices(t.Context(), &devicev1.ListDevicesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	pool := devices.GetPools()[0]
	if !pool.GetRegistered() || len(pool.GetDevices()) != 4 || pool.GetDevices()[1].GetHealthReason() == "" {
		t.Errorf("pool %v", pool)
	}
}

func TestPluginRegistersAgainWhenTheAgentComesBack(t *testing.T) {
	dir := shortDir(t)
	run(t, deviced.Config{PluginDirs: []string{dir}, SimulatedGPUs: 1})

	// Three agents one after the other; the second has no chance to say that it leaves. Each deletes every socket.
	for range 3 {
		a := startAgent(t, dir, false)
		if got := healthy(t, list(t, a.plugin(t))); !slices.Equal(got, []string{"GPU-sim-0"}) {
			t.Errorf("devices %v", got)
		}
		a.server.Stop()
	}
}

func TestPluginRegistersAgainWhenTheAgentEndsTheStream(t *testing.T) {
	dir := shortDir(t)
	a := startAgent(t, dir, false)
	run(t, deviced.Config{PluginDirs: []string{dir}, SimulatedGPUs: 1})
	p := a.plugin(t)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := p.ListAndWatch(ctx, &v1beta1.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	healthy(t, stream)
	cancel()
	if got := healthy(t, list(t, a.plugin(t))); !slices.Equal(got, []string{"GPU-sim-0"}) {
		t.Errorf("devices %v", got)
	}
}

func TestARefusedRegistrationIsTriedAgain(t *testing.T) {
	dir := shortDir(t)
	a := startAgent(t, dir, true)
	run(t, deviced.Config{PluginDirs: []string{dir}, SimulatedGPUs: 1})
	receive(t, a.registered)
	receive(t, a.registered)
}

func TestBadSettingsAreNamed(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "resources.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name string
		cfg  deviced.Config
		want string
	}{
		{"no folder", deviced.Config{}, "--plugin-dir"},
		{"relative folder", deviced.Config{PluginDirs: []string{"n=x"}}, "--plugin-dir n=x"},
		{"real and simulated", deviced.Config{PluginDirs: []string{"/x"}, NVIDIA: true, SimulatedGPUs: 1}, "choose one"},
		{"negative", deviced.Config{PluginDirs: []string{"/x"}, SimulatedGPUs: -1}, "0 or more"},
		{"no such file", deviced.Config{PluginDirs: []string{"/x"}, ResourcesFile: "/nonexistent"}, "/nonexistent"},
		{"unknown field", deviced.Config{PluginDirs: []string{"/x"}, ResourcesFile: file("resources:\n- nam: x\n")}, "nam"},
		{"bad name", deviced.Config{PluginDirs: []string{"/x"}, ResourcesFile: file("resources:\n- {name: fpga, paths: [/dev/x]}\n")}, "resources[0].name"},
		{"twice", deviced.Config{PluginDirs: []string{"/x"}, ResourcesFile: file("resources:\n- {name: nvidia.com/gpu, paths: [/dev/x]}\n")}, "offered already"},
		{"no paths", deviced.Config{PluginDirs: []string{"/x"}, ResourcesFile: file("resources:\n- {name: a.b/c}\n")}, "resources[0].paths"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := deviced.New(c.cfg, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("err = %v, want one with %q", err, c.want)
			}
		})
	}
}
