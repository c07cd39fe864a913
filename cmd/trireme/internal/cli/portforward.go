package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/daemon"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

func (c *cli) portForwardCommand() *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use:     "port-forward (POD | TYPE/NAME) [LOCAL:]PORT...",
		Short:   "Make ports of a pod reachable on this machine until interrupted",
		Example: "  trireme port-forward web-1 8080:80\n  trireme port-forward deploy/web :80   # any free local port",
		Args:    atLeast(2, "a pod and at least one port"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			var ports []portPair
			for _, arg := range args[1:] {
				p, err := parsePorts(arg)
				if err != nil {
					return err
				}
				ports = append(ports, p)
			}
			pod, err := c.podOf(ctx, args[0])
			if err != nil {
				return err
			}
			if pod.GetSpec().GetNodeName() == "" {
				return fmt.Errorf("pod %s is on no node yet; see `trireme describe pod %[1]s`", pod.GetMetadata().GetName())
			}
			return c.forwardAll(ctx, pod, address, ports)
		}),
	}
	cmd.Flags().StringVar(&address, "address", "127.0.0.1", "local `address` to listen on")
	cmd.ValidArgsFunction = c.completePods
	return cmd
}

type portPair struct{ local, remote int }

// parsePorts reads PORT, LOCAL:PORT and :PORT.
func parsePorts(arg string) (portPair, error) {
	local, remote, two := strings.Cut(arg, ":")
	if !two {
		remote = local
	}
	p := portPair{}
	var err error
	if p.remote, err = strconv.Atoi(remote); err != nil || p.remote < 1 || p.remote > 65535 {
		return p, usage("%q: want [LOCAL:]PORT with a port from 1 to 65535", arg)
	}
	if local == "" {
		return p, nil
	}
	if p.local, err = strconv.Atoi(local); err != nil || p.local < 0 || p.local > 65535 {
		return p, usage("%q: want [LOCAL:]PORT with a port from 0 to 65535 before the colon", arg)
	}
	return p, nil
}

func (c *cli) forwardAll(ctx context.Context, pod *corev1.Pod, address string, ports []portPair) error {
	var tasks []daemon.Task
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			_ = l.Close() // closed already where its task ended in order
		}
	}()
	for _, p := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(p.local)))
		if err != nil {
			return fmt.Errorf("listen for port %d: %w", p.remote, err)
		}
		listeners = append(listeners, l)
		c.print("Forwarding from %s -> %d", l.Addr(), p.remote)
		tasks = append(tasks, daemon.Task{Name: "port-forward", Run: func(ctx context.Context) error {
			return c.forward(ctx, pod, l, p.remote)
		}})
	}
	return daemon.Run(ctx, tasks...)
}

// forward serves one listener until ctx ends. A connection that fails is reported and ends alone.
func (c *cli) forward(ctx context.Context, pod *corev1.Pod, l net.Listener, port int) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		connections.Go(func() {
			defer conn.Close()
			if err := c.forwardOne(ctx, pod, conn, port); err != nil && ctx.Err() == nil {
				c.say("error: port %d: %v", port, c.readable(err))
			}
		})
	}
}

func (c *cli) forwardOne(ctx context.Context, pod *corev1.Pod, conn net.Conn, port int) error {
	ctx, cancel := context.WithCancel(ctx)
	var sending sync.WaitGroup
	defer sending.Wait()
	defer cancel()
	// Ends the reading below, which knows no context.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	stream, err := corev1.NewPodServiceClient(c.conn).PortForward(ctx)
	if err != nil {
		return apierr.FromStatus(err)
	}
	start := &corev1.PortForwardStart{
		Namespace: pod.GetMetadata().GetNamespace(), Name: pod.GetMetadata().GetName(), Port: int32(port),
	}
	// As in exec, Recv knows why a send fails.
	if err := stream.Send(&corev1.PortForwardRequest{Message: &corev1.PortForwardRequest_Start{Start: start}}); err != nil && !errors.Is(err, io.EOF) {
		return apierr.FromStatus(err)
	}
	sending.Go(func() {
		for {
			piece := make([]byte, 32<<10)
			n, err := conn.Read(piece)
			if n > 0 && stream.Send(&corev1.PortForwardRequest{Message: &corev1.PortForwardRequest_Data{Data: piece[:n]}}) != nil {
				return
			}
			if err != nil {
				_ = stream.Send(&corev1.PortForwardRequest{Message: &corev1.PortForwardRequest_Close{Close: true}}) // likewise
				return
			}
		}
	})
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return apierr.FromStatus(err)
		}
		switch m := response.GetMessage().(type) {
		case *corev1.PortForwardResponse_Data:
			if _, err := conn.Write(m.Data); err != nil {
				return nil // whoever connected has gone
			}
		case *corev1.PortForwardResponse_Close:
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.CloseWrite() // fails only where the other side has gone
			}
		}
	}
}
