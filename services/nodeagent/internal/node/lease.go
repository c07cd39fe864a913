package node

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

const (
	leaseNamespace = "kube-node-lease"
	leaseSeconds   = 40
	leasePeriod    = leaseSeconds / 4 * time.Second
)

// lease says that a node is alive, in a small object that is cheap to write.
type lease struct {
	leases *client.Resource[*coordinationv1.Lease]
	node   string
	// held is the lease as last written; nil where it has to be read.
	held *coordinationv1.Lease
}

func newLease(conn grpc.ClientConnInterface, node string) *lease {
	return &lease{leases: client.For[*coordinationv1.Lease](conn), node: node}
}

// renew writes the time of now. The node's uid, where it is known, makes the lease go with the node.
func (l *lease) renew(ctx context.Context, nodeUID string) error {
	if l.held == nil {
		found, err := l.leases.Get(ctx, leaseNamespace, l.node)
		switch {
		case apierr.IsNotFound(err):
			created, err := l.leases.Create(ctx, l.next(&coordinationv1.Lease{
				Metadata: &metav1.ObjectMeta{Namespace: leaseNamespace, Name: l.node},
			}, nodeUID))
			if err != nil {
				return fmt.Errorf("create lease of node %s: %w", l.node, err)
			}
			l.held = created
			return nil
		case err != nil:
			return fmt.Errorf("get lease of node %s: %w", l.node, err)
		}
		l.held = found
	}
	written, err := l.leases.Update(ctx, l.next(l.held, nodeUID))
	if err != nil {
		if apierr.IsConflict(err) || apierr.IsNotFound(err) {
			l.held = nil
		}
		return fmt.Errorf("renew lease of node %s: %w", l.node, err)
	}
	l.held = written
	return nil
}

func (l *lease) next(from *coordinationv1.Lease, nodeUID string) *coordinationv1.Lease {
	out := proto.CloneOf(from)
	out.Spec = &coordinationv1.LeaseSpec{
		HolderIdentity: proto.String(l.node), LeaseDurationSeconds: proto.Int32(leaseSeconds), RenewTime: timestamppb.Now(),
	}
	if nodeUID != "" {
		out.Metadata.OwnerReferences = []*metav1.OwnerReference{{ApiVersion: "v1", Kind: "Node", Name: l.node, Uid: nodeUID}}
	}
	return out
}
