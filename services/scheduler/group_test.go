package scheduler

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/inmemory"
	"trireme.dev/services/scheduler/plugins"
)

// TestGroupWithAStranger waits as a whole, says why, and goes on once the stranger has gone.
func TestGroupWithAStranger(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "4"})
	c.gang("g", 2)
	foreign := pod("g-x", inGroup("g", 1))
	foreign.Spec.SchedulerName = proto.String("other")
	c.create(foreign)
	c.create(pod("g-0", inGroup("g", 1)))
	c.create(pod("g-1", inGroup("g", 1)))
	c.schedule(nil)
	c.awaitCondition("g-0", "pods of one group name different schedulers: default-scheduler of pod default/g-0, other of pod default/g-x")
	c.delete("g-x")
	c.awaitBound("g-0", "g-1")
}

// TestGroupThatCanNeverFit says so, in the condition of its pods and its own.
func TestGroupThatCanNeverFit(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "2"})
	c.gang("g", 3)
	for i := range 3 {
		c.create(pod(fmt.Sprintf("g-%d", i), inGroup("g", 1)))
	}
	c.schedule(nil)
	const message = "pod group default/g needs 3 pods placed together; 2 fit: 0/1 nodes are available for pod g-2: 1 Insufficient nvidia.com/gpu.; " +
		"even if empty, all nodes together would hold no more than 2"
	c.awaitCondition("g-2", message)
	await(c, "the group's condition", func(groups map[string]*schedulingv1.PodGroup) bool {
		for _, cond := range groups["g"].GetStatus().GetConditions() {
			if cond.GetStatus() == "False" && cond.GetMessage() == message {
				return true
			}
		}
		return false
	})
	c.node("n2", map[string]string{"nvidia.com/gpu": "2"})
	c.awaitBound("g-0", "g-1", "g-2")
}

// TestTopologyIsKept: a gang goes into one rack as a whole.
func TestTopologyIsKept(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "2"})
	if _, err := c.groupsIn("rack", "g", 2); err != nil {
		t.Fatal(err)
	}
	c.create(pod("g-0", inGroup("g", 2)))
	c.create(pod("g-1", inGroup("g", 2)))
	c.schedule(nil)
	c.awaitCondition("g-0", "no node has the label rack")
	c.rackNode("r1a", "r1", "2")
	c.rackNode("r2a", "r2", "2")
	c.awaitCondition("g-0", "0/2 placements are available: rack=r1: 1 of 2 pods fit (")
	c.rackNode("r2b", "r2", "2")
	pods := c.awaitBound("g-0", "g-1")
	for name, p := range pods {
		if node := p.GetSpec().GetNodeName(); node != "r2a" && node != "r2b" {
			t.Errorf("pod %s is on node %s", name, node)
		}
	}
}

// TestGroupPreemptedAsAWhole says so beside its other condition, and no more once it is scheduled anew. A group whose pods may go
// one by one says nothing.
func TestGroupPreemptedAsAWhole(t *testing.T) {
	c := newCluster(t)
	if _, err := client.For[*schedulingv1.PriorityClass](c.conn).Create(c.ctx, &schedulingv1.PriorityClass{
		Metadata: &metav1.ObjectMeta{Name: "high"}, Value: proto.Int32(1000),
	}); err != nil {
		t.Fatal(err)
	}
	c.node("n1", map[string]string{"nvidia.com/gpu": "4"})
	members := func(group string) {
		for i := range 2 {
			p := pod(fmt.Sprintf("%s-%d", group, i), inGroup(group, 1))
			p.Spec.TerminationGracePeriodSeconds = proto.Int64(0)
			c.create(p)
		}
	}
	for group, mode := range map[string]*schedulingv1.DisruptionMode{
		"whole": {All: &schedulingv1.AllDisruptionMode{}}, "parts": {Single: &schedulingv1.SingleDisruptionMode{}},
	} {
		if _, err := client.For[*schedulingv1.PodGroup](c.conn).Create(c.ctx, &schedulingv1.PodGroup{
			Metadata: &metav1.ObjectMeta{Name: group, Namespace: "default"},
			Spec: &schedulingv1.PodGroupSpec{
				SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{Gang: &schedulingv1.GangSchedulingPolicy{MinCount: 2}}, DisruptionMode: mode,
			},
		}); err != nil {
			t.Fatal(err)
		}
		members(group)
	}
	c.schedule(nil)
	says := func(group string, want ...string) {
		t.Helper()
		await(c, fmt.Sprintf("pod group %s to say %q", group, want), func(groups map[string]*schedulingv1.PodGroup) bool {
			var got []string
			for _, cond := range groups[group].GetStatus().GetConditions() {
				got = append(got, cond.GetType()+"="+cond.GetStatus()+" "+cond.GetReason())
			}
			return slices.Equal(slices.Sorted(slices.Values(got)), want)
		})
	}
	const scheduled = "PodGroupInitiallyScheduled=True Scheduled"
	says("whole", scheduled)
	says("parts", scheduled)
	large := pod("large", gpus(4))
	large.Spec.PriorityClassName = proto.String("high")
	c.create(large)
	c.awaitBound("large")
	says("whole", "DisruptionTarget=True PreemptionByScheduler", scheduled)
	says("parts", scheduled)
	c.delete("large")
	members("whole")
	c.awaitBound("whole-0", "whole-1")
	says("whole", "DisruptionTarget=False Scheduled", scheduled)
}

// atPreBind runs something before the first binding of all.
type atPreBind struct{ run func() }

func (*atPreBind) Name() string { return "AtPreBind" }

func (p *atPreBind) PreBindPreFlight(context.Context, *framework.CycleState, *framework.PodInfo, string) (framework.PreBindPreFlight, *framework.Status) {
	if p.run == nil {
		return framework.PreBindPreFlight{}, framework.NewStatus(framework.Skip)
	}
	return framework.PreBindPreFlight{}, nil
}

func (p *atPreBind) PreBind(context.Context, *framework.CycleState, *framework.PodInfo, string) *framework.Status {
	if p.run != nil {
		p.run()
		p.run = nil
	}
	return nil
}

// TestGroupDeletedMidCycle is not bound, and waits for the group to come again.
func TestGroupDeletedMidCycle(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	group := &schedulingv1.PodGroup{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "g", Uid: "1"},
		Spec: &schedulingv1.PodGroupSpec{SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{
			Gang: &schedulingv1.GangSchedulingPolicy{MinCount: 2},
		}},
	}
	profile := plugins.Default(DefaultSchedulerName)
	at := &atPreBind{}
	profile.Plugins = append(profile.Plugins, framework.Registration{New: framework.Use(at)})
	bound := make(chan string, 2)
	s, err := inmemory.New(inmemory.Config{Profile: profile, Bound: func(p *corev1.Pod) { bound <- p.GetMetadata().GetName() }})
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan struct{})
	at.run = func() {
		s.Group(group, nil)
		close(waits)
	}
	s.Node(nil, &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: "n1"}, Spec: &corev1.NodeSpec{},
		Status: &corev1.NodeStatus{Allocatable: map[string]string{"cpu": "4", "memory": "4Gi", "pods": "10", "nvidia.com/gpu": "4"}},
	})
	s.Group(nil, group)
	for i := range 2 {
		p := pod(fmt.Sprintf("g-%d", i), inGroup("g", 1))
		p.Metadata.Uid, p.Spec.SchedulerName = p.Metadata.Name, proto.String(DefaultSchedulerName)
		s.Create(p)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-waits
	again := proto.CloneOf(group)
	again.Metadata.Uid = "2"
	s.Group(nil, again)
	for range 2 {
		<-bound
	}
	if snapshot, err := s.Snapshot(); err != nil || len(snapshot.Node("n1").Pods) != 2 {
		t.Errorf("pods on the node: %v, %v", snapshot.Node("n1").Pods, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func (c *cluster) groupsIn(key, name string, minCount int32) (*schedulingv1.PodGroup, error) {
	return client.For[*schedulingv1.PodGroup](c.conn).Create(c.ctx, &schedulingv1.PodGroup{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: &schedulingv1.PodGroupSpec{
			SchedulingPolicy:      &schedulingv1.PodGroupSchedulingPolicy{Gang: &schedulingv1.GangSchedulingPolicy{MinCount: minCount}},
			SchedulingConstraints: &schedulingv1.PodGroupSchedulingConstraints{Topology: []*schedulingv1.TopologyConstraint{{Key: key}}},
		},
	})
}

// rackNode is a node with GPUs in a rack.
func (c *cluster) rackNode(name, rack, gpus string) {
	c.t.Helper()
	c.node(name, map[string]string{"nvidia.com/gpu": gpus})
	nodes := client.For[*corev1.Node](c.conn)
	n, err := nodes.Get(c.ctx, "", name)
	if err != nil {
		c.t.Fatal(err)
	}
	n.Metadata.Labels = map[string]string{"rack": rack}
	if _, err := nodes.Update(c.ctx, n); err != nil {
		c.t.Fatal(err)
	}
}
