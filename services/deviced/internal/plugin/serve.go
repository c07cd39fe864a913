package plugin

import (
	"context"
	"time"

	"google.golang.org/grpc"

	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
)

// drain bounds how long an allocation in flight may hold up the end of a server.
const drain = time.Second

// stop lets calls in flight finish.
func stop(server *grpc.Server) {
	hard := time.AfterFunc(drain, server.Stop)
	defer hard.Stop()
	server.GracefulStop()
}

// endWith ends streams with ctx: the list of devices would be watched for ever.
func endWith(ctx context.Context) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		of, cancel := context.WithCancel(stream.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return next(srv, &endingStream{ServerStream: stream, ctx: of})
	}
}

type endingStream struct {
	grpc.ServerStream

	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *endingStream) Context() context.Context { return s.ctx }

// status answers node agents that ask how the process does.
type status struct {
	componentv1.UnimplementedStatusServiceServer

	self func() *componentv1.ComponentStatus
}

// GetStatus implements StatusService.
func (s status) GetStatus(context.Context, *componentv1.GetStatusRequest) (*componentv1.GetStatusResponse, error) {
	return &componentv1.GetStatusResponse{Status: s.self()}, nil
}
