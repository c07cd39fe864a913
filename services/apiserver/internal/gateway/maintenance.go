package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"google.golang.org/grpc"

	"trireme.dev/client/apierr"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	"trireme.dev/services/apiserver/internal/registry"
	"trireme.dev/services/apiserver/internal/storage"
)

// snapshotChunk is how much of a snapshot goes into one message.
const snapshotChunk = 256 << 10

// addMaintenance serves what concerns the store as a whole. Authorization lets only system:masters in: a snapshot holds all
// secrets.
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
		case "MigrateStorage":
			return g.migrateStorage
		}
		return nil
	})
}

func (g *Gateway) snapshot(ctx context.Context, s grpc.ServerStream) error {
	if err := receive(s, &componentv1.SnapshotRequest{}); err != nil {
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

// migrateStorage rewrites what is stored in former forms.
func (g *Gateway) migrateStorage(ctx context.Context, s grpc.ServerStream) error {
	req := &componentv1.MigrateStorageRequest{}
	if err := receive(s, req); err != nil {
		return err
	}
	err := g.registry.Migrate(ctx, req.GetKind(), req.GetResumeAfter(), func(m registry.Migration) error {
		out := &componentv1.MigrateStorageResponse{
			Resource: m.Resource, StorageVersion: uint32(m.Version), Seen: m.Seen, Migrated: m.Migrated, Overtaken: m.Overtaken,
			LastKey: m.LastKey, Done: m.Done,
		}
		for _, key := range slices.Sorted(maps.Keys(m.Unreadable)) {
			out.Unreadable = append(out.Unreadable, &componentv1.UnreadableValue{Key: key, Reason: m.Unreadable[key].Error()})
		}
		return sendMessage(s, out)
	})
	var typed *apierr.Error
	if err == nil || errors.As(err, &typed) {
		return err
	}
	return maintenanceError("migrate the store", err)
}
