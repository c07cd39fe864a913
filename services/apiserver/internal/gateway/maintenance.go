package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/rpc"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	"trireme.dev/services/apiserver/internal/registry"
	"trireme.dev/services/apiserver/internal/storage"
)

// snapshotChunk is how much of a snapshot goes into one message.
const snapshotChunk = 256 << 10

// addMaintenance serves what concerns the store as a whole.
func (g *Gateway) addMaintenance() error {
	service := componentv1.File_trireme_component_v1_maintenance_service_proto.Services().ByName("MaintenanceService")
	return g.add(service, nil, func(method string) handler {
		switch method {
		case "Snapshot":
			return g.snapshot
		case "Status":
			return g.storeStatus
		case "Defragment":
			return g.defragment
		}
		return nil
	})
}

// operator refuses callers who may not have everything: a snapshot holds all secrets.
func operator(ctx context.Context) error {
	if caller, _ := rpc.CallerFrom(ctx); !slices.Contains(caller.Groups, "system:masters") && caller.User != "system:anonymous" {
		return apierr.Forbidden("", "", caller.User+" is not in system:masters, whose business this is")
	}
	return nil
}

func (g *Gateway) snapshot(ctx context.Context, s grpc.ServerStream) error {
	if err := receive(s, &componentv1.SnapshotRequest{}); err != nil {
		return err
	}
	if err := operator(ctx); err != nil {
		return err
	}
	revision, r, err := g.store.Snapshot(ctx)
	if err != nil {
		return maintenanceError("take a snapshot", err)
	}
	defer r.Close()
	if err := sendMessage(s, &componentv1.SnapshotResponse{Part: &componentv1.SnapshotResponse_Revision{Revision: revision}}); err != nil {
		return err
	}
	sum, buf := sha256.New(), make([]byte, snapshotChunk)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			sum.Write(buf[:n])
			if err := sendMessage(s, &componentv1.SnapshotResponse{Part: &componentv1.SnapshotResponse_Chunk{Chunk: buf[:n]}}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return apierr.Unavailable(fmt.Sprintf("the snapshot broke off: %v", err))
		}
	}
	return sendMessage(s, &componentv1.SnapshotResponse{Part: &componentv1.SnapshotResponse_Sha256{Sha256: sum.Sum(nil)}})
}

func (g *Gateway) storeStatus(ctx context.Context, s grpc.ServerStream) error {
	if err := receive(s, &componentv1.StatusRequest{}); err != nil {
		return err
	}
	members, err := g.store.Members(ctx)
	if err != nil {
		return maintenanceError("ask for the members", err)
	}
	out := &componentv1.StatusResponse{}
	for _, m := range members {
		member := &componentv1.StoreMember{
			Name: m.Name, Endpoint: m.Endpoint, Version: m.Version, Leader: m.Leader, Learner: m.Learner,
			DbSizeBytes: m.Size, DbInUseBytes: m.InUse, Revision: m.Revision, Alarms: m.Alarms,
		}
		if m.Err != nil {
			member.Error = m.Err.Error()
		}
		out.QuotaBytes = max(out.QuotaBytes, m.Quota)
		out.Embedded = out.Embedded || m.Endpoint == "" && m.Err == nil
		out.Members = append(out.Members, member)
	}
	return sendMessage(s, out)
}

func (g *Gateway) defragment(ctx context.Context, s grpc.ServerStream) error {
	if err := receive(s, &componentv1.DefragmentRequest{}); err != nil {
		return err
	}
	if err := operator(ctx); err != nil {
		return err
	}
	before, err := g.storeSize(ctx)
	if err == nil {
		err = g.store.Defragment(ctx)
	}
	if err != nil {
		return maintenanceError("free space in the store", err)
	}
	after, err := g.storeSize(ctx)
	if err != nil {
		return maintenanceError("ask for the size", err)
	}
	return sendMessage(s, &componentv1.DefragmentResponse{BeforeBytes: before, AfterBytes: after})
}

// storeSize is that of the largest member.
func (g *Gateway) storeSize(ctx context.Context) (int64, error) {
	members, err := g.store.Members(ctx)
	var size int64
	for _, m := range members {
		size = max(size, m.Size)
	}
	return size, err
}

func maintenanceError(what string, err error) error {
	var full *storage.NoSpaceError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, storage.ErrUnsupported):
		return apierr.Unimplemented("cannot " + what + ": the store of this gateway is in memory")
	case errors.As(err, &full):
		return &apierr.Error{Reason: apierr.ReasonFailedPrecondition, Message: full.Error() + " even without history: " + registry.WayOutOfSpace}
	case errors.Is(err, storage.ErrUnavailable):
		return apierr.Unavailable(fmt.Sprintf("cannot %s: %v", what, err))
	}
	return fmt.Errorf("%s: %w", what, err)
}
