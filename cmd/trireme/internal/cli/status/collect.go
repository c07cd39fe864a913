package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	coordinationv1 "trireme.dev/proto/gen/trireme/coordination/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
)

const (
	// storeTimeout bounds the question to the store, which itself gives each member two seconds.
	storeTimeout = 8 * time.Second
	// nodeTimeout bounds the question to one node, and atOnce how many are asked at a time.
	nodeTimeout = 3 * time.Second
	atOnce      = 64
)

// services that are led, and the names of their leases in kube-system.
var leases = []struct{ service, lease string }{{"scheduler", "trireme-scheduler"}, {"controller", "trireme-controller"}}

// Collect gathers through the gateway at conn. An error means that the gateway itself does not answer; all else that
// does not is part of the report.
func Collect(ctx context.Context, conn grpc.ClientConnInterface) (*Report, error) {
	r := &Report{At: time.Now()}
	components, err := client.For[*componentv1.Component](conn).List(ctx, client.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, c := range components.Items {
		r.Components = append(r.Components, componentOf(c))
	}
	slices.SortFunc(r.Components, func(a, b Component) int {
		return cmp.Or(cmp.Compare(rank(a.Component), rank(b.Component)), cmp.Compare(a.Component, b.Component), cmp.Compare(a.Name, b.Name))
	})
	if err := r.collectLeaders(ctx, conn); err != nil {
		return nil, err
	}
	r.Store = collectStore(ctx, conn)
	return r, r.collectNodes(ctx, conn)
}

// rank is the order in which a request meets the services.
func rank(component string) int {
	return slices.Index([]string{"controller", "scheduler", "apiserver"}, component) * -1
}

func componentOf(c *componentv1.Component) Component {
	s := c.GetStatus()
	out := Component{
		Component: c.GetSpec().GetComponent(), Name: c.GetMetadata().GetName(), Version: s.GetVersion(), Host: s.GetHost(),
		PID: s.GetPid(), Address: s.GetAddress(), Leader: s.Leader, Lag: s.GetLag(), SpansDropped: s.GetSpansDropped(),
		StartedAt: s.GetStartedAt().AsTime(), HeartbeatAt: s.GetHeartbeatAt().AsTime(), LastError: errorOf(s.GetLastError()),
	}
	if s.GetHeartbeatAt() == nil {
		out.HeartbeatAt = c.GetMetadata().GetCreationTimestamp().AsTime()
	}
	return out
}

func errorOf(e *componentv1.ComponentError) *LastError {
	if e == nil {
		return nil
	}
	return &LastError{At: e.GetTime().AsTime(), Message: e.GetMessage()}
}

func (r *Report) collectLeaders(ctx context.Context, conn grpc.ClientConnInterface) error {
	for _, l := range leases {
		lease, err := client.For[*coordinationv1.Lease](conn).Get(ctx, "kube-system", l.lease)
		if err != nil && !apierr.IsNotFound(err) {
			return err
		}
		leader := Leader{Service: l.service}
		if s := lease.GetSpec(); s.GetHolderIdentity() != "" {
			leader.Holder = s.GetHolderIdentity()
			leader.ExpiresAt = s.GetRenewTime().AsTime().Add(time.Duration(s.GetLeaseDurationSeconds()) * time.Second)
		}
		r.Leaders = append(r.Leaders, leader)
	}
	return nil
}

func collectStore(ctx context.Context, conn grpc.ClientConnInterface) Store {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	answer, err := componentv1.NewMaintenanceServiceClient(conn).Status(ctx, &componentv1.StatusRequest{})
	if err = apierr.FromStatus(err); apierr.IsUnimplemented(err) {
		return Store{Kind: "memory"}
	}
	if err != nil {
		return Store{Kind: "etcd", Error: err.Error()}
	}
	store := Store{Kind: "etcd", QuotaBytes: answer.GetQuotaBytes()}
	if answer.GetEmbedded() {
		store.Kind = "embedded etcd"
	}
	for _, m := range answer.GetMembers() {
		store.Members = append(store.Members, Member{
			Name: m.GetName(), Endpoint: m.GetEndpoint(), Error: m.GetError(), Version: m.GetVersion(), Leader: m.GetLeader(),
			Learner: m.GetLearner(), SizeBytes: m.GetDbSizeBytes(), InUseBytes: m.GetDbInUseBytes(), Revision: m.GetRevision(),
			Alarms: m.GetAlarms(),
		})
	}
	return store
}

func (r *Report) collectNodes(ctx context.Context, conn grpc.ClientConnInterface) error {
	nodes, err := client.For[*corev1.Node](conn).List(ctx, client.ListOptions{})
	if err != nil {
		return err
	}
	renewals, err := client.For[*coordinationv1.Lease](conn).List(ctx, client.ListOptions{Namespace: "kube-node-lease"})
	if err != nil {
		return err
	}
	renewed := map[string]time.Time{}
	for _, l := range renewals.Items {
		renewed[l.GetMetadata().GetName()] = l.GetSpec().GetRenewTime().AsTime()
	}
	r.Nodes = make([]Node, len(nodes.Items))
	turns := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, n := range nodes.Items {
		r.Nodes[i] = nodeOf(n, renewed[n.GetMetadata().GetName()])
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			r.Nodes[i].ask(ctx, conn)
		})
	}
	wg.Wait()
	slices.SortFunc(r.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

func nodeOf(n *corev1.Node, renewed time.Time) Node {
	info := n.GetStatus().GetNodeInfo()
	out := Node{
		Name: n.GetMetadata().GetName(), RenewedAt: renewed, Cordoned: n.GetSpec().GetUnschedulable(),
		Version: info.GetKubeletVersion(), Runtime: info.GetContainerRuntimeVersion(), Reason: "its agent has not said so",
	}
	for _, c := range n.GetStatus().GetConditions() {
		if c.GetType() == "Ready" {
			out.Ready, out.Reason = c.GetStatus() == "True", c.GetMessage()
		}
	}
	if out.Ready {
		out.Reason = ""
	}
	return out
}

// ask a node's agent about itself.
func (n *Node) ask(ctx context.Context, conn grpc.ClientConnInterface) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	info, err := nodev1.NewNodeServiceClient(conn).GetInfo(ctx, &nodev1.GetInfoRequest{NodeName: n.Name})
	if err = apierr.FromStatus(err); err != nil && ctx.Err() != nil {
		n.Error = fmt.Sprintf("no answer within %s", nodeTimeout)
		return
	}
	if err != nil {
		n.Error = strings.TrimPrefix(err.Error(), "node "+n.Name+": ")
		return
	}
	n.Version, n.LastError = info.GetVersion(), errorOf(info.GetAgent().GetLastError())
	for _, p := range info.GetDevicePlugins() {
		n.Plugins = append(n.Plugins, Plugin{
			Resource: p.GetResourceName(), Endpoint: p.GetEndpoint(), Registered: p.GetRegistered(),
			Devices: p.GetDevices(), Healthy: p.GetHealthy(),
			Version: p.GetStatus().GetVersion(), LastError: errorOf(p.GetStatus().GetLastError()),
		})
	}
}
