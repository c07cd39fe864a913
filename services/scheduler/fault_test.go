package scheduler

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trireme.dev/client"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/apiserver/apitest"
	"trireme.dev/services/scheduler/framework"
)

// onFirstPodCommit runs hook in the first commit on pods from now on: in these tests, the binding.
func (c *cluster) onFirstPodCommit(done bool, hook func() error) {
	var once sync.Once
	c.api.SetFault(func(op apitest.Operation) error {
		var err error
		if op.Name == "commit" && op.Done == done && strings.HasPrefix(op.Key, "/trireme/core/pods/") {
			once.Do(func() {
				c.api.SetFault(nil)
				err = hook()
			})
		}
		return err
	})
}

// TestBindingIsNotAnswered: nothing was written, and nothing said of it. The binding is sent again, since it might have been.
func TestBindingIsNotAnswered(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "2"})
	c.create(pod("a", gpus(2)))
	c.onFirstPodCommit(false, func() error { return apitest.ErrUnavailable })
	c.schedule(nil)
	c.awaitBound("a")
}

// TestBindConflict: another has bound the pod meanwhile. What it was to have is free again, and the pod is where the other
// put it.
func TestBindConflict(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "2"})
	first := c.create(pod("a", gpus(2)))
	c.onFirstPodCommit(false, func() error {
		resp, err := corev1.NewPodServiceClient(c.conn).Bind(c.ctx, &corev1.BindRequest{Groups: []*corev1.BindGroup{{Bindings: []*corev1.Binding{{
			Namespace: "default", PodName: "a", PodUid: first.GetMetadata().GetUid(), NodeName: "elsewhere",
		}}}}})
		if err != nil || resp.GetResults()[0].GetError() != nil {
			t.Errorf("the other's binding: %v, %v", resp, err)
		}
		return nil
	})
	c.schedule(nil)
	if got := c.awaitBound("a")["a"].GetSpec().GetNodeName(); got != "elsewhere" {
		t.Errorf("a is on %s, want elsewhere", got)
	}
	c.create(pod("b", gpus(2)))
	c.awaitBound("b")
}

// TestNodeDeletedBetweenFilterAndBind: the pod does not go to a node that is gone, and says so; it goes to the next one.
func TestNodeDeletedBetweenFilterAndBind(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "1"})
	w := &nodeWatcher{placed: make(chan struct{}), seen: make(chan struct{})}
	c.create(pod("waiter", nil))
	c.schedule(nil, framework.NewFactory("NodeWatcher", 0, nil, func(framework.Handle, *struct{}) (*nodeWatcher, error) { return w, nil }))
	c.awaitCondition("waiter", "waits for news of nodes")
	c.create(pod("a", gpus(1)))
	<-w.placed
	if _, err := client.For[*corev1.Node](c.conn).Delete(c.ctx, "", "n1", nil); err != nil {
		t.Fatal(err)
	}
	c.awaitEvent("a", "FailedScheduling", "node n1 was deleted while pod default/a was being placed on it")
	c.node("n2", map[string]string{"nvidia.com/gpu": "1"})
	if got := c.awaitBound("a")["a"].GetSpec().GetNodeName(); got != "n2" {
		t.Errorf("a is on %s, want n2", got)
	}
}

// nodeWatcher holds the first binding until the scheduler has seen a node go. It hears of that by way of the pod waiter,
// which it rejects.
type nodeWatcher struct {
	placed, seen chan struct{}
	first, news  sync.Once
}

func (*nodeWatcher) Name() string { return "NodeWatcher" }

func (*nodeWatcher) Filter(_ *framework.CycleState, pod *framework.PodInfo, _ *framework.NodeInfo) *framework.Status {
	if pod.Name() == "default/waiter" {
		return framework.NewStatus(framework.Unschedulable, "waits for news of nodes")
	}
	return nil
}

func (w *nodeWatcher) EventsToRegister() []framework.EventHint {
	return []framework.EventHint{{
		Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.Delete},
		Hint: func(*framework.PodInfo, *framework.Change) framework.Hint {
			w.news.Do(func() { close(w.seen) })
			return framework.QueueSkip
		},
	}}
}

func (*nodeWatcher) PreBindPreFlight(context.Context, *framework.CycleState, *framework.PodInfo, string) (framework.PreBindPreFlight, *framework.Status) {
	return framework.PreBindPreFlight{}, nil
}

func (w *nodeWatcher) PreBind(ctx context.Context, _ *framework.CycleState, _ *framework.PodInfo, _ string) *framework.Status {
	w.first.Do(func() {
		close(w.placed)
		select {
		case <-w.seen:
		case <-ctx.Done():
		}
	})
	return nil
}

// panicky is a plugin with a mistake in Reserve, the first time, and in PostBind.
type panicky struct{ reserved atomic.Bool }

func (*panicky) Name() string { return "Panicky" }

func (p *panicky) Reserve(context.Context, *framework.CycleState, *framework.PodInfo, string) *framework.Status {
	if !p.reserved.Swap(true) {
		panic("reserve")
	}
	return nil
}

func (*panicky) Unreserve(context.Context, *framework.CycleState, *framework.PodInfo, string) {}

func (*panicky) PostBind(context.Context, *framework.CycleState, *framework.PodInfo, string) {
	panic("post bind")
}

func TestPluginPanicOutsideOfFiltersFailsTheAttemptOnly(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "2"})
	c.create(pod("a", gpus(1)))
	c.schedule(nil, framework.NewFactory("Panicky", 0, nil, func(framework.Handle, *struct{}) (*panicky, error) { return &panicky{}, nil }))
	c.awaitEvent("a", "FailedScheduling", "panic while reserving: reserve")
	c.awaitBound("a")
	c.create(pod("b", gpus(1)))
	c.awaitBound("b") // the room of the attempt that failed was given back
}

// TestAnswerLost: the binding was written, its answer lost. The scheduler hears of it by watch, and counts it once.
func TestAnswerLost(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "3"})
	c.gang("g", 2)
	c.create(pod("g-0", inGroup("g", 1)))
	c.create(pod("g-1", inGroup("g", 1)))
	c.onFirstPodCommit(true, func() error { return apitest.ErrUnavailable })
	c.schedule(nil)
	c.awaitBound("g-0", "g-1")
	c.create(pod("large", gpus(2)))
	c.awaitCondition("large", "1 Insufficient nvidia.com/gpu")
	c.create(pod("small", gpus(1)))
	c.awaitBound("small")
}

// TestAnswerLostWhileTheWatchLags: as long as it is not known whether a pod is bound, its room is not free.
func TestAnswerLostWhileTheWatchLags(t *testing.T) {
	c := newCluster(t)
	d := &disturbed{ClientConnInterface: c.conn}
	c.node("n1", map[string]string{"nvidia.com/gpu": "1"})
	c.create(pod("a", gpus(1)))
	c.create(pod("b", gpus(1)))
	var lags, calls atomic.Int64
	d.disturb(func() disturbance {
		if calls.Add(1) == 1 {
			lags.Store(int64(2 * time.Second))
			return unanswered
		}
		return passes
	}, func() time.Duration { return time.Duration(lags.Load()) })
	api := c.conn
	c.conn = d
	c.schedule(nil)
	c.conn = api
	c.awaitBound("a")
	c.awaitCondition("b", "1 Insufficient nvidia.com/gpu")
	c.create(pod("c", nil))
	if b := c.awaitBound("c")["b"]; b.GetSpec().GetNodeName() != "" {
		t.Error("a and b are on a node that has room for one of them")
	}
}

// TestMemberDeletedWhileBinding: the gang is not bound without it, and is bound once another member has come.
func TestMemberDeletedWhileBinding(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "2"})
	c.gang("g", 2)
	c.create(pod("g-0", inGroup("g", 1)))
	c.create(pod("g-1", inGroup("g", 1)))
	c.onFirstPodCommit(false, func() error { c.delete("g-1"); return nil })
	c.schedule(nil)
	c.awaitCondition("g-0", "waiting for 1 more pod of pod group default/g, 1 of 2 seen")
	c.create(pod("g-2", inGroup("g", 1)))
	c.awaitBound("g-0", "g-2")
}

// TestPodReplacedWhileBinding: a pod of the same name is another pod.
func TestPodReplacedWhileBinding(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "1"})
	first := c.create(pod("a", gpus(1)))
	c.onFirstPodCommit(false, func() error {
		c.delete("a")
		c.create(pod("a", gpus(1)))
		return nil
	})
	c.schedule(nil)
	second := c.awaitBound("a")["a"]
	if second.GetMetadata().GetUid() == first.GetMetadata().GetUid() {
		t.Error("the pod was not replaced")
	}
}

func TestNodeDeleted(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "1"})
	c.schedule(nil)
	c.create(pod("a", gpus(1)))
	c.awaitBound("a")
	if _, err := client.For[*corev1.Node](c.conn).Delete(c.ctx, "", "n1", nil); err != nil {
		t.Fatal(err)
	}
	// Nodes and pods come by watches of their own: a pod may be seen before the deletion, and nothing about a deleted
	// node is news to a pod that waits. The next pod's verdict tells whether it has been seen.
	for i, seen := 0, false; !seen; i++ {
		name := fmt.Sprintf("b-%d", i)
		c.create(pod(name, gpus(1)))
		said := c.awaitCondition(name, "available").GetMessage()
		seen = strings.Contains(said, "no nodes available to schedule pods")
		if !seen && !strings.Contains(said, "0/1 nodes are available") {
			t.Fatalf("%s is told %q", name, said)
		}
	}
	// The node comes back under its name with a pod on it still.
	c.node("n1", map[string]string{"nvidia.com/gpu": "1"})
	c.create(pod("c", gpus(1)))
	c.awaitCondition("c", "1 Insufficient nvidia.com/gpu")
}

// TestTakeover: of two schedulers one leads; when it goes the other carries on, and nothing is bound twice.
func TestTakeover(t *testing.T) {
	c := newCluster(t)
	c.node("n1", nil)
	elect := func(identity string) func(*Config) {
		return func(cfg *Config) { cfg.LeaderElect, cfg.Identity = true, identity }
	}
	stop := c.schedule(elect("one"))
	c.create(pod("a", nil))
	c.awaitBound("a")
	c.schedule(elect("two"))
	stop()
	c.create(pod("b", nil))
	c.awaitBound("b")
}

// TestLatency holds the time from a pod's creation to the answer of its binding on an idle cluster. The bound is loose,
// for machines that do other things too; the log tells the figure.
func TestLatency(t *testing.T) {
	c := newCluster(t)
	for i := range 10 {
		c.node(fmt.Sprintf("n%d", i), nil)
	}
	c.schedule(nil)
	c.create(pod("warm", nil))
	c.awaitBound("warm")
	best := time.Hour
	for i := range 20 {
		name := fmt.Sprintf("p%d", i)
		begin := time.Now()
		c.create(pod(name, nil))
		c.awaitBound(name)
		best = min(best, time.Since(begin))
	}
	t.Logf("create to bound, both seen by a client: %s at best", best)
	if best > 100*time.Millisecond {
		t.Errorf("create to bound took %s at best", best)
	}
}
