package scheduler

import (
	"testing"
	"time"
)

// A scheduler that is stopped finishes the binding that it is writing.
func TestABindingInFlightIsFinished(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "2"})
	c.create(pod("a", gpus(1)))
	stopping, stopped := make(chan struct{}), make(chan struct{})
	c.onFirstPodCommit(false, func() error {
		close(stopping)
		select {
		case <-stopped:
			t.Error("the scheduler ended while its binding was being written")
		case <-time.After(200 * time.Millisecond): // in which a call that was given up would reach the gateway
		}
		return nil
	})
	stop := c.schedule(nil)
	<-stopping
	stop()
	close(stopped)
	c.awaitBound("a")
}

// A standby takes over when the leader is stopped, not when the lease would have run out.
func TestAStandbyTakesOverAtOnce(t *testing.T) {
	c := newCluster(t)
	c.node("n1", map[string]string{"nvidia.com/gpu": "8"})
	elect := func(identity string) func(*Config) {
		return func(cfg *Config) { cfg.LeaderElect, cfg.Identity = true, identity }
	}
	stopFirst := c.schedule(elect("first"))
	c.create(pod("a", gpus(1)))
	c.awaitBound("a")
	c.schedule(elect("second"))
	// The second has tried, and waits, once it has seen who leads; that takes a moment, and its first try comes at once.
	<-time.After(300 * time.Millisecond)
	begun := time.Now()
	stopFirst()
	c.create(pod("b", gpus(1)))
	c.awaitBound("b")
	if took := time.Since(begun); took > time.Second {
		t.Errorf("the standby scheduled %s after the leader was told to stop, want less than 1 s", took)
	} else {
		t.Logf("taken over after %s", took)
	}
}
