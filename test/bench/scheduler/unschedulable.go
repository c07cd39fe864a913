package main

import (
	"context"
	"fmt"
	"time"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/inmemory"
)

// unschedulable compares how fast pods are scheduled with 20,000 others present that fit nowhere, and without.
func unschedulable(ctx context.Context, b *bench) error {
	ns := nodes(5000, nil)
	existing := func() []*corev1.Pod { return pods("existing", 1000, nil) }
	without, err := b.once(ctx, inmemory.Config{}, ns, existing(), pods("basic", 10000/b.scale, nil))
	if err != nil {
		return err
	}
	c, err := b.start(ctx, inmemory.Config{}, ns, existing())
	if err != nil {
		return err
	}
	stuck := 20000 / b.scale
	for _, p := range pods("stuck", stuck, func(_ int, p *corev1.Pod) { request(p, "cpu", "100") }) {
		c.Create(p)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for pool := 0; pool < stuck; { // until each has been tried once
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		_, _, pool = c.Waiting()
	}
	with, err := c.measure(ctx, pods("basic", 10000/b.scale, nil), -1)
	if err != nil {
		return fmt.Errorf("with unschedulable pods: %w", err)
	}
	if err := c.stop(); err != nil {
		return err
	}
	b.results.Add("sched.unschedulable_ratio", with.perSecond()/without.perSecond(), "of the speed without", 0.9)
	b.results.Add("sched.unschedulable_cpu_ratio", with.micros()/without.micros(), "of the processor time without", 0)
	return nil
}
