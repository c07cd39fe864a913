package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
	"trireme.dev/services/nodeagent/internal/runtime"
)

const dialTimeout = 5 * time.Second

// Exec runs a command in a running container.
func (s *Server) Exec(stream nodev1.NodeService_ExecServer) error {
	first, err := stream.Recv()
	if err != nil {
		return received(err)
	}
	start := first.GetRequest().GetStart()
	if start == nil {
		return apierr.BadRequest("the first message of an Exec stream is start")
	}
	if len(start.GetCommand()) == 0 {
		return apierr.BadRequest("no command to run")
	}
	n, pod, err := s.pod(stream.Context(), first.GetPodUid(), start.GetNamespace(), start.GetName())
	if err != nil {
		return err
	}
	name, err := containerOf(pod, start.GetContainer())
	if err != nil {
		return err
	}
	container, err := n.running(stream.Context(), pod, name)
	if err != nil {
		return err
	}
	// The command ends with the caller.
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	out := &execOutput{stream: stream}
	spec := runtime.ExecSpec{Command: start.GetCommand(), TTY: start.GetTty()}
	if start.GetStdout() || start.GetTty() {
		spec.Stdout = execWriter{out, false}
	}
	if start.GetStderr() && !start.GetTty() {
		spec.Stderr = execWriter{out, true}
	}
	in, stdin := io.Pipe()
	if start.GetStdin() {
		spec.Stdin = in
	}
	resize := make(chan runtime.TerminalSize, 1)
	if size := start.GetSize(); size != nil {
		resize <- runtime.TerminalSize{Width: uint16(size.GetWidth()), Height: uint16(size.GetHeight())}
	}
	spec.Resize = resize
	// Recv ends when this handler returns, which is why nobody waits for it.
	go feed(ctx, cancel, stream, stdin, resize)

	code, err := n.Runtime.Exec(ctx, container.ID, spec)
	_ = in.CloseWithError(io.ErrClosedPipe)
	if err != nil {
		if stream.Context().Err() != nil {
			return stream.Context().Err()
		}
		return apierr.BadRequest(err.Error())
	}
	exit := &corev1.ExitStatus{Code: int32(code)}
	if code != 0 {
		exit.Message = fmt.Sprintf("command terminated with exit code %d", code)
	}
	return out.send(&corev1.ExecResponse{Message: &corev1.ExecResponse_Exit{Exit: exit}})
}

// feed hands what the caller sends to the command.
func feed(ctx context.Context, cancel context.CancelFunc, stream nodev1.NodeService_ExecServer, stdin *io.PipeWriter, resize chan runtime.TerminalSize) {
	for {
		in, err := stream.Recv()
		if err != nil {
			// A caller that only ends its sending still wants the output.
			if !errors.Is(err, io.EOF) {
				cancel()
			}
			_ = stdin.Close()
			return
		}
		switch message := in.GetRequest().GetMessage().(type) {
		case *corev1.ExecRequest_Stdin:
			// An error means that the command reads no more; the caller hears of its end.
			_, _ = stdin.Write(message.Stdin)
		case *corev1.ExecRequest_CloseStdin:
			_ = stdin.Close()
		case *corev1.ExecRequest_Resize:
			size := runtime.TerminalSize{Width: uint16(message.Resize.GetWidth()), Height: uint16(message.Resize.GetHeight())}
			// The newest size counts.
			select {
			case <-resize:
			default:
			}
			select {
			case resize <- size:
			case <-ctx.Done():
				return
			}
		}
	}
}

// execOutput serialises what is sent: a stream takes one message at a time.
type execOutput struct {
	mu     sync.Mutex
	stream nodev1.NodeService_ExecServer
}

func (o *execOutput) send(m *corev1.ExecResponse) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stream.Send(m)
}

type execWriter struct {
	out    *execOutput
	stderr bool
}

func (w execWriter) Write(p []byte) (int, error) {
	data := append([]byte(nil), p...)
	m := &corev1.ExecResponse{Message: &corev1.ExecResponse_Stdout{Stdout: data}}
	if w.stderr {
		m = &corev1.ExecResponse{Message: &corev1.ExecResponse_Stderr{Stderr: data}}
	}
	if err := w.out.send(m); err != nil {
		return 0, err
	}
	return len(p), nil
}

// PortForward carries one connection to a port of a pod.
func (s *Server) PortForward(stream nodev1.NodeService_PortForwardServer) error {
	first, err := stream.Recv()
	if err != nil {
		return received(err)
	}
	start := first.GetRequest().GetStart()
	if start == nil {
		return apierr.BadRequest("the first message of a PortForward stream is start")
	}
	n, pod, err := s.pod(stream.Context(), first.GetPodUid(), start.GetNamespace(), start.GetName())
	if err != nil {
		return err
	}
	if start.GetPort() < 1 || start.GetPort() > 65535 {
		return apierr.BadRequest(fmt.Sprintf("port %d is not between 1 and 65535", start.GetPort()))
	}
	if n.Simulated {
		return apierr.BadRequest("node " + n.Name + " is simulated: nothing listens in its pods")
	}
	address, err := n.address(stream.Context(), pod)
	if err != nil {
		return err
	}
	address = net.JoinHostPort(address, strconv.Itoa(int(start.GetPort())))
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(stream.Context(), "tcp", address)
	if err != nil {
		return apierr.Unavailable(fmt.Sprintf("port %d of pod %s/%s: %v", start.GetPort(), start.GetNamespace(), start.GetName(), err))
	}
	defer conn.Close()
	if err := stream.Send(&corev1.PortForwardResponse{Message: &corev1.PortForwardResponse_Connected{Connected: true}}); err != nil {
		return err
	}
	return carry(stream, conn.(*net.TCPConn))
}

func (n *Node) address(ctx context.Context, pod *corev1.Pod) (string, error) {
	if pod.GetSpec().GetHostNetwork() {
		return "127.0.0.1", nil
	}
	seen, err := n.Runtime.Pod(ctx, pod.GetMetadata().GetUid())
	if err != nil || seen.Sandbox == nil || len(seen.Sandbox.IPs) == 0 {
		return "", apierr.BadRequest(fmt.Sprintf("pod %s has no address yet", pod.GetMetadata().GetName()))
	}
	return seen.Sandbox.IPs[0], nil
}

// carry moves data both ways until the pod's side has ended, or the caller is gone.
func carry(stream nodev1.NodeService_PortForwardServer, conn *net.TCPConn) error {
	// Recv ends when the handler returns.
	go func() {
		for {
			in, err := stream.Recv()
			if err != nil {
				if errors.Is(err, io.EOF) {
					_ = conn.CloseWrite()
				} else {
					_ = conn.Close()
				}
				return
			}
			switch message := in.GetRequest().GetMessage().(type) {
			case *corev1.PortForwardRequest_Data:
				if _, err := conn.Write(message.Data); err != nil {
					return
				}
			case *corev1.PortForwardRequest_Close:
				_ = conn.CloseWrite()
			}
		}
	}()
	stop := context.AfterFunc(stream.Context(), func() { _ = conn.Close() })
	defer stop()
	buffer := make([]byte, logChunk)
	for {
		n, err := conn.Read(buffer)
		if n > 0 {
			if err := stream.Send(&corev1.PortForwardResponse{Message: &corev1.PortForwardResponse_Data{Data: append([]byte(nil), buffer[:n]...)}}); err != nil {
				return err
			}
		}
		if err != nil {
			if stream.Context().Err() != nil {
				return stream.Context().Err()
			}
			return stream.Send(&corev1.PortForwardResponse{Message: &corev1.PortForwardResponse_Close{Close: true}})
		}
	}
}
