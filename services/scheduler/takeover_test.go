package scheduler

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// leads has a scheduler contend for a lease that is short enough for a test.
func leads(identity string) func(*Config) {
	return func(cfg *Config) {
		cfg.LeaderElect, cfg.Identity = true, identity
		cfg.lease.LeaseDuration, cfg.lease.RenewDeadline, cfg.lease.RetryPeriod = time.Second, 800*time.Millisecond, 200*time.Millisecond
	}
}

// TestLeaderThatSleptIsTooLate: the leader stops amid a thousand bindings, for longer than its lease, with some that it has
// sent and that have not arrived. The standby takes over, and has more important pods to place by then. When the first one
// wakes up its bindings arrive, of pods that still wait for a node, on nodes that are full. They are of a term that is over:
// the gateway refuses them in the transaction that would have written them, whatever clocks say, so nothing is bound twice
// and no node is given more than it has.
func TestLeaderThatSleptIsTooLate(t *testing.T) {
	c := newCluster(t)
	const nodes, perNode, gangSize = 10, 40, 8
	for i := range nodes {
		c.node(fmt.Sprintf("n%d", i), map[string]string{"nvidia.com/gpu": fmt.Sprint(perNode)})
	}
	api := c.conn
	book := keepLedger(t, api, gangSize, func(node string) room {
		if node == "last" {
			return room{64000, nodes * perNode}
		}
		return room{8000, perNode}
	})
	first := &disturbed{ClientConnInterface: api}
	underWay := make(chan struct{})
	calls := 0
	first.disturb(func() disturbance {
		if calls++; calls == 3 {
			close(underWay)
		}
		return passes
	}, nil)
	for i := range nodes * perNode / 2 {
		c.create(pod(fmt.Sprintf("low-%03d", i), gpus(1)))
	}
	for g := range nodes * perNode / 2 / gangSize {
		name := fmt.Sprintf("gang%02d", g)
		c.gang(name, gangSize)
		for i := range gangSize {
			c.create(pod(fmt.Sprintf("%s-%d", name, i), inGroup(name, 1)))
		}
	}
	c.conn = first
	c.schedule(leads("first"))
	c.conn = api
	<-underWay
	first.pause()

	c.highPriority()
	for i := range nodes * perNode {
		c.create(pod(fmt.Sprintf("high-%03d", i), high))
	}
	c.schedule(leads("second"))
	full := func(pods map[string]*corev1.Pod) bool {
		n := 0
		for _, p := range pods {
			if p.GetSpec().GetNodeName() != "" {
				n++
			}
		}
		return n == nodes*perNode
	}
	pods := await(c, "all nodes to be full", full)
	important := 0
	for name, p := range pods {
		if strings.HasPrefix(name, "high") && p.GetSpec().GetNodeName() != "" {
			important++
		}
	}
	if important == 0 {
		t.Fatal("the standby had nothing to bind")
	}
	first.resume()
	// Both have said all that they have to say when a pod that comes now is bound: to a node that comes now.
	c.node("last", map[string]string{"cpu": "64", "memory": "64Gi", "pods": "500", "nvidia.com/gpu": fmt.Sprint(nodes * perNode)})
	await(c, "the rest to be bound", func(pods map[string]*corev1.Pod) bool {
		for _, p := range pods {
			if p.GetSpec().GetNodeName() == "" {
				return len(pods) == 0
			}
		}
		return true
	})
	book.check(c.ctx)
}

// highPriority makes the class of pods that go first, and push nobody out.
func (c *cluster) highPriority() {
	c.t.Helper()
	if _, err := client.For[*schedulingv1.PriorityClass](c.conn).Create(c.ctx, &schedulingv1.PriorityClass{
		Metadata: &metav1.ObjectMeta{Name: "high"}, Value: proto.Int32(1000), PreemptionPolicy: proto.String("Never"),
	}); err != nil {
		c.t.Fatal(err)
	}
}

func high(s *corev1.PodSpec) {
	gpus(1)(s)
	s.PriorityClassName = proto.String("high")
}

// TestStandbyThatLagsCatchesUp: the standby has not heard of the leader's last binding when it takes over, and would put a
// more important pod in the same place. It looks first.
func TestStandbyThatLagsCatchesUp(t *testing.T) {
	c := newCluster(t)
	c.highPriority()
	c.node("n1", map[string]string{"nvidia.com/gpu": "1"})
	api := c.conn
	first, second := &disturbed{ClientConnInterface: api}, &disturbed{ClientConnInterface: api}
	placed := make(chan struct{})
	decided := sync.OnceFunc(func() { close(placed) })
	first.disturb(func() disturbance { decided(); return lost }, nil)
	c.create(pod("a", gpus(1)))
	c.conn = first
	stop := c.schedule(leads("first"))
	c.conn = api
	<-placed
	c.create(pod("b", high))
	c.awaitCondition("b", "1 Insufficient nvidia.com/gpu") // for a has the room, though its binding does not get through
	c.conn = second
	c.schedule(leads("second"))
	c.conn = api
	<-time.After(300 * time.Millisecond) // in which the standby has seen both pods
	second.disturb(nil, func() time.Duration { return time.Second })
	first.disturb(nil, nil)
	c.awaitBound("a")
	stop()
	c.create(pod("c", nil))
	if b := c.awaitBound("c")["b"]; b.GetSpec().GetNodeName() != "" {
		t.Error("a and b are on a node that has room for one of them")
	}
}
