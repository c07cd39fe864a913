package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/kit/daemon"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	coschedulingv1alpha1 "trireme.dev/proto/gen/trireme/coscheduling/v1alpha1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/apiserver/apitest"
	"trireme.dev/services/scheduler/framework"
)

// cluster is a real gateway with nodes that nobody runs anything on.
type cluster struct {
	t    *testing.T
	ctx  context.Context
	conn grpc.ClientConnInterface
	api  *apitest.Server
}

func newCluster(t *testing.T) *cluster {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	api := apitest.New(t)
	return &cluster{t: t, ctx: ctx, conn: api.Conn(), api: api}
}

// schedule starts a scheduler and returns what stops it and waits for it.
func (c *cluster) schedule(change func(*Config), extra ...framework.Factory) (stop func()) {
	c.t.Helper()
	cfg := NewConfig()
	cfg.Gateway.Address = "passthrough:///unused" // tasks get the connection below
	cfg.Gateway.InsecureTCP = true
	cfg.LeaderElect = false
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg, slog.New(slog.DiscardHandler), extra...)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = s.conn.Close()
	if err := s.beginRecord(); err != nil {
		c.t.Fatal(err)
	}
	tasks, err := s.tasks(c.conn)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(ctx, tasks...) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("scheduler: %v", err)
		}
		if s.record != nil {
			s.record.Close()
		}
	}
	c.t.Cleanup(stop)
	return stop
}

func (c *cluster) node(name string, allocatable map[string]string) {
	c.t.Helper()
	all := map[string]string{"cpu": "8", "memory": "16Gi", "pods": "110"}
	for k, v := range allocatable {
		all[k] = v
	}
	nodes := client.For[*corev1.Node](c.conn)
	created, err := nodes.Create(c.ctx, &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name}})
	if err != nil {
		c.t.Fatal(err)
	}
	created.Status = &corev1.NodeStatus{Capacity: all, Allocatable: all}
	if _, err := nodes.UpdateStatus(c.ctx, created); err != nil {
		c.t.Fatal(err)
	}
}

func pod(name string, change func(*corev1.PodSpec)) *corev1.Pod {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{{
			Name: "main", Image: "busybox",
			Resources: &corev1.ResourceRequirements{Requests: map[string]string{"cpu": "100m", "memory": "64Mi"}},
		}}},
	}
	if change != nil {
		change(p.Spec)
	}
	return p
}

func gpus(n int) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Containers[0].Resources.Limits = map[string]string{"nvidia.com/gpu": fmt.Sprint(n)}
	}
}

func inGroup(group string, n int) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		gpus(n)(s)
		s.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: proto.String(group)}
	}
}

func (c *cluster) create(p *corev1.Pod) *corev1.Pod {
	c.t.Helper()
	created, err := client.For[*corev1.Pod](c.conn).Create(c.ctx, p)
	if err != nil {
		c.t.Fatal(err)
	}
	return created
}

func (c *cluster) gang(name string, minCount int32) {
	c.t.Helper()
	_, err := client.For[*schedulingv1.PodGroup](c.conn).Create(c.ctx, &schedulingv1.PodGroup{
		Metadata: &metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: &schedulingv1.PodGroupSpec{SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{
			Gang: &schedulingv1.GangSchedulingPolicy{MinCount: minCount},
		}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) delete(name string) {
	c.t.Helper()
	zero := int64(0)
	_, err := client.For[*corev1.Pod](c.conn).Delete(c.ctx, "default", name, &metav1.DeleteOptions{GracePeriodSeconds: &zero})
	if err != nil && !apierr.IsNotFound(err) {
		c.t.Fatal(err)
	}
}

// await watches all objects of a kind until ok holds for them, and returns them by name.
func await[T client.Object](c *cluster, what string, ok func(map[string]T) bool) map[string]T {
	c.t.Helper()
	watch, err := client.For[T](c.conn).Watch(c.ctx, client.WatchOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	defer watch.Close()
	seen := map[string]T{}
	for initial := false; ; {
		r, err := watch.Recv()
		if err != nil {
			c.t.Fatalf("waiting for %s: %v; have:\n%s", what, err, describe(seen))
		}
		for _, e := range r.Events {
			name := e.Object.GetMetadata().GetName()
			if e.Type == metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED {
				delete(seen, name)
			} else {
				seen[name] = e.Object
			}
		}
		initial = initial || r.InitialEventsEnd
		if initial && !r.More && ok(seen) {
			return seen
		}
	}
}

func describe[T client.Object](objects map[string]T) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		if p, ok := any(objects[name]).(*corev1.Pod); ok {
			fmt.Fprintf(&b, "%s on %q, %s\n", name, p.GetSpec().GetNodeName(), condition(p).GetMessage())
			continue
		}
		fmt.Fprintf(&b, "%v\n", objects[name])
	}
	return b.String()
}

func (c *cluster) awaitBound(names ...string) map[string]*corev1.Pod {
	c.t.Helper()
	return await(c, fmt.Sprintf("%v bound", names), func(pods map[string]*corev1.Pod) bool {
		for _, n := range names {
			if pods[n].GetSpec().GetNodeName() == "" {
				return false
			}
		}
		return true
	})
}

func condition(p *corev1.Pod) *corev1.PodCondition {
	for _, c := range p.GetStatus().GetConditions() {
		if c.GetType() == "PodScheduled" {
			return c
		}
	}
	return nil
}

// awaitCondition waits until the pod's condition PodScheduled is False with a message that contains text.
func (c *cluster) awaitCondition(name, text string) *corev1.PodCondition {
	c.t.Helper()
	pods := await(c, fmt.Sprintf("%s to say %q", name, text), func(pods map[string]*corev1.Pod) bool {
		return strings.Contains(condition(pods[name]).GetMessage(), text)
	})
	return condition(pods[name])
}

func (c *cluster) awaitEvent(about, reason, text string) {
	c.t.Helper()
	await(c, fmt.Sprintf("event %s of %s", reason, about), func(events map[string]*corev1.Event) bool {
		for _, e := range events {
			if e.GetInvolvedObject().GetName() == about && e.GetReason() == reason && strings.Contains(e.GetMessage(), text) {
				return true
			}
		}
		return false
	})
}

func TestPodIsBound(t *testing.T) {
	c := newCluster(t)
	c.node("n1", nil)
	c.schedule(func(cfg *Config) { cfg.LeaderElect = true })
	c.create(pod("a", nil))
	pods := c.awaitBound("a")
	if got := pods["a"].GetSpec().GetNodeName(); got != "n1" {
		t.Errorf("bound to %q, want n1", got)
	}
	if got := condition(pods["a"]); got.GetStatus() != "True" {
		t.Errorf("condition PodScheduled = %v, want True", got)
	}
	c.awaitEvent("a", "Scheduled", "Successfully assigned default/a to n1")
}

func TestUnschedulableThenNodeAdded(t *testing.T) {
	c := newCluster(t)
	c.schedule(nil)
	c.create(pod("a", gpus(2)))
	got := c.awaitCondition("a", "no nodes available to schedule pods")
	if got.GetReason() != "Unschedulable" || got.GetStatus() != "False" {
		t.Errorf("condition = %v, want False, Unschedulable", got)
	}
	c.node("small", nil)
	c.awaitCondition("a", "0/1 nodes are available: ")
	// The node's status comes after the node: a pod that it has room for shows that it has come.
	c.create(pod("small", nil))
	c.awaitBound("small")
	c.create(pod("b", gpus(2)))
	c.awaitCondition("b", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
	c.awaitEvent("b", "FailedScheduling", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
	begin := time.Now()
	c.node("big", map[string]string{"nvidia.com/gpu": "4"})
	if got := c.awaitBound("a")["a"].GetSpec().GetNodeName(); got != "big" {
		t.Errorf("bound to %q, want big", got)
	}
	t.Logf("node added to pod bound: %s", time.Since(begin))
}

func TestGangOnGPUs(t *testing.T) {
	c := newCluster(t)
	c.schedule(nil)
	c.node("n1", map[string]string{"nvidia.com/gpu": "4"})
	c.create(pod("g-0", inGroup("g", 2)))
	c.awaitCondition("g-0", "waiting for pod group default/g to appear")
	c.gang("g", 4)
	c.create(pod("g-1", inGroup("g", 2)))
	c.awaitCondition("g-0", "waiting for 2 more pods of pod group default/g, 2 of 4 seen")
	c.create(pod("g-2", inGroup("g", 2)))
	c.create(pod("g-3", inGroup("g", 2)))
	const lacks = "pod group default/g needs 4 pods placed together; 2 fit: 0/1 nodes are available for pod g-2: 1 Insufficient nvidia.com/gpu."
	for _, name := range []string{"g-0", "g-1", "g-2", "g-3"} {
		c.awaitCondition(name, lacks)
	}
	groupSays := func(status, text string) {
		t.Helper()
		await(c, "the group to say "+text, func(groups map[string]*schedulingv1.PodGroup) bool {
			for _, cond := range groups["g"].GetStatus().GetConditions() {
				if cond.GetType() == "PodGroupInitiallyScheduled" && cond.GetStatus() == status && strings.Contains(cond.GetMessage(), text) {
					return true
				}
			}
			return false
		})
	}
	groupSays("False", lacks)
	c.node("n2", map[string]string{"nvidia.com/gpu": "4"})
	pods := c.awaitBound("g-0", "g-1", "g-2", "g-3")
	per, revision := map[string]int{}, map[string]bool{}
	for _, p := range pods {
		per[p.GetSpec().GetNodeName()]++
		revision[p.GetMetadata().GetResourceVersion()] = true
	}
	if per["n1"] != 2 || per["n2"] != 2 {
		t.Errorf("pods per node = %v, want two on each", per)
	}
	if len(revision) != 1 {
		t.Errorf("the gang was bound at revisions %v, want one", revision)
	}
	groupSays("True", "4 pods scheduled, 4 needed")
}

// A gang as manifests for Kubernetes' scheduler-plugins have it, a PodGroup of scheduling.x-k8s.io/v1alpha1 and pods with its
// label, is bound as one and has a phase.
func TestGangOfSchedulerPlugins(t *testing.T) {
	c := newCluster(t)
	c.schedule(nil)
	c.node("n1", map[string]string{"nvidia.com/gpu": "2"})
	groups := client.For[*coschedulingv1alpha1.PodGroup](c.conn)
	if _, err := groups.Create(c.ctx, &coschedulingv1alpha1.PodGroup{
		Metadata: &metav1.ObjectMeta{Name: "train", Namespace: "default"},
		Spec:     &coschedulingv1alpha1.PodGroupSpec{MinMember: proto.Int32(3), ScheduleTimeoutSeconds: proto.Int32(10)},
	}); err != nil {
		t.Fatal(err)
	}
	names := []string{"train-0", "train-1", "train-2"}
	for _, name := range names {
		p := pod(name, gpus(1))
		p.Metadata.Labels = map[string]string{"scheduling.x-k8s.io/pod-group": "train"}
		c.create(p)
	}
	for _, name := range names {
		got := c.awaitCondition(name, "pod group default/train needs 3 pods placed together; 2 fit")
		if got.GetStatus() != "False" {
			t.Errorf("%s: %v", name, got)
		}
	}
	phase := func(want string) {
		t.Helper()
		await(c, "phase "+want, func(seen map[string]*coschedulingv1alpha1.PodGroup) bool {
			return seen["train"].GetStatus().GetPhase() == want
		})
	}
	phase("Pending")
	c.node("n2", map[string]string{"nvidia.com/gpu": "1"})
	revisions := map[string]bool{}
	for _, p := range c.awaitBound(names...) {
		revisions[p.GetMetadata().GetResourceVersion()] = true
	}
	if len(revisions) != 1 {
		t.Errorf("the gang was bound at revisions %v, want one", revisions)
	}
	phase("Scheduled")
}

func TestTwoGangsRoomForOne(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "6"})
	for _, g := range []string{"a", "b"} {
		c.gang(g, 4)
		for i := range 4 {
			c.create(pod(fmt.Sprintf("%s-%d", g, i), inGroup(g, 1)))
		}
	}
	c.schedule(nil)
	c.awaitBound("a-0", "a-1", "a-2", "a-3")
	c.awaitCondition("b-3", "pod group default/b needs 4 pods placed together; 2 fit")
	pods := await(c, "pods", func(pods map[string]*corev1.Pod) bool { return len(pods) == 8 })
	for name, p := range pods {
		if strings.HasPrefix(name, "b") && p.GetSpec().GetNodeName() != "" {
			t.Errorf("%s is bound, want none of its gang", name)
		}
	}
	// Once there is room, the other follows, whole.
	for i := range 4 {
		c.delete(fmt.Sprintf("a-%d", i))
	}
	c.awaitBound("b-0", "b-1", "b-2", "b-3")
}

func TestRestartKeepsBooks(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "2"})
	stop := c.schedule(nil)
	c.create(pod("a", gpus(1)))
	c.awaitBound("a")
	stop()
	c.create(pod("b", gpus(2)))
	c.create(pod("c", gpus(1)))
	c.schedule(nil)
	c.awaitBound("c")
	c.awaitCondition("b", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
}

func TestForeignAndGatedPodsAreLeftAlone(t *testing.T) {
	c := newCluster(t)
	c.node("n1", nil)
	c.create(pod("foreign", func(s *corev1.PodSpec) { s.SchedulerName = proto.String("other") }))
	c.create(pod("gated", func(s *corev1.PodSpec) { s.SchedulingGates = []*corev1.PodSchedulingGate{{Name: "example.com/wait"}} }))
	c.schedule(nil)
	got := c.awaitCondition("gated", "waiting for scheduling gates: [example.com/wait]")
	if got.GetReason() != "SchedulingGated" {
		t.Errorf("reason = %s, want SchedulingGated", got.GetReason())
	}
	c.create(pod("mine", nil))
	pods := c.awaitBound("mine")
	for _, name := range []string{"foreign", "gated"} {
		if n := pods[name].GetSpec().GetNodeName(); n != "" {
			t.Errorf("%s is on %s, want it left alone", name, n)
		}
	}
	fresh, err := client.For[*corev1.Pod](c.conn).Get(c.ctx, "default", "gated")
	if err != nil {
		t.Fatal(err)
	}
	fresh.Spec.SchedulingGates = nil
	if _, err := client.For[*corev1.Pod](c.conn).Update(c.ctx, fresh); err != nil {
		t.Fatal(err)
	}
	c.awaitBound("gated")
}

func TestManyPodsSpreadAndNeverOvercommit(t *testing.T) {
	c := newCluster(t)
	for i := range 4 {
		c.node(fmt.Sprintf("n%d", i), map[string]string{"cpu": "2", "pods": "110"})
	}
	c.schedule(nil)
	const n = 90
	for i := range n {
		c.create(pod(fmt.Sprintf("p-%02d", i), nil)) // 100m each, room for 80
	}
	pods := await(c, "80 bound, 10 refused", func(pods map[string]*corev1.Pod) bool {
		bound, refused := 0, 0
		for _, p := range pods {
			if p.GetSpec().GetNodeName() != "" {
				bound++
			} else if strings.HasPrefix(condition(p).GetMessage(), "0/4 nodes are available: 4 Insufficient cpu.") {
				refused++
			}
		}
		return bound == 80 && refused == 10
	})
	per := map[string]int{}
	for _, p := range pods {
		per[p.GetSpec().GetNodeName()]++
	}
	for node, k := range per {
		if node != "" && k != 20 {
			t.Errorf("node %s has %d pods, want 20", node, k)
		}
	}
}
