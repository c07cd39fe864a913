package apiserver

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/kit/component"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/loop"
	"trireme.dev/kit/rpc"
	"trireme.dev/kit/telemetry"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/server"
)

const (
	// forgetAfter is how long a component is kept that no longer says anything: long enough for people to see that one is
	// missing, short enough that the list shows what there is.
	forgetAfter = 10 * time.Minute
	forgetEvery = time.Minute
)

// components tells of this gateway, and clears away what others have left behind, through its own front door.
func (s *Server) components(ctx context.Context, srv *server.Server, own *rpc.Loopback) error {
	select {
	case <-srv.Ready():
	case <-ctx.Done():
		return nil
	}
	conn, err := own.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	address := ""
	if a := srv.Addr(); a != nil {
		address = a.String()
	}
	self := component.New(conn, component.Config{
		Component: "apiserver", Instance: component.Instance(address, s.cfg.Socket), Address: address,
		Errors: s.errors, Logger: s.logger,
	})
	return daemon.Run(ctx,
		daemon.Task{Name: "own component", Run: self.Run},
		daemon.Task{Name: "silent components", Run: func(ctx context.Context) error {
			// Not at once: after an outage all are silent that will soon speak again.
			every := loop.Config{Name: "silent components", Period: forgetEvery, Jitter: 0.5, Delay: forgetEvery, Logger: s.logger}
			return loop.Every(ctx, every, func(ctx context.Context) error { return s.forgetSilent(ctx, conn) })
		}},
	)
}

// forgetSilent deletes components that have been silent for long. Several gateways may do so at once.
func (s *Server) forgetSilent(ctx context.Context, conn grpc.ClientConnInterface) error {
	components := client.For[*componentv1.Component](conn)
	list, err := components.List(ctx, client.ListOptions{})
	if err != nil {
		return err
	}
	for _, c := range list.Items {
		last := c.GetStatus().GetHeartbeatAt()
		if last == nil {
			last = c.GetMetadata().GetCreationTimestamp()
		}
		if time.Since(last.AsTime()) < forgetAfter {
			continue
		}
		name := c.GetMetadata().GetName()
		// Unless it has spoken meanwhile.
		version := &metav1.Preconditions{ResourceVersion: proto.String(c.GetMetadata().GetResourceVersion())}
		_, err := components.Delete(ctx, "", name, &metav1.DeleteOptions{Preconditions: version})
		if err != nil && !apierr.IsNotFound(err) && !apierr.IsConflict(err) {
			return err
		}
		if err == nil {
			s.logger.LogAttrs(ctx, slog.LevelInfo, "silent component forgotten", slog.String(telemetry.KeyName, name))
		}
	}
	return nil
}
