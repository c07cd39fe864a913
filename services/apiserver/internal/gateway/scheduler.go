package gateway

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/rpc"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// schedulerName is whom a scheduler's certificate must name.
const schedulerName = "system:trireme-scheduler"

// SchedulerDialer connects to a scheduler, which must prove to be one.
type SchedulerDialer func(name, address string) (*grpc.ClientConn, error)

// addSchedulerService passes calls on to the scheduler that leads. Authorization lets only system:masters in.
func (g *Gateway) addSchedulerService(dial SchedulerDialer) error {
	if dial == nil {
		dial = func(_, address string) (*grpc.ClientConn, error) { return rpc.Dial(rpc.ClientConfig{Address: address}) }
	}
	service := schedulingv1.File_trireme_scheduling_v1_scheduler_service_proto.Services().ByName("SchedulerService")
	return g.add(service, nil, func(method string) handler {
		full := "/" + string(service.FullName()) + "/" + method
		return func(ctx context.Context, s grpc.ServerStream) error { return g.toScheduler(ctx, s, full, dial) }
	})
}

// toScheduler passes one request on and brings the answer back. A connection lives as long as its call: such calls are made
// by people.
func (g *Gateway) toScheduler(ctx context.Context, s grpc.ServerStream, method string, dial SchedulerDialer) error {
	request, err := receiveBytes(s)
	if err != nil {
		return err
	}
	leader, err := g.leadingScheduler(ctx)
	if err != nil {
		return err
	}
	address, err := schedulerAddress(leader)
	if err != nil {
		return err
	}
	conn, err := dial(schedulerName, address)
	if err != nil {
		return fmt.Errorf("scheduler %s: %w", leader.GetMetadata().GetName(), err)
	}
	defer conn.Close()
	var answer frame
	if err := conn.Invoke(ctx, method, frame(request), &answer, grpc.ForceCodecV2(Codec())); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err = apierr.FromStatus(err); apierr.IsUnavailable(err) {
			return fmt.Errorf("scheduler %s, the last that led, cannot answer: %w; `trireme status` lists the components", leader.GetMetadata().GetName(), err)
		}
		return err
	}
	return s.SendMsg(answer)
}

// leadingScheduler is the one that says so and was heard of last.
func (g *Gateway) leadingScheduler(ctx context.Context) (*componentv1.Component, error) {
	var raw bytes.Buffer
	// What the cache has will do: a scheduler that stopped leading meanwhile says so itself.
	err := g.registry.Of("Component").List(ctx, &metav1.ListRequest{ResourceVersion: "0"}, func(parts [][]byte) error {
		for _, p := range parts {
			raw.Write(p)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var all componentv1.ComponentList
	if err := proto.Unmarshal(raw.Bytes(), &all); err != nil {
		return nil, fmt.Errorf("components: %w", err)
	}
	leaders := slices.DeleteFunc(all.GetItems(), func(c *componentv1.Component) bool {
		return c.GetSpec().GetComponent() != "scheduler" || !c.GetStatus().GetLeader()
	})
	if len(leaders) == 0 {
		return nil, apierr.Unavailable("no scheduler leads at the moment; `trireme status` lists the components")
	}
	return slices.MaxFunc(leaders, func(a, b *componentv1.Component) int {
		return cmp.Compare(a.GetStatus().GetHeartbeatAt().AsTime().UnixNano(), b.GetStatus().GetHeartbeatAt().AsTime().UnixNano())
	}), nil
}

// schedulerAddress is where a scheduler is reached from here.
func schedulerAddress(c *componentv1.Component) (string, error) {
	address, host := c.GetStatus().GetAddress(), c.GetStatus().GetHost()
	if address == "" {
		return "", apierr.Unavailable(fmt.Sprintf("scheduler %s listens nowhere; give it --listen", c.GetMetadata().GetName()))
	}
	if strings.HasPrefix(address, "unix:") {
		if own, err := os.Hostname(); err != nil || own != host {
			return "", apierr.Unavailable(fmt.Sprintf("scheduler %s listens on a socket of host %s only; give it --listen", c.GetMetadata().GetName(), host))
		}
		return address, nil
	}
	listen, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", apierr.Unavailable(fmt.Sprintf("scheduler %s: address %q: %v", c.GetMetadata().GetName(), address, err))
	}
	// One on all addresses is found by the name of its host.
	if ip := net.ParseIP(listen); listen == "" || ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort(host, port), nil
	}
	return address, nil
}
