package rpc

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Loopback is a listener by which a process calls its own server without a network. Give it to Serve beside others.
type Loopback struct {
	caller Caller
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewLoopback returns a listener that nobody has called yet. Who calls there is caller.
func NewLoopback(caller Caller) *Loopback {
	return &Loopback{caller: caller, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *Loopback) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Loopback) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *Loopback) Addr() net.Addr { return loopbackAddr{} }

// ownConn is a connection of the process to itself.
type ownConn struct {
	net.Conn
	caller Caller
}

type loopbackAddr struct{}

func (loopbackAddr) Network() string { return "loopback" }
func (loopbackAddr) String() string  { return "loopback" }

// Dial returns a connection to the server that serves on l. The caller closes it.
func (l *Loopback) Dial(opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return l.DialAs(l.caller, opts...)
}

// DialAs is Dial for another caller: only the process itself can say so.
func (l *Loopback) DialAs(caller Caller, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	own := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			here, there := net.Pipe()
			select {
			case l.conns <- ownConn{there, caller}:
				return here, nil
			case <-l.closed:
				return nil, net.ErrClosed
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	}
	return grpc.NewClient("passthrough:///loopback", append(own, opts...)...)
}
