package nodeagent

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"trireme.dev/client"
	"trireme.dev/client/tracing"
	"trireme.dev/kit/rpc"
	"trireme.dev/kit/telemetry/telemetrytest"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

// gpus is a device plugin with two devices.
type gpus struct {
	v1beta1.UnimplementedDevicePluginServer
}

func (gpus) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (gpus) ListAndWatch(_ *v1beta1.Empty, s grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	err := s.Send(&v1beta1.ListAndWatchResponse{Devices: []*v1beta1.Device{{ID: "0", Health: v1beta1.Healthy}, {ID: "1", Health: v1beta1.Healthy}}})
	<-s.Context().Done()
	return err
}

func (gpus) GetPreferredAllocation(_ context.Context, in *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	ids := in.GetContainerRequests()[0].GetAvailableDeviceIDs()
	return &v1beta1.PreferredAllocationResponse{ContainerResponses: []*v1beta1.ContainerPreferredAllocationResponse{{DeviceIDs: ids[len(ids)-1:]}}}, nil
}

func (gpus) Allocate(context.Context, *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	return &v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{{}}}, nil
}

// plugIn serves the plugin to the agent until the test ends.
func (c *cluster) plugIn() {
	c.Helper()
	dir := filepath.Join(c.config().nodeDir("sim-0"), "device-plugins")
	lis, err := net.Listen("unix", filepath.Join(dir, "gpus.sock"))
	if err != nil {
		c.Fatal(err)
	}
	server := grpc.NewServer(rpc.ServerSpans())
	v1beta1.RegisterDevicePluginServer(server, gpus{})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(lis) }()
	c.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			c.Error(err)
		}
	})
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		c.Fatal(err)
	}
	defer conn.Close()
	if _, err := v1beta1.NewRegistrationClient(conn).Register(c.Context(), &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: "gpus.sock", ResourceName: "example.com/gpu",
	}); err != nil {
		c.Fatal(err)
	}
	c.waitNode(func(n *corev1.Node) bool { return n.GetStatus().GetAllocatable()["example.com/gpu"] == "2" })
}

func TestTraceAndMetricsFromBindToReady(t *testing.T) {
	spans, metrics := telemetrytest.RecordSpans(t, apitest.TraceRoot), telemetrytest.RecordMetrics(t)
	c := start(t)
	c.plugIn()
	if _, err := client.For[*corev1.ConfigMap](c.conn).Create(t.Context(), &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "settings"}, Data: map[string]string{"a": "b"},
	}); err != nil {
		t.Fatal(err)
	}
	p := pod("web", "serve")
	p.Spec.NodeName = nil
	p.Spec.Containers[0].Resources = &corev1.ResourceRequirements{Limits: map[string]string{"example.com/gpu": "1"}}
	p.Spec.Volumes = []*corev1.Volume{{Name: "settings", ConfigMap: &corev1.ConfigMapVolumeSource{Name: "settings"}}}
	p = c.create(p)
	bound := time.Now()
	response, err := corev1.NewPodServiceClient(c.conn).Bind(t.Context(), &corev1.BindRequest{Groups: []*corev1.BindGroup{{
		Bindings: []*corev1.Binding{{Namespace: "default", PodName: "web", NodeName: "sim-0"}},
	}}})
	if err != nil || response.GetResults()[0].GetError() != nil {
		t.Fatalf("bind: %v %v", response, err)
	}
	if at := c.waitPod("web", running).GetMetadata().GetTraceTime().AsTime(); at.Before(bound) {
		t.Errorf("trace_time %s is older than the binding", at)
	}
	checkMetrics(t, metrics)
	// The agent writes about a pod one thing after the other: when the pod is gone, all about its start has been said.
	if _, err := c.pods.Delete(t.Context(), "default", "web", nil); err != nil {
		t.Fatal(err)
	}
	c.waitGone("web")
	c.stop()

	id := tracing.SpanContext(p.GetMetadata()).TraceID().String()
	mine := telemetrytest.Of(spans.AllEnded(t), id)
	const create = "trireme.core.v1.PodService/Create/trireme.core.v1.PodService/Create/"
	const plugin = "v1beta1.DevicePlugin/"
	for _, want := range []string{
		"Txn", "watch delivery", "pod worker wait", "syncPod/Admit/Allocate",
		"syncPod/Admit/Allocate/" + plugin + "Allocate/" + plugin + "Allocate",
		"syncPod/Admit/Allocate/" + plugin + "GetPreferredAllocation/" + plugin + "GetPreferredAllocation",
		"syncPod/RunPodSandbox/SetUpNetwork", "syncPod/MountVolumes/trireme.core.v1.ConfigMapService/Get",
		"syncPod/EnsureImage", "syncPod/CreateContainer", "syncPod/StartContainer", "status write", "Ready",
	} {
		if !slices.Contains(telemetrytest.Paths(mine), create+want) {
			t.Errorf("no span %s in:\n%s", want, strings.Join(telemetrytest.Paths(mine), "\n"))
		}
	}
	var ready time.Time
	var sync telemetrytest.Span
	for _, s := range mine {
		switch s.Name {
		case "Ready":
			ready = s.Start
		case "syncPod":
			sync = s
		case "Allocate":
			if s.Attributes["trireme.devices"] != `["1"]` || s.Attributes["trireme.resource"] != "example.com/gpu" {
				t.Errorf("attributes of Allocate: %v", s.Attributes)
			}
		}
	}
	if sync.Attributes["k8s.node.name"] != "sim-0" || sync.Attributes["k8s.pod.name"] != "web" {
		t.Errorf("attributes of syncPod: %v", sync.Attributes)
	}
	handed := slices.DeleteFunc(slices.Clone(mine), func(s telemetrytest.Span) bool { return s.Start.Before(bound) })
	for i := range handed {
		handed[i].Parent = "" // on a busy machine some time passes inside a span before its first part begins
	}
	if gaps := telemetrytest.Gaps(handed, ready, 20*time.Millisecond); len(gaps) > 0 {
		t.Errorf("between binding and Ready nothing covers %v", gaps)
	}
}

// checkMetrics looks at what one pod with one device has counted.
func checkMetrics(t *testing.T, m *telemetrytest.Metrics) {
	t.Helper()
	for name, want := range map[string]map[string]float64{
		"kubelet_node_name":                            {"node=sim-0": 1},
		"kubelet_running_pods":                         {"node=sim-0": 1},
		"kubelet_running_containers":                   {"container_state=running,node=sim-0": 1, "container_state=exited,node=sim-0": 0},
		"kubelet_started_pods_total":                   {"": 1},
		"kubelet_started_containers_total":             {"container_type=container": 1},
		"kubelet_pod_start_duration_seconds":           {"": 1},
		"kubelet_pod_start_sli_duration_seconds":       {"": 1},
		"kubelet_pod_worker_start_duration_seconds":    {"": 1},
		"kubelet_runtime_operations_total":             {"operation_type=run_podsandbox": 1, "operation_type=start_container": 1},
		"kubelet_runtime_operations_duration_seconds":  {"operation_type=create_container": 1},
		"kubelet_device_plugin_registration_total":     {"resource_name=example.com/gpu": 1},
		"kubelet_device_plugin_alloc_duration_seconds": {"resource_name=example.com/gpu": 1},
		"trireme_node_devices":                         {"node=sim-0,resource=example.com/gpu,state=capacity": 2, "node=sim-0,resource=example.com/gpu,state=allocated": 1},
		"apiserver_request_total":                      {"code=200,group=,resource=pods,subresource=binding,verb=POST,version=v1": 1},
	} {
		got := m.Values(t, name)
		for labels, value := range want {
			if have, ok := got[labels]; !ok || have != value {
				t.Errorf("%s{%s} is %v (there: %v), want %v", name, labels, have, got, value)
			}
		}
	}
}

func TestReadiness(t *testing.T) {
	c := start(t)
	if err := c.agent.Ready(); err != nil {
		t.Errorf("a registered node with a runtime: %v", err)
	}
	other, err := New(c.config(), c.agent.logger)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Ready(); err == nil {
		t.Error("an agent that does not run is ready")
	}
}
