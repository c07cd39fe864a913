// Package server serves NodeService: logs, commands, connections and images of the nodes that one agent process hosts.
//
// It decides nothing about pods. It finds the node by name or by the pod's UID, and reads from the runtime and the log
// files.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"google.golang.org/grpc"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/rpc"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
	"trireme.dev/services/nodeagent/internal/plan"
	"trireme.dev/services/nodeagent/internal/podworker"
	"trireme.dev/services/nodeagent/internal/runtime"
)

// gatewayUser is who calls on behalf of users.
const gatewayUser = "system:trireme-apiserver"

// Node is one node that the process hosts.
type Node struct {
	Name      string
	Simulated bool
	Runtime   runtime.Runtime
	Pods      *podworker.Manager
	LogDir    string
	// Plugins are the node's device plugins.
	Plugins func(context.Context) []*nodev1.DevicePlugin
}

// Server implements NodeService.
type Server struct {
	nodev1.UnimplementedNodeServiceServer
	nodes []*Node
	// self is the state of the agent.
	self func() *componentv1.ComponentStatus
	// anonymous callers are let in, since the operator chose to serve without TLS.
	anonymous bool
	logger    *slog.Logger
}

// New returns a server of the nodes; self tells of the agent.
func New(nodes []*Node, self func() *componentv1.ComponentStatus, anonymous bool, logger *slog.Logger) *Server {
	return &Server{nodes: nodes, self: self, anonymous: anonymous, logger: logger}
}

// Register adds the service.
func (s *Server) Register(r grpc.ServiceRegistrar) { nodev1.RegisterNodeServiceServer(r, s) }

// allowed lets in the gateway and administrators: whoever may call here may run anything in any container.
func (s *Server) allowed(ctx context.Context) error {
	caller, _ := rpc.CallerFrom(ctx)
	if s.anonymous || caller.User == gatewayUser || slices.Contains(caller.Groups, "system:masters") {
		return nil
	}
	return apierr.Forbidden("", "", fmt.Sprintf("%s may not call a node agent: go through the gateway", caller.User))
}

func (s *Server) node(ctx context.Context, name string) (*Node, error) {
	if err := s.allowed(ctx); err != nil {
		return nil, err
	}
	if name == "" && len(s.nodes) == 1 {
		return s.nodes[0], nil
	}
	for _, n := range s.nodes {
		if n.Name == name {
			return n, nil
		}
	}
	return nil, apierr.NotFound("Node", name)
}

// pod finds a pod by UID. The gateway names it as well, for people.
func (s *Server) pod(ctx context.Context, uid, namespace, name string) (*Node, *corev1.Pod, error) {
	if err := s.allowed(ctx); err != nil {
		return nil, nil, err
	}
	for _, n := range s.nodes {
		if pod, ok := n.Pods.Pod(uid); ok {
			return n, pod, nil
		}
	}
	return nil, nil, apierr.NotFound("Pod", namespace+"/"+name)
}

// containerOf picks the container named, or the only one.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	spec, key := pod.GetSpec(), pod.GetMetadata().GetNamespace()+"/"+pod.GetMetadata().GetName()
	if name == "" {
		if len(spec.GetContainers()) == 1 {
			return spec.GetContainers()[0].GetName(), nil
		}
		return "", apierr.BadRequest(fmt.Sprintf("pod %s has several containers: name one", key))
	}
	for _, list := range [][]*corev1.Container{spec.GetContainers(), spec.GetInitContainers()} {
		for _, c := range list {
			if c.GetName() == name {
				return name, nil
			}
		}
	}
	return "", apierr.BadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, key))
}

// running finds the container's run of now.
func (n *Node) running(ctx context.Context, pod *corev1.Pod, container string) (*runtime.Container, error) {
	seen, err := n.Runtime.Pod(ctx, pod.GetMetadata().GetUid())
	if err != nil && !errors.Is(err, runtime.ErrNotFound) {
		return nil, apierr.Unavailable(fmt.Sprintf("ask the runtime about pod %s: %v", pod.GetMetadata().GetName(), err))
	}
	c := plan.Latest(seen, container)
	if c == nil || c.State != runtime.StateRunning {
		return nil, apierr.BadRequest(fmt.Sprintf("container %q in pod %q is not running", container, pod.GetMetadata().GetName()))
	}
	return c, nil
}

// LoadImage imports an archive into a node's store.
func (s *Server) LoadImage(stream nodev1.NodeService_LoadImageServer) error {
	first, err := stream.Recv()
	if err != nil {
		return received(err)
	}
	n, err := s.node(stream.Context(), first.GetNodeName())
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	go func() {
		for in := first; ; {
			if _, err := w.Write(in.GetChunk()); err != nil {
				return
			}
			var err error
			if in, err = stream.Recv(); err != nil {
				if errors.Is(err, io.EOF) {
					err = nil
				}
				w.CloseWithError(err)
				return
			}
		}
	}()
	names, err := n.Runtime.Images().Import(stream.Context(), r)
	// Ends the goroutine where the import has left something unread.
	_ = r.CloseWithError(io.ErrClosedPipe)
	if err != nil {
		return apierr.BadRequest("load image: " + err.Error())
	}
	return stream.SendAndClose(&nodev1.LoadImageResponse{Images: names})
}

// ListImages lists a node's images.
func (s *Server) ListImages(ctx context.Context, in *nodev1.ListImagesRequest) (*nodev1.ListImagesResponse, error) {
	n, err := s.node(ctx, in.GetNodeName())
	if err != nil {
		return nil, err
	}
	images, err := n.Runtime.Images().List(ctx)
	if err != nil {
		return nil, apierr.Unavailable("list images: " + err.Error())
	}
	out := &nodev1.ListImagesResponse{}
	for _, i := range images {
		out.Images = append(out.Images, &nodev1.NodeImage{Names: i.Names, SizeBytes: i.SizeBytes})
	}
	slices.SortFunc(out.Images, func(a, b *nodev1.NodeImage) int {
		return slices.Compare(a.GetNames(), b.GetNames())
	})
	return out, nil
}

// GetInfo says what runs on a node.
func (s *Server) GetInfo(ctx context.Context, in *nodev1.GetInfoRequest) (*nodev1.GetInfoResponse, error) {
	n, err := s.node(ctx, in.GetNodeName())
	if err != nil {
		return nil, err
	}
	info, err := n.Runtime.Info(ctx)
	if err != nil {
		return nil, apierr.Unavailable("ask the runtime: " + err.Error())
	}
	self := s.self()
	return &nodev1.GetInfoResponse{
		Version: self.GetVersion(), RuntimeName: info.Name, RuntimeVersion: info.Version, Simulated: n.Simulated, NodeName: n.Name,
		Agent: self, DevicePlugins: n.Plugins(ctx),
	}, nil
}

// received is the error of a stream that ended before it began.
func received(err error) error {
	if errors.Is(err, io.EOF) {
		return apierr.BadRequest("the stream ended before its first message")
	}
	return err
}
