package coscheduling_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/examples/coscheduling"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/apitest"
	"trireme.dev/services/scheduler"
)

// cluster is the real scheduler, with the plugin and the configuration of this folder, on the real gateway in memory.
type cluster struct {
	t    *testing.T
	ctx  context.Context
	pods *client.Resource[*corev1.Pod]
}

func start(t *testing.T, cpus string) *cluster {
	t.Helper()
	api := apitest.New(t)
	nodes := client.For[*corev1.Node](api.Conn())
	node, err := nodes.Create(t.Context(), &corev1.Node{Metadata: &metav1.ObjectMeta{Name: "n1"}})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"cpu": cpus, "memory": "16Gi", "pods": "110"}
	node.Status = &corev1.NodeStatus{Capacity: all, Allocatable: all}
	if _, err := nodes.UpdateStatus(t.Context(), node); err != nil {
		t.Fatal(err)
	}

	cfg := scheduler.NewConfig()
	cfg.Gateway.Address = api.Listen(t)
	cfg.LeaderElect = false
	cfg.ConfigFile = "scheduler.yaml"
	s, err := scheduler.New(cfg, slog.New(slog.NewTextHandler(t.Output(), nil)), coscheduling.Factory())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("scheduler: %v", err)
		}
	})
	limited, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	return &cluster{t: t, ctx: limited, pods: client.For[*corev1.Pod](api.Conn())}
}

// member makes a pod of one CPU, of a group of which least must have a place.
func (c *cluster) member(name, group string, least int) {
	c.t.Helper()
	_, err := c.pods.Create(c.ctx, &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{
			coscheduling.LabelGroup: group, coscheduling.LabelMinAvailable: fmt.Sprint(least),
		}},
		Spec: &corev1.PodSpec{
			SchedulerName: proto.String("coscheduler"),
			Containers: []*corev1.Container{{
				Name: "c", Image: "i", Resources: &corev1.ResourceRequirements{Requests: map[string]string{"cpu": "1"}},
			}},
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// until watches the pods until they satisfy done.
func (c *cluster) until(what string, done func(pods map[string]*corev1.Pod) bool) {
	c.t.Helper()
	w, err := c.pods.Watch(c.ctx, client.WatchOptions{Namespace: "default"})
	if err != nil {
		c.t.Fatal(err)
	}
	defer w.Close()
	pods := map[string]*corev1.Pod{}
	for {
		response, err := w.Recv()
		if err != nil {
			c.t.Fatalf("waiting for %s: %v; pods %v", what, err, pods)
		}
		for _, e := range response.Events {
			pods[e.Object.GetMetadata().GetName()] = e.Object
		}
		if !response.More && done(pods) {
			return
		}
	}
}

func bound(names ...string) func(map[string]*corev1.Pod) bool {
	return func(pods map[string]*corev1.Pod) bool {
		for _, name := range names {
			if pods[name].GetSpec().GetNodeName() == "" {
				return false
			}
		}
		return true
	}
}

func refused(name, why string) func(map[string]*corev1.Pod) bool {
	return func(pods map[string]*corev1.Pod) bool {
		for _, c := range pods[name].GetStatus().GetConditions() {
			if c.GetType() == "PodScheduled" && strings.Contains(c.GetMessage(), why) {
				return true
			}
		}
		return false
	}
}

// TestPermitReleasesTheGroup: two of three wait, with their places kept; the third lets all go.
func TestPermitReleasesTheGroup(t *testing.T) {
	c := start(t, "4")
	c.member("a", "g", 3)
	c.member("b", "g", 3)
	// A pod of no group comes after them, and is not held up: they have been looked at by then.
	c.member("alone", "", 0)
	c.until("the pod of no group", bound("alone"))
	for _, name := range []string{"a", "b"} {
		if p, err := c.pods.Get(c.ctx, "default", name); err != nil || p.GetSpec().GetNodeName() != "" {
			t.Fatalf("%s did not wait: %v, %v", name, p, err)
		}
	}
	c.member("c", "g", 3)
	c.until("the group", bound("a", "b", "c"))
}

// TestUnreserveRejectsTheGroup: there is room for two of three. When the first has waited long enough, the others give
// their places back with it, and a group that does fit gets them.
func TestUnreserveRejectsTheGroup(t *testing.T) {
	c := start(t, "2")
	for _, name := range []string{"a", "b", "c"} {
		c.member(name, "large", 3)
	}
	c.until("the third, which does not fit", refused("c", "Insufficient cpu"))
	c.until("the first two giving up", func(pods map[string]*corev1.Pod) bool {
		lost := func(name string) bool {
			return refused(name, "has lost its place")(pods) || refused(name, "rejected due to timeout after waiting 3s at plugin Coscheduling")(pods)
		}
		return lost("a") && lost("b")
	})
	for _, name := range []string{"a", "b", "c"} {
		if _, err := c.pods.Delete(c.ctx, "default", name, nil); err != nil {
			t.Fatal(err)
		}
	}
	c.member("x", "small", 2)
	c.member("y", "small", 2)
	c.until("the group that fits", bound("x", "y"))
}

func TestALabelThatIsNoNumber(t *testing.T) {
	c := start(t, "4")
	if _, err := c.pods.Create(c.ctx, &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "a", Labels: map[string]string{
			coscheduling.LabelGroup: "g", coscheduling.LabelMinAvailable: "many",
		}},
		Spec: &corev1.PodSpec{SchedulerName: proto.String("coscheduler"), Containers: []*corev1.Container{{Name: "c", Image: "i"}}},
	}); err != nil {
		t.Fatal(err)
	}
	c.until("the reason", refused("a", `is "many", want a number`))
}
