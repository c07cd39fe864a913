package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/connectivity"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/rpc"
)

// advised is an error that says what to do next.
type advised struct {
	error
	advice string
}

func (e *advised) Error() string { return e.error.Error() + e.advice }

func (e *advised) Unwrap() error { return e.error }

// readable turns an error of a call into a line that says what to do next. One that says so already stays as it is.
func (c *cli) readable(err error) error {
	var exit *daemon.ExitError
	var api *apierr.Error
	var done *advised
	switch {
	case err == nil, errors.As(err, &exit), errors.As(err, &done), !errors.As(err, &api):
		return err
	case api.Reason == apierr.ReasonUnavailable && c.conn != nil && c.conn.GetState() != connectivity.Ready:
		return c.unreachable(err)
	case api.Reason == apierr.ReasonUnauthenticated:
		return &advised{err, fmt.Sprintf(" (the gateway at %s does not know this certificate; see `trireme config get-contexts`)", c.context.Server)}
	case api.Reason == apierr.ReasonNotFound && api.Kind == "Namespace":
		return &advised{err, "; `trireme get namespaces` lists those that exist"}
	}
	return err
}

// unreachable says why there is no connection. The failed call has only text to tell, so the question is put again to
// the operating system.
func (c *cli) unreachable(cause error) error {
	network, address := "tcp", c.context.Server
	if strings.Contains(address, ",") {
		return fmt.Errorf("cannot reach any of the gateways %s: %w", address, cause)
	}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", "/"+strings.TrimLeft(path, "/")
	}
	conn, err := net.DialTimeout(network, address, time.Second)
	switch {
	case err == nil:
		_ = conn.Close()
		if why := rpc.Diagnose(context.Background(), c.context.Client()); why != nil {
			return fmt.Errorf("cannot talk to the gateway: %w", why)
		}
		return fmt.Errorf("cannot talk to the gateway at %s: %w", c.context.Server, cause)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("cannot reach the gateway at %s: permission denied; run this as the user who ran `trireme up`", c.context.Server)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("cannot reach the gateway at %s: is the cluster up? (trireme up)", c.context.Server)
	}
	return fmt.Errorf("cannot reach the gateway at %s: %w: is the cluster up? (trireme up)", c.context.Server, err)
}
