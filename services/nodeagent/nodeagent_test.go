package nodeagent

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/kit/rpc"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a gateway and the agent of one simulated node.
type cluster struct {
	*testing.T
	gateway *apitest.Server
	conn    *grpc.ClientConn
	dir     string
	stop    func()
	agent   *Agent
	pods    *client.Resource[*corev1.Pod]
	nodes   *client.Resource[*corev1.Node]
}

func start(t *testing.T) *cluster {
	t.Helper()
	gateway := apitest.New(t)
	c := &cluster{T: t, gateway: gateway, conn: gateway.Conn(), dir: shortDir(t)}
	c.pods, c.nodes = client.For[*corev1.Pod](c.conn), client.For[*corev1.Node](c.conn)
	c.startAgent()
	t.Cleanup(func() { c.stop() })
	c.waitNode(func(n *corev1.Node) bool { return n.GetStatus().GetNodeInfo() != nil })
	// What the IPAM controller does.
	c.patchNode(`{"spec":{"podCIDR":"10.1.0.0/24","podCIDRs":["10.1.0.0/24"]}}`)
	c.waitNode(func(n *corev1.Node) bool { return nodeReady(n) == "True" })
	return c
}

// shortDir is a folder whose sockets have paths short enough for the kernel.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "na")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (c *cluster) config() Config {
	return Config{Gateway: rpc.ClientConfig{Address: "unused"}, StateDir: c.dir, Simulate: 1, NodeName: "sim", Socket: c.dir + "/agent.sock"}
}

func (c *cluster) startAgent() {
	c.Helper()
	c.startWith(c.config())
}

func (c *cluster) startWith(cfg Config) {
	c.Helper()
	level := slog.LevelError
	if testing.Verbose() {
		level = slog.LevelInfo
	}
	agent, err := New(cfg, slog.New(slog.NewTextHandler(c.Output(), &slog.HandlerOptions{Level: level})))
	if err != nil {
		c.Fatal(err)
	}
	c.agent = agent
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agent.serve(ctx, c.conn) }()
	stopped := false
	c.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			c.Errorf("agent ended with %v", err)
		}
	}
}

func (c *cluster) patchNode(patch string) {
	c.Helper()
	if _, err := c.nodes.Patch(c.Context(), "", "sim-0", metav1.PatchType_PATCH_TYPE_MERGE, []byte(patch), ""); err != nil {
		c.Fatal(err)
	}
}

func nodeReady(n *corev1.Node) string {
	for _, cond := range n.GetStatus().GetConditions() {
		if cond.GetType() == "Ready" {
			return cond.GetStatus()
		}
	}
	return ""
}

// await watches one kind until an object satisfies a condition.
func await[T client.Object](c *cluster, r *client.Resource[T], namespace, name string, ok func(T) bool) T {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 20*time.Second)
	defer cancel()
	w, err := r.Watch(ctx, client.WatchOptions{Namespace: namespace, FieldSelector: "metadata.name=" + name})
	if err != nil {
		c.Fatal(err)
	}
	var last T
	for {
		response, err := w.Recv()
		if err != nil {
			c.Fatalf("waiting for %s: %v; last seen: %v", name, err, last)
		}
		for _, e := range response.Events {
			last = e.Object
			if e.Type != metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED && ok(last) {
				return last
			}
		}
	}
}

func (c *cluster) waitNode(ok func(*corev1.Node) bool) *corev1.Node {
	c.Helper()
	return await(c, c.nodes, "", "sim-0", ok)
}

func (c *cluster) waitPod(name string, ok func(*corev1.Pod) bool) *corev1.Pod {
	c.Helper()
	return await(c, c.pods, "default", name, ok)
}

func (c *cluster) waitGone(name string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 20*time.Second)
	defer cancel()
	w, err := c.pods.Watch(ctx, client.WatchOptions{Namespace: "default", FieldSelector: "metadata.name=" + name})
	if err != nil {
		c.Fatal(err)
	}
	there := false
	for {
		response, err := w.Recv()
		if err != nil {
			c.Fatalf("waiting for the end of %s: %v", name, err)
		}
		for _, e := range response.Events {
			there = e.Type != metav1.WatchEventType_WATCH_EVENT_TYPE_DELETED
		}
		if !there && (response.InitialEventsEnd || len(response.Events) > 0) {
			return
		}
	}
}

func pod(name string, command ...string) *corev1.Pod {
	return &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: &corev1.PodSpec{
			NodeName: proto.String("sim-0"), TerminationGracePeriodSeconds: proto.Int64(2),
			Containers: []*corev1.Container{{Name: "main", Image: "busybox:1", Command: command}},
		},
	}
}

func (c *cluster) create(p *corev1.Pod) *corev1.Pod {
	c.Helper()
	created, err := c.pods.Create(c.Context(), p)
	if err != nil {
		c.Fatal(err)
	}
	return created
}

func running(p *corev1.Pod) bool { return p.GetStatus().GetPhase() == "Running" && ready(p) == "True" }

func ready(p *corev1.Pod) string {
	for _, cond := range p.GetStatus().GetConditions() {
		if cond.GetType() == "Ready" {
			return cond.GetStatus()
		}
	}
	return ""
}

func mainStatus(p *corev1.Pod) *corev1.ContainerStatus {
	for _, s := range p.GetStatus().GetContainerStatuses() {
		if s.GetName() == "main" {
			return s
		}
	}
	return nil
}

// waitEvents waits until there are events on an object for all of the reasons.
func (c *cluster) waitEvents(uid string, reasons ...string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 20*time.Second)
	defer cancel()
	w, err := client.For[*corev1.Event](c.conn).Watch(ctx, client.WatchOptions{Namespace: "default"})
	if err != nil {
		c.Fatal(err)
	}
	for len(reasons) > 0 {
		response, err := w.Recv()
		if err != nil {
			c.Fatalf("waiting for events %v: %v", reasons, err)
		}
		for _, e := range response.Events {
			if e.Object.GetInvolvedObject().GetUid() == uid {
				reasons = slices.DeleteFunc(reasons, func(r string) bool { return r == e.Object.GetReason() })
			}
		}
	}
}

func TestPodRunsAndIsDeletedGracefully(t *testing.T) {
	c := start(t)
	begin := time.Now()
	created := c.create(pod("web", "serve"))
	got := c.waitPod("web", running)
	t.Logf("running after %s", time.Since(begin))
	if got.GetStatus().GetPodIp() == "" || got.GetStatus().GetHostIp() != "127.0.0.1" || mainStatus(got).GetRestartCount() != 0 {
		t.Errorf("status: %v", got.GetStatus())
	}
	if _, err := c.pods.Delete(t.Context(), "default", "web", nil); err != nil {
		t.Fatal(err)
	}
	c.waitGone("web")
	c.waitEvents(created.GetMetadata().GetUid(), "Pulled", "Created", "Started", "Killing")
}

func TestFailingContainerIsRestartedWithBackoff(t *testing.T) {
	c := start(t)
	c.create(pod("crash", "exit", "3"))
	got := c.waitPod("crash", func(p *corev1.Pod) bool {
		return mainStatus(p).GetState().GetWaiting().GetReason() == "CrashLoopBackOff"
	})
	s := mainStatus(got)
	if s.GetRestartCount() < 1 || s.GetLastState().GetTerminated().GetExitCode() != 3 || got.GetStatus().GetPhase() != "Running" {
		t.Errorf("status: %v", got.GetStatus())
	}
}

func TestPodsThatEnd(t *testing.T) {
	c := start(t)
	done := pod("done", "true")
	done.Spec.RestartPolicy = proto.String("Never")
	done.Spec.InitContainers = []*corev1.Container{{Name: "prepare", Image: "busybox:1", Command: []string{"true"}}}
	c.create(done)
	failed := pod("failed", "exit", "4")
	failed.Spec.RestartPolicy = proto.String("Never")
	c.create(failed)
	got := c.waitPod("done", func(p *corev1.Pod) bool { return p.GetStatus().GetPhase() == "Succeeded" })
	if s := got.GetStatus().GetInitContainerStatuses(); len(s) != 1 || !s[0].GetReady() {
		t.Errorf("init containers: %v", s)
	}
	got = c.waitPod("failed", func(p *corev1.Pod) bool { return p.GetStatus().GetPhase() == "Failed" })
	if code := mainStatus(got).GetState().GetTerminated().GetExitCode(); code != 4 {
		t.Errorf("exit code %d", code)
	}
}

func TestAgentRestartHarmsNothing(t *testing.T) {
	c := start(t)
	c.create(pod("web", "serve"))
	before := c.waitPod("web", running)
	c.stop()
	c.create(pod("late", "serve"))
	c.create(pod("gone", "serve"))
	if _, err := c.pods.Delete(t.Context(), "default", "gone", &metav1.DeleteOptions{GracePeriodSeconds: proto.Int64(0)}); err != nil {
		t.Fatal(err)
	}
	c.startAgent()
	c.waitPod("late", running)
	after, err := c.pods.Get(t.Context(), "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	if mainStatus(after).GetContainerId() != mainStatus(before).GetContainerId() || mainStatus(after).GetRestartCount() != 0 {
		t.Errorf("before %v\nafter %v", mainStatus(before), mainStatus(after))
	}
}

func TestGatewayAwayMeanwhile(t *testing.T) {
	c := start(t)
	c.create(pod("short", "sleep", "0.2"))
	c.waitPod("short", running)
	// The agent's attempts to write that the container ended are what tells that it did.
	attempts := make(chan struct{}, 1000)
	c.gateway.SetFault(func(op apitest.Operation) error {
		if op.Name == "commit" && op.Key == "/trireme/core/pods/default/short" {
			select {
			case attempts <- struct{}{}:
			default:
			}
		}
		return apitest.ErrUnavailable
	})
	for range 3 {
		select {
		case <-attempts:
		case <-time.After(20 * time.Second):
			t.Fatal("the agent does not try to write the status")
		}
	}
	c.gateway.SetFault(nil)
	c.waitPod("short", func(p *corev1.Pod) bool { return mainStatus(p).GetRestartCount() >= 1 })
}

func TestMissingConfigHoldsThePod(t *testing.T) {
	c := start(t)
	p := pod("env", "serve")
	p.Spec.Containers[0].Env = []*corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Name: "settings", Key: "a"},
	}}}
	c.create(p)
	got := c.waitPod("env", func(p *corev1.Pod) bool {
		return mainStatus(p).GetState().GetWaiting().GetReason() == "CreateContainerConfigError"
	})
	if m := mainStatus(got).GetState().GetWaiting().GetMessage(); m != `configmap "settings" not found` {
		t.Errorf("message %q", m)
	}
	if _, err := client.For[*corev1.ConfigMap](c.conn).Create(t.Context(), &corev1.ConfigMap{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "settings"}, Data: map[string]string{"a": "1"},
	}); err != nil {
		t.Fatal(err)
	}
	c.waitPod("env", running)
}

func TestImageThatCannotBeHad(t *testing.T) {
	c := start(t)
	p := pod("noimage", "serve")
	p.Spec.Containers[0].Image = "absent/thing:1"
	c.create(p)
	seen := []string{}
	c.waitPod("noimage", func(p *corev1.Pod) bool {
		if r := mainStatus(p).GetState().GetWaiting().GetReason(); r != "" && !slices.Contains(seen, r) {
			seen = append(seen, r)
		}
		return slices.Contains(seen, "ImagePullBackOff")
	})
	if !slices.Contains(seen, "ErrImagePull") {
		t.Errorf("reasons %v", seen)
	}
}

func TestPodThatDoesNotFit(t *testing.T) {
	c := start(t)
	p := pod("big", "serve")
	p.Spec.Containers[0].Resources = &corev1.ResourceRequirements{Requests: map[string]string{"cpu": "65"}}
	c.create(p)
	got := c.waitPod("big", func(p *corev1.Pod) bool { return p.GetStatus().GetPhase() == "Failed" })
	if r := got.GetStatus().GetReason(); r != "OutOfcpu" {
		t.Errorf("reason %q", r)
	}
	if _, err := c.pods.Delete(t.Context(), "default", "big", nil); err != nil && !apierr.IsNotFound(err) {
		t.Fatal(err)
	}
	c.waitGone("big")
}
