package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/kit/rpc"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// run starts a whole scheduler, server and component included, and returns what asks it through the gateway, once it leads.
func (c *cluster) run() schedulingv1.SchedulerServiceClient {
	c.t.Helper()
	c.candidate(func(cfg *Config) { cfg.LeaderElect = false })
	asked := schedulingv1.NewSchedulerServiceClient(c.conn)
	c.until("the scheduler answers", func() bool {
		_, err := asked.Explain(c.ctx, &schedulingv1.ExplainRequest{Namespace: "default", Name: "none"})
		return apierr.IsNotFound(apierr.FromStatus(err))
	})
	return asked
}

// candidate starts a whole scheduler and returns its socket, and what ends it.
func (c *cluster) candidate(change func(*Config)) (socket string, end func()) {
	c.t.Helper()
	dir, err := os.MkdirTemp("", "sched")
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := NewConfig()
	cfg.Gateway.Address = c.api.Listen(c.t)
	cfg.Socket = filepath.Join(dir, "s")
	change(&cfg)
	s, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("scheduler: %v", err)
		}
		_ = os.RemoveAll(dir)
	})
	c.t.Cleanup(end)
	return cfg.Socket, end
}

func (c *cluster) until(what string, fn func() bool) {
	c.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !fn() {
		select {
		case <-c.ctx.Done():
			c.t.Fatalf("waited in vain until %s", what)
		case <-tick.C:
		}
	}
}

// explained waits until the explanation of a pod is as wanted.
func (c *cluster) explained(asked schedulingv1.SchedulerServiceClient, name string, want func(*schedulingv1.ExplainResponse) bool) (out *schedulingv1.ExplainResponse) {
	c.t.Helper()
	c.until("the explanation of "+name+" is as wanted", func() bool {
		var err error
		out, err = asked.Explain(c.ctx, &schedulingv1.ExplainRequest{Namespace: "default", Name: name})
		return err == nil && want(out)
	})
	return out
}

func (c *cluster) createAll(pods ...*corev1.Pod) {
	c.t.Helper()
	for _, p := range pods {
		if _, err := client.For[*corev1.Pod](c.conn).Create(c.ctx, p); err != nil {
			c.t.Fatal(err)
		}
	}
}

func in(state schedulingv1.PodState) func(*schedulingv1.ExplainResponse) bool {
	return func(out *schedulingv1.ExplainResponse) bool { return out.GetState() == state }
}

func TestExplain(t *testing.T) {
	c := newCluster(t)
	c.node("node-1", map[string]string{"nvidia.com/gpu": "2"})
	c.node("node-2", map[string]string{"nvidia.com/gpu": "2"})
	asked := c.run()
	until := pod("until", func(s *corev1.PodSpec) {
		gpus(2)(s)
		s.ActiveDeadlineSeconds = proto.Int64(600)
	})
	c.createAll(until)
	on := c.explained(asked, "until", in(schedulingv1.PodState_POD_STATE_SCHEDULED)).GetNodeName()
	pods := client.For[*corev1.Pod](c.conn)
	running, err := pods.Get(c.ctx, "default", "until")
	if err != nil {
		t.Fatal(err)
	}
	started := timestamppb.New(time.Now().Truncate(time.Second))
	running.Status = &corev1.PodStatus{Phase: "Running", StartTime: started}
	if _, err := pods.UpdateStatus(c.ctx, running); err != nil {
		t.Fatal(err)
	}
	c.createAll(pod("first", gpus(2)))
	c.explained(asked, "first", in(schedulingv1.PodState_POD_STATE_SCHEDULED))
	c.createAll(pod("big", gpus(2)))

	out := c.explained(asked, "big", func(out *schedulingv1.ExplainResponse) bool {
		return out.GetPredictedStart() != nil && len(out.GetAttempts()) == 2
	})
	if out.GetState() != schedulingv1.PodState_POD_STATE_UNSCHEDULABLE || out.GetAttemptCount() != 1 {
		t.Errorf("state %v after %d attempts", out.GetState(), out.GetAttemptCount())
	}
	if want := "Add a node with 2 free nvidia.com/gpu or free 2 on node-1: both nodes have too few nvidia.com/gpu."; out.GetSummary() != want {
		t.Errorf("summary %q, want %q", out.GetSummary(), want)
	}
	if want := started.AsTime().Add(600 * time.Second); out.GetPredictedNode() != on || !out.GetPredictedStart().AsTime().Equal(want) {
		t.Errorf("starts on %s at %v, want %s at %v", out.GetPredictedNode(), out.GetPredictedStart().AsTime(), on, want)
	}
	now, last := out.GetAttempts()[0], out.GetAttempts()[1]
	if now.GetNumber() != 0 || len(now.GetNodes()) != 2 || now.GetNodes()[0].GetPlugin() != "NodeResourcesFit" {
		t.Errorf("an attempt now would give %v", now)
	}
	want := []*schedulingv1.ReasonCount{{Count: 2, Plugin: "NodeResourcesFit", Reason: "Insufficient nvidia.com/gpu", Resolvable: true}}
	if last.GetNumber() != 1 || !slices.EqualFunc(last.GetReasons(), want, func(a, b *schedulingv1.ReasonCount) bool { return proto.Equal(a, b) }) {
		t.Errorf("the last attempt gave %v", last)
	}
	if !slices.ContainsFunc(out.GetWakes(), func(w *schedulingv1.WakeEvent) bool { return w.GetEvent() == "AssignedPodDelete" }) {
		t.Errorf("woken by %v", out.GetWakes())
	}

	c.createAll(pod("gated", func(s *corev1.PodSpec) { s.SchedulingGates = []*corev1.PodSchedulingGate{{Name: "quota"}} }),
		pod("foreign", func(s *corev1.PodSpec) { s.SchedulerName = proto.String("mine") }),
		pod("lonely", inGroup("team", 1)))
	if out := c.explained(asked, "gated", in(schedulingv1.PodState_POD_STATE_GATED)); out.GetQueue().GetGatePlugin() != "SchedulingGates" {
		t.Errorf("held back by %v", out.GetQueue())
	}
	c.explained(asked, "foreign", in(schedulingv1.PodState_POD_STATE_FOREIGN))
	out = c.explained(asked, "lonely", in(schedulingv1.PodState_POD_STATE_GATED))
	if g := out.GetPodGroup(); g.GetExists() || g.GetWaiting() != 1 || !strings.HasPrefix(out.GetSummary(), "Create PodGroup default/team") {
		t.Errorf("%s: %v", out.GetSummary(), g)
	}
}

func TestExplainGangInRacks(t *testing.T) {
	c := newCluster(t)
	c.node("node-1", map[string]string{"nvidia.com/gpu": "2"})
	c.node("node-2", map[string]string{"nvidia.com/gpu": "1"})
	asked := c.run()
	if _, err := client.For[*schedulingv1.PodGroup](c.conn).Create(c.ctx, &schedulingv1.PodGroup{
		Metadata: &metav1.ObjectMeta{Name: "train", Namespace: "default"},
		Spec: &schedulingv1.PodGroupSpec{SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{
			Gang: &schedulingv1.GangSchedulingPolicy{MinCount: 4},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		c.createAll(pod(fmt.Sprint("train-", i), inGroup("train", 1)))
	}
	out := c.explained(asked, "train-0", func(out *schedulingv1.ExplainResponse) bool {
		return out.GetAttemptCount() > 0 && out.GetState() != schedulingv1.PodState_POD_STATE_IN_FLIGHT
	})
	if want := "pod group default/train needs 4 at once and 3 fit; for pod default/train-3 both nodes have too few"; !strings.Contains(out.GetSummary(), want) {
		t.Errorf("summary %q lacks %q", out.GetSummary(), want)
	}
	if g := out.GetPodGroup(); g.GetMinCount() != 4 || g.GetWaiting() != 4 || g.GetScheduled() != 0 {
		t.Errorf("group %v", g)
	}
}

func atPriority(g *schedulingv1.PodGroup, priority int32) *schedulingv1.PodGroup {
	g = proto.CloneOf(g)
	g.Spec.Priority = proto.Int32(priority)
	return g
}

// Of two schedulers the one that leads answers; when it goes, the other does, and in between each error says what is the matter.
func TestWhoeverLeadsAnswers(t *testing.T) {
	c := newCluster(t)
	c.node("node-1", map[string]string{"nvidia.com/gpu": "2"})
	c.createAll(pod("big", gpus(4)))
	asked := schedulingv1.NewSchedulerServiceClient(c.conn)
	ask := func() error {
		_, err := asked.Explain(c.ctx, &schedulingv1.ExplainRequest{Namespace: "default", Name: "big"})
		if err = apierr.FromStatus(err); err != nil && !apierr.IsNotFound(err) && (!apierr.IsUnavailable(err) ||
			!strings.HasPrefix(err.Error(), "no scheduler leads at the moment") && !strings.Contains(err.Error(), ", the last that led, cannot answer: ")) {
			t.Errorf("meanwhile: %v", err)
		}
		return err
	}
	if err := ask(); err == nil {
		t.Fatal("an answer without a scheduler")
	}
	_, endFirst := c.candidate(func(cfg *Config) { cfg.Identity = "first" })
	c.until("the first answers", func() bool { return ask() == nil })
	standby, endSecond := c.candidate(func(cfg *Config) { cfg.Identity = "second" })
	conn, err := rpc.Dial(rpc.ClientConfig{Address: "unix://" + standby})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := rpc.WaitServing(c.ctx, conn); err != nil {
		t.Fatal(err)
	}
	_, err = schedulingv1.NewSchedulerServiceClient(conn).Explain(c.ctx, &schedulingv1.ExplainRequest{Namespace: "default", Name: "big"})
	if err = apierr.FromStatus(err); !apierr.IsUnavailable(err) || !strings.Contains(err.Error(), "this scheduler does not lead") {
		t.Errorf("the standby says %v", err)
	}
	if err := ask(); err != nil {
		t.Errorf("beside a standby: %v", err)
	}
	endFirst()
	c.until("the second answers", func() bool { return ask() == nil })
	endSecond()
	c.until("nobody answers", func() bool { return ask() != nil })
}

func TestPlan(t *testing.T) {
	c := newCluster(t)
	c.node("node-1", map[string]string{"nvidia.com/gpu": "2"})
	c.node("node-2", map[string]string{"nvidia.com/gpu": "2"})
	asked := c.run()
	c.createAll(pod("a", gpus(2)), pod("b", gpus(1)))
	a := c.explained(asked, "a", in(schedulingv1.PodState_POD_STATE_SCHEDULED)).GetNodeName()
	b := c.explained(asked, "b", in(schedulingv1.PodState_POD_STATE_SCHEDULED)).GetNodeName()
	given := func(name string, n int, priority int32) *corev1.Pod {
		p := pod(name, gpus(n))
		p.Spec.SchedulerName, p.Spec.Priority = proto.String(DefaultSchedulerName), proto.Int32(priority)
		p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = fmt.Sprint(n)
		return p
	}
	member := func(name string) *corev1.Pod {
		p := given(name, 1, 0)
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: proto.String("g")}
		return p
	}
	important := func(name string) *corev1.Pod {
		p := member(name)
		p.Spec.Priority = proto.Int32(10)
		return p
	}
	group := &schedulingv1.PodGroup{
		Metadata: &metav1.ObjectMeta{Name: "g", Namespace: "default"},
		Spec: &schedulingv1.PodGroupSpec{SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{
			Gang: &schedulingv1.GangSchedulingPolicy{MinCount: 2},
		}},
	}
	more := &corev1.Node{
		Metadata: &metav1.ObjectMeta{Name: "node-3"},
		Status:   &corev1.NodeStatus{Allocatable: map[string]string{"cpu": "8", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "2"}},
	}
	// Of two nodes that cost the same the first by name is emptied.
	preempted := "x on node-1 for default/a; y on node-2; "
	if b == "node-1" {
		preempted = "x on node-1 for default/b; y waits: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.; "
	}
	for _, tt := range []struct {
		name string
		req  *schedulingv1.PlanRequest
		want string
	}{
		{"as it is", &schedulingv1.PlanRequest{Pods: []*corev1.Pod{given("x", 1, 0), given("y", 1, 0)}},
			"x on " + b + "; y waits: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.; "},
		{"with another node", &schedulingv1.PlanRequest{Pods: []*corev1.Pod{given("x", 2, 0)}, AddNodes: []*corev1.Node{more}}, "x on node-3; "},
		{"without one", &schedulingv1.PlanRequest{DrainNodes: []string{a}}, "a from " + a + " waits: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.; "},
		{"moved to a new one", &schedulingv1.PlanRequest{DrainNodes: []string{a}, AddNodes: []*corev1.Node{more}}, "a from " + a + " on node-3; "},
		{"by preemption", &schedulingv1.PlanRequest{Pods: []*corev1.Pod{given("x", 2, 10), given("y", 1, 0)}}, preempted},
		{"a gang", &schedulingv1.PlanRequest{Pods: []*corev1.Pod{member("g0"), member("g1")}, PodGroups: []*schedulingv1.PodGroup{group}},
			"g0 waits: pod group default/g needs 2 pods placed together; 1 fit: 0/2 nodes are available for pod g1: 2 Insufficient nvidia.com/gpu.; " +
				"g1 waits: pod group default/g needs 2 pods placed together; 1 fit: 0/2 nodes are available for pod g1: 2 Insufficient nvidia.com/gpu.; "},
		{"a gang by preemption", &schedulingv1.PlanRequest{
			Pods: []*corev1.Pod{important("g0"), important("g1")}, PodGroups: []*schedulingv1.PodGroup{atPriority(group, 10)},
		}, "g0 on " + b + " for default/b; g1 on " + b + "; "},
		{"a gang with another node", &schedulingv1.PlanRequest{
			Pods: []*corev1.Pod{member("g0"), member("g1")}, PodGroups: []*schedulingv1.PodGroup{group}, AddNodes: []*corev1.Node{more}, DrainNodes: []string{b},
		}, "b from " + b + " on node-3; g0 waits: pod group default/g needs 2 pods placed together; 1 fit: 0/2 nodes are available for pod g1: 2 Insufficient nvidia.com/gpu.; " +
			"g1 waits: pod group default/g needs 2 pods placed together; 1 fit: 0/2 nodes are available for pod g1: 2 Insufficient nvidia.com/gpu.; "},
		{"a gang too few of", &schedulingv1.PlanRequest{Pods: []*corev1.Pod{member("g0")}, PodGroups: []*schedulingv1.PodGroup{group}},
			"g0 waits: waiting for 1 more pod of pod group default/g, 1 of 2 seen; "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := asked.Plan(c.ctx, tt.req)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, p := range out.GetPods() {
				got.WriteString(p.GetName())
				if p.GetFromNode() != "" {
					got.WriteString(" from " + p.GetFromNode())
				}
				message, _, _ := strings.Cut(p.GetMessage(), " preemption")
				switch {
				case p.GetNodeName() == "":
					got.WriteString(" waits: " + message)
				case len(p.GetVictims()) > 0:
					fmt.Fprintf(&got, " on %s for %s", p.GetNodeName(), strings.Join(p.GetVictims(), ", "))
				default:
					got.WriteString(" on " + p.GetNodeName())
				}
				got.WriteString("; ")
			}
			if got.String() != tt.want {
				t.Errorf("\n got %s\nwant %s", &got, tt.want)
			}
		})
	}
	for _, req := range []*schedulingv1.PlanRequest{
		{AddNodes: []*corev1.Node{{Metadata: &metav1.ObjectMeta{Name: a}}}}, {Pods: []*corev1.Pod{{}}},
	} {
		if _, err := asked.Plan(c.ctx, req); !apierr.IsInvalid(apierr.FromStatus(err)) {
			t.Errorf("%v: %v, want it refused", req, err)
		}
	}
	if _, err := asked.Plan(c.ctx, &schedulingv1.PlanRequest{DrainNodes: []string{a, "none"}}); !apierr.IsNotFound(apierr.FromStatus(err)) {
		t.Errorf("%v, want that there is no such node", err)
	}
	if got, err := client.For[*corev1.Pod](c.conn).List(c.ctx, client.ListOptions{}); err != nil || len(got.Items) != 2 {
		t.Errorf("%d pods (%v), want the two", len(got.Items), err)
	}
}
