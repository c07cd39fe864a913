package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
)

// defaultContainer is the annotation that names the container meant where none is.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// podVerb returns what serves a method that only pods have; nil for others.
func (g *Gateway) podVerb(method string) handler {
	switch method {
	case "Bind":
		return func(ctx context.Context, s grpc.ServerStream) error {
			req := &corev1.BindRequest{}
			if err := receive(s, req); err != nil {
				return err
			}
			return sendMessage(s, g.registry.Bind(ctx, req))
		}
	case "Evict":
		return func(ctx context.Context, s grpc.ServerStream) error {
			req := &corev1.EvictRequest{}
			if err := receive(s, req); err != nil {
				return err
			}
			if err := g.registry.Evict(ctx, req); err != nil {
				return err
			}
			return sendMessage(s, &corev1.EvictResponse{})
		}
	case "Logs":
		return g.logs
	case "Exec":
		return g.exec
	case "PortForward":
		return g.portForward
	}
	return nil
}

func (g *Gateway) logs(ctx context.Context, s grpc.ServerStream) error {
	req := &corev1.LogsRequest{}
	if err := receive(s, req); err != nil {
		return err
	}
	pod, err := g.placedPod(ctx, req.GetNamespace(), req.GetName())
	if err != nil {
		return err
	}
	if req.Container, err = chooseContainer(pod, req.GetContainer()); err != nil {
		return err
	}
	first, err := proto.Marshal(&nodev1.NodeLogsRequest{PodUid: pod.GetMetadata().GetUid(), Request: req})
	if err != nil {
		return err
	}
	return g.nodes.proxy(ctx, s, pod.GetSpec().GetNodeName(), nodev1.NodeService_Logs_FullMethodName, first, nil)
}

func (g *Gateway) exec(ctx context.Context, s grpc.ServerStream) error {
	req := &corev1.ExecRequest{}
	if err := receive(s, req); err != nil {
		return err
	}
	start := req.GetStart()
	if start == nil {
		return apierr.Invalid("", "", apierr.Violation{Field: "start", Message: "Required value: the first message says what to run"})
	}
	if len(start.GetCommand()) == 0 {
		return apierr.Invalid("", "", apierr.Violation{Field: "start.command", Message: "Required value"})
	}
	pod, err := g.placedPod(ctx, start.GetNamespace(), start.GetName())
	if err != nil {
		return err
	}
	if start.Container, err = chooseContainer(pod, start.GetContainer()); err != nil {
		return err
	}
	first, err := proto.Marshal(&nodev1.NodeExecRequest{PodUid: pod.GetMetadata().GetUid(), Request: req})
	if err != nil {
		return err
	}
	return g.nodes.proxy(ctx, s, pod.GetSpec().GetNodeName(), nodev1.NodeService_Exec_FullMethodName, first, wrapRequest)
}

func (g *Gateway) portForward(ctx context.Context, s grpc.ServerStream) error {
	req := &corev1.PortForwardRequest{}
	if err := receive(s, req); err != nil {
		return err
	}
	start := req.GetStart()
	if start == nil {
		return apierr.Invalid("", "", apierr.Violation{Field: "start", Message: "Required value: the first message says where to connect"})
	}
	pod, err := g.placedPod(ctx, start.GetNamespace(), start.GetName())
	if err != nil {
		return err
	}
	first, err := proto.Marshal(&nodev1.NodePortForwardRequest{PodUid: pod.GetMetadata().GetUid(), Request: req})
	if err != nil {
		return err
	}
	return g.nodes.proxy(ctx, s, pod.GetSpec().GetNodeName(), nodev1.NodeService_PortForward_FullMethodName, first, wrapRequest)
}

// wrapRequest puts a request into field 2 of what node agents take, {pod_uid = 1; request = 2}.
func wrapRequest(raw []byte) []byte {
	out := make([]byte, 0, len(raw)+8)
	out = protowire.AppendTag(out, 2, protowire.BytesType)
	return protowire.AppendBytes(out, raw)
}

// placedPod returns a pod that is on a node.
func (g *Gateway) placedPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	obj, err := g.registry.Of("Pod").Load(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	pod, _ := obj.(*corev1.Pod)
	if pod.GetSpec().GetNodeName() == "" {
		key := namespace + "/" + name
		return nil, apierr.FailedPrecondition("Pod", key, fmt.Sprintf("pod %s does not have a host assigned", key))
	}
	return pod, nil
}

// chooseContainer returns the container meant: the one named, the only one, or the one that an annotation names.
func chooseContainer(pod *corev1.Pod, asked string) (string, error) {
	meta := pod.GetMetadata()
	var running, all []string
	for _, c := range pod.GetSpec().GetContainers() {
		running = append(running, c.GetName())
	}
	all = append(all, running...)
	for _, c := range pod.GetSpec().GetInitContainers() {
		all = append(all, c.GetName())
	}
	for _, c := range pod.GetSpec().GetEphemeralContainers() {
		all = append(all, c.GetName())
	}
	if asked == "" {
		asked = meta.GetAnnotations()[defaultContainer]
	}
	switch {
	case asked != "" && slices.Contains(all, asked):
		return asked, nil
	case asked != "":
		return "", apierr.BadRequest(fmt.Sprintf("container %s is not valid for pod %s: it has %s", asked, meta.GetName(), strings.Join(all, ", ")))
	case len(running) == 1:
		return running[0], nil
	}
	return "", apierr.BadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s",
		meta.GetName(), strings.Join(all, ", ")))
}
