package scheduler

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
)

// run starts a whole scheduler, server and component included, and returns what asks it through the gateway, once it leads.
func (c *cluster) run() schedulingv1.SchedulerServiceClient {
	c.t.Helper()
	dir, err := os.MkdirTemp("", "sched")
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := NewConfig()
	cfg.Gateway.Address = c.api.Listen(c.t)
	cfg.Socket = filepath.Join(dir, "s")
	cfg.LeaderElect = false
	s, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Errorf("scheduler: %v", err)
		}
		_ = os.RemoveAll(dir)
	})
	asked := schedulingv1.NewSchedulerServiceClient(c.conn)
	c.until("the scheduler answers", func() bool {
		_, err := asked.Explain(c.ctx, &schedulingv1.ExplainRequest{Namespace: "default", Name: "none"})
		return apierr.IsNotFound(apierr.FromStatus(err))
	})
	return asked
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

func TestExplain(t *testing.T) {
	c := newCluster(t)
	c.node("node-1", map[string]string{"nvidia.com/gpu": "1"})
	asked := c.run()
	if _, err := client.For[*corev1.Pod](c.conn).Create(c.ctx, pod("big", gpus(2))); err != nil {
		t.Fatal(err)
	}
	var out *schedulingv1.ExplainResponse
	c.until("it was tried", func() bool {
		var err error
		if out, err = asked.Explain(c.ctx, &schedulingv1.ExplainRequest{Namespace: "default", Name: "big"}); err != nil {
			t.Fatal(err)
		}
		return out.GetState() == schedulingv1.PodState_POD_STATE_UNSCHEDULABLE
	})
	t.Log(out)
}
