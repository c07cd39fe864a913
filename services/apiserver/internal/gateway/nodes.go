package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
	"trireme.dev/services/apiserver/internal/registry"
)

// nodeHeader names, in a call's metadata, the node that a NodeService call is meant for; without it the request's
// node_name does.
const nodeHeader = "trireme-node"

// NodeDialer connects to the agent of a node. The agent must prove to be that node.
type NodeDialer func(node, address string) (*grpc.ClientConn, error)

// nodes passes calls on to node agents. A connection lives as long as its call: such calls are rare, and a gateway
// should not hold thousands of idle connections for them.
type nodes struct {
	registry *registry.Registry
	dialer   NodeDialer
}

// proxy opens the method on a node's agent, sends first, and carries messages both ways until the agent is done. Later
// requests go through wrap; where that is nil there are none.
func (n *nodes) proxy(ctx context.Context, s grpc.ServerStream, node, method string, first []byte, wrap func([]byte) []byte) error {
	address, err := n.address(ctx, node)
	if err != nil {
		return err
	}
	conn, err := n.dialer(node, address)
	if err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	defer conn.Close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := conn.NewStream(ctx, desc, method, grpc.ForceCodecV2(Codec()))
	if err != nil {
		return n.failure(node, err)
	}
	if err := stream.SendMsg(frame(first)); err != nil && !errors.Is(err, io.EOF) {
		return n.failure(node, err)
	}
	if wrap == nil {
		if err := stream.CloseSend(); err != nil {
			return n.failure(node, err)
		}
	} else {
		// It ends with the caller's stream: gRPC fails the receive when the handler returns.
		go forward(s, stream, wrap, cancel)
	}
	for {
		var f frame
		if err := stream.RecvMsg(&f); errors.Is(err, io.EOF) {
			s.SetTrailer(stream.Trailer())
			return nil
		} else if err != nil {
			if s.Context().Err() != nil {
				return s.Context().Err()
			}
			return n.failure(node, err)
		}
		if err := s.SendMsg(f); err != nil {
			return err
		}
	}
}

// forward carries the caller's messages to the agent. A caller that breaks off ends the call at the agent too.
func forward(s grpc.ServerStream, stream grpc.ClientStream, wrap func([]byte) []byte, cancel func()) {
	for {
		var f frame
		err := s.RecvMsg(&f)
		if errors.Is(err, io.EOF) {
			_ = stream.CloseSend() // what went wrong shows on the receiving side
			return
		}
		if err != nil {
			cancel()
			return
		}
		if err := stream.SendMsg(frame(wrap(f))); err != nil {
			return // likewise
		}
	}
}

func (n *nodes) failure(node string, err error) error {
	return fmt.Errorf("node %s: %w", node, apierr.FromStatus(err))
}

// address returns where the node's agent listens.
func (n *nodes) address(ctx context.Context, name string) (string, error) {
	obj, err := n.registry.Of("Node").Load(ctx, "", name)
	if err != nil {
		return "", err
	}
	node, _ := obj.(*corev1.Node)
	port := node.GetStatus().GetDaemonEndpoints().GetKubeletEndpoint().GetPort()
	if port == 0 {
		return "", apierr.Unavailable(fmt.Sprintf("node %s has not said at which port its agent serves", name))
	}
	for _, a := range node.GetStatus().GetAddresses() {
		if a.GetType() == "InternalIP" {
			return net.JoinHostPort(a.GetAddress(), strconv.Itoa(int(port))), nil
		}
	}
	return "", apierr.Unavailable(fmt.Sprintf("node %s has no address of type InternalIP", name))
}

// addNodeService serves those methods of node agents that name their node; the others are reached through PodService.
func (g *Gateway) addNodeService() error {
	service := nodev1.File_trireme_node_v1_node_service_proto.Services().ByName("NodeService")
	return g.add(service, nil, func(method string) handler {
		m := service.Methods().ByName(protoreflect.Name(method))
		field := m.Input().Fields().ByName("node_name")
		if field == nil {
			return func(context.Context, grpc.ServerStream) error {
				return apierr.Forbidden("Node", "", fmt.Sprintf("%s of a node is reached through PodService/%s", method, method))
			}
		}
		full := "/" + string(service.FullName()) + "/" + method
		return func(ctx context.Context, s grpc.ServerStream) error {
			return g.toNode(ctx, s, full, field.Number(), m.IsStreamingClient())
		}
	})
}

func (g *Gateway) toNode(ctx context.Context, s grpc.ServerStream, method string, field protowire.Number, streaming bool) error {
	first, err := receiveBytes(s)
	if err != nil {
		return err
	}
	node := stringField(first, field)
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		if v := md.Get(nodeHeader); len(v) > 0 && v[0] != "" {
			node = v[0]
			// The last of several values counts.
			first = protowire.AppendTag(first[:len(first):len(first)], field, protowire.BytesType)
			first = protowire.AppendString(first, node)
		}
	}
	if node == "" {
		return apierr.Invalid("", "", apierr.Violation{Field: "nodeName", Message: "Required value: the node that the call is for"})
	}
	var wrap func([]byte) []byte
	if streaming {
		wrap = func(b []byte) []byte { return b }
	}
	return g.nodes.proxy(ctx, s, node, method, first, wrap)
}

// stringField returns the last value of a string field in a message's bytes; empty where there is none.
func stringField(raw []byte, number protowire.Number) string {
	var value string
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return value
		}
		raw = raw[n:]
		m := protowire.ConsumeFieldValue(num, typ, raw)
		if m < 0 {
			return value
		}
		if num == number && typ == protowire.BytesType {
			b, _ := protowire.ConsumeBytes(raw)
			value = string(b)
		}
		raw = raw[m:]
	}
	return value
}
