package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
	"trireme.dev/services/apiserver/apitest"
)

func TestMain(m *testing.M) {
	// The audit log's file keeps one for the life of the process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

func TestReflectionAndHealth(t *testing.T) {
	s := apitest.New(t)
	stream, err := reflectionv1.NewServerReflectionClient(s.Conn()).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(req *reflectionv1.ServerReflectionRequest) *reflectionv1.ServerReflectionResponse {
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	var names []string
	list := ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
	for _, service := range list.GetListServicesResponse().GetService() {
		names = append(names, service.GetName())
	}
	for _, want := range []string{
		"trireme.core.v1.PodService", "trireme.apps.v1.DeploymentService", "trireme.coordination.v1.LeaseService",
		"trireme.scheduling.v1.PodGroupService", "trireme.node.v1.NodeService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not listed in %v", want, names)
		}
	}
	file := ask(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{
		FileContainingSymbol: "trireme.core.v1.PodService",
	}})
	if len(file.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Fatalf("describe: %v", file)
	}
	health, err := healthpb.NewHealthClient(s.Conn()).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("health: %v %v", health, err)
	}
}

func TestUnknownMethodsAreNamed(t *testing.T) {
	s := apitest.New(t)
	for method, want := range map[string]string{
		"/trireme.core.v1.PodService/Fly":    "unknown method Fly of service trireme.core.v1.PodService",
		"/trireme.core.v1.DragonService/Get": "unknown service trireme.core.v1.DragonService",
		"/trireme.core.v1.NamespaceService/": "unknown method  of service",
	} {
		err := s.Conn().Invoke(t.Context(), method, &metav1.GetRequest{}, &corev1.Pod{})
		if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", method, err)
		}
	}
}

func TestErrorsCarryDetails(t *testing.T) {
	s := apitest.New(t)
	_, err := corev1.NewPodServiceClient(s.Conn()).Create(t.Context(), &corev1.CreatePodRequest{Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "a"},
		Spec: &corev1.PodSpec{
			RestartPolicy: proto.String("Sometimes"),
			Containers:    []*corev1.Container{{Name: "C"}},
		},
	}})
	var typed *apierr.Error
	if !errors.As(apierr.FromStatus(err), &typed) || status.Code(err) != codes.InvalidArgument {
		t.Fatal(err)
	}
	var fields []string
	for _, v := range typed.Violations {
		fields = append(fields, v.Field)
	}
	slices.Sort(fields)
	want := []string{"spec.containers[0].image", "spec.containers[0].name", "spec.restartPolicy"}
	if !slices.Equal(fields, want) || typed.Kind != "Pod" || typed.Key != "default/a" {
		t.Fatalf("fields %v of %s %s", fields, typed.Kind, typed.Key)
	}
	_, err = corev1.NewPodServiceClient(s.Conn()).Create(t.Context(), &corev1.CreatePodRequest{})
	if !apierr.IsInvalid(apierr.FromStatus(err)) || !strings.Contains(err.Error(), "object: Required value") {
		t.Fatal(err)
	}
}

func TestWarningsTravelInTheTrailer(t *testing.T) {
	s := apitest.New(t)
	pods := corev1.NewPodServiceClient(s.Conn())
	var trailer metadata.MD
	created, err := pods.Create(t.Context(), &corev1.CreatePodRequest{Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "a"},
		Spec: &corev1.PodSpec{
			HostUsers:  proto.Bool(false),
			DnsPolicy:  proto.String("ClusterFirst"), // the default: not worth a warning
			Containers: []*corev1.Container{{Name: "c", Image: "i", LivenessProbe: &corev1.Probe{Grpc: &corev1.GRPCAction{Port: 1}}}},
		},
	}}, grpc.Trailer(&trailer))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"spec.containers[0].livenessProbe: accepted, but not enforced yet", "spec.hostUsers: accepted, but not enforced yet"}
	if got := trailer.Get("trireme-warning-bin"); !slices.Equal(got, want) {
		t.Fatalf("warnings %q", got)
	}
	created.Metadata.Labels = map[string]string{"a": "b"}
	trailer = nil
	if _, err := pods.Update(t.Context(), &corev1.UpdatePodRequest{Object: created}, grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	if got := trailer.Get("trireme-warning-bin"); len(got) > 0 {
		t.Fatalf("an update that adds nothing unenforced warns of %q", got)
	}
}

func TestTraceParentIsKept(t *testing.T) {
	s := apitest.New(t)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", parent)
	got, err := corev1.NewConfigMapServiceClient(s.Conn()).Create(ctx, &corev1.CreateConfigMapRequest{Object: &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "a"},
	}})
	if err != nil || got.GetMetadata().GetTraceContext() != parent {
		t.Fatalf("%v %v", got, err)
	}
}

// agent is a node agent that answers with what it was asked.
type agent struct {
	nodev1.UnimplementedNodeServiceServer
}

func (agent) Logs(req *nodev1.NodeLogsRequest, s grpc.ServerStreamingServer[corev1.LogsResponse]) error {
	r := req.GetRequest()
	return s.Send(&corev1.LogsResponse{Data: fmt.Appendf(nil, "%s %s/%s", req.GetPodUid(), r.GetName(), r.GetContainer())})
}

func (agent) Exec(s grpc.BidiStreamingServer[nodev1.NodeExecRequest, corev1.ExecResponse]) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	if first.GetRequest().GetStart().GetCommand()[0] == "fail" {
		return apierr.ToStatus(apierr.BadRequest("container c is not running"))
	}
	for {
		req, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.Send(&corev1.ExecResponse{Message: &corev1.ExecResponse_Exit{Exit: &corev1.ExitStatus{Code: 3}}})
		}
		if err != nil {
			return err
		}
		if err := s.Send(&corev1.ExecResponse{Message: &corev1.ExecResponse_Stdout{Stdout: req.GetRequest().GetStdin()}}); err != nil {
			return err
		}
	}
}

func (agent) LoadImage(s grpc.ClientStreamingServer[nodev1.LoadImageRequest, nodev1.LoadImageResponse]) error {
	size, node := 0, ""
	for {
		req, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(&nodev1.LoadImageResponse{Images: []string{fmt.Sprintf("%s:%d", node, size)}})
		}
		if err != nil {
			return err
		}
		size += len(req.GetChunk())
		if req.GetNodeName() != "" {
			node = req.GetNodeName()
		}
	}
}

func (agent) GetInfo(_ context.Context, req *nodev1.GetInfoRequest) (*nodev1.GetInfoResponse, error) {
	return &nodev1.GetInfoResponse{NodeName: req.GetNodeName(), Version: "v1"}, nil
}

// withAgent returns a gateway with a node n1, whose agent runs here, and a pod on it.
func withAgent(t *testing.T) (*apitest.Server, *corev1.Pod) {
	s := apitest.New(t)
	lis := bufconn.Listen(1 << 16)
	srv := grpc.NewServer()
	nodev1.RegisterNodeServiceServer(srv, agent{})
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(lis) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.SetNodeDialer(func(node, address string) (*grpc.ClientConn, error) {
		if node != "n1" || address != "10.0.0.1:10250" {
			return nil, fmt.Errorf("dialed %s at %s", node, address)
		}
		return grpc.NewClient("passthrough:///agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	})
	if _, err := corev1.NewNodeServiceClient(s.Conn()).Create(t.Context(), &corev1.CreateNodeRequest{Object: &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: "n1"},
		Status: &corev1.NodeStatus{
			Addresses:       []*corev1.NodeAddress{{Type: "Hostname", Address: "n1"}, {Type: "InternalIP", Address: "10.0.0.1"}},
			DaemonEndpoints: &corev1.NodeDaemonEndpoints{KubeletEndpoint: &corev1.DaemonEndpoint{Port: 10250}},
		},
	}}); err != nil {
		t.Fatal(err)
	}
	pod, err := corev1.NewPodServiceClient(s.Conn()).Create(t.Context(), &corev1.CreatePodRequest{Object: &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:     &corev1.PodSpec{NodeName: proto.String("n1"), Containers: []*corev1.Container{{Name: "c", Image: "i"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s, pod
}

func TestLogsAndExecReachTheAgent(t *testing.T) {
	s, pod := withAgent(t)
	pods := corev1.NewPodServiceClient(s.Conn())
	logs, err := pods.Logs(t.Context(), &corev1.LogsRequest{Namespace: "default", Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := logs.Recv()
	if want := pod.GetMetadata().GetUid() + " web/c"; err != nil || string(resp.GetData()) != want {
		t.Fatalf("logs %q %v, want %q", resp.GetData(), err, want)
	}
	if _, err := logs.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}

	exec := func(command string) grpc.BidiStreamingClient[corev1.ExecRequest, corev1.ExecResponse] {
		stream, err := pods.Exec(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&corev1.ExecRequest{Message: &corev1.ExecRequest_Start{Start: &corev1.ExecStart{
			Namespace: "default", Name: "web", Command: []string{command},
		}}}); err != nil {
			t.Fatal(err)
		}
		return stream
	}
	stream := exec("cat")
	for _, text := range []string{"hello", "world"} {
		if err := stream.Send(&corev1.ExecRequest{Message: &corev1.ExecRequest_Stdin{Stdin: []byte(text)}}); err != nil {
			t.Fatal(err)
		}
		out, err := stream.Recv()
		if err != nil || string(out.GetStdout()) != text {
			t.Fatalf("%v %v", out, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	out, err := stream.Recv()
	if err != nil || out.GetExit().GetCode() != 3 {
		t.Fatalf("%v %v", out, err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	_, err = exec("fail").Recv()
	if !apierr.IsInvalid(apierr.FromStatus(err)) || !strings.Contains(err.Error(), "node n1: container c is not running") {
		t.Fatal(err)
	}
	for name, req := range map[string]*corev1.LogsRequest{
		"not valid for pod": {Namespace: "default", Name: "web", Container: "x"},
		"not found":         {Namespace: "default", Name: "none"},
	} {
		stream, err := pods.Logs(t.Context(), req)
		if err == nil {
			_, err = stream.Recv()
		}
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNodeServiceIsPassedOn(t *testing.T) {
	s, _ := withAgent(t)
	nodes := nodev1.NewNodeServiceClient(s.Conn())
	info, err := nodes.GetInfo(t.Context(), &nodev1.GetInfoRequest{NodeName: "n1"})
	if err != nil || info.GetNodeName() != "n1" {
		t.Fatalf("%v %v", info, err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "trireme-node", "n1")
	load, err := nodes.LoadImage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := load.Send(&nodev1.LoadImageRequest{Chunk: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := load.CloseAndRecv()
	if err != nil || resp.GetImages()[0] != "n1:3000" {
		t.Fatalf("%v %v", resp, err)
	}
	if _, err := nodes.GetInfo(t.Context(), &nodev1.GetInfoRequest{}); !apierr.IsInvalid(apierr.FromStatus(err)) {
		t.Fatal(err)
	}
	if _, err := nodes.GetInfo(t.Context(), &nodev1.GetInfoRequest{NodeName: "n9"}); !apierr.IsNotFound(apierr.FromStatus(err)) {
		t.Fatal(err)
	}
	logs, err := nodes.Logs(t.Context(), &nodev1.NodeLogsRequest{})
	if err == nil {
		_, err = logs.Recv()
	}
	if !apierr.IsForbidden(apierr.FromStatus(err)) {
		t.Fatal(err)
	}
}
