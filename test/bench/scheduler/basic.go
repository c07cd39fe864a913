package main

import (
	"context"
	"fmt"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/inmemory"
)

// once runs one measurement in a cluster of its own.
func (b *bench) once(ctx context.Context, cfg inmemory.Config, nodes []*corev1.Node, existing, measured []*corev1.Pod) (f figures, err error) {
	c, err := b.start(ctx, cfg, nodes, existing)
	if err != nil {
		return f, err
	}
	if f, err = c.measure(ctx, measured, -1); err != nil {
		return f, err
	}
	return f, c.stop()
}

// add reports pods per second under name, and the processor time of one beside it.
func (b *bench) add(name string, f figures, target float64) {
	b.results.Add("sched."+name+"_per_s", f.perSecond(), "pods/s", target)
	b.results.Add("sched."+name+"_cpu_us", f.micros(), "us/pod", 0)
}

// basic is one shape of pods on 5,000 nodes.
func basic(ctx context.Context, b *bench) error {
	ns := nodes(5000, nil)
	f, err := b.once(ctx, inmemory.Config{}, ns, spread(pods("existing", 1000, nil), ns), pods("basic", 10000*b.times/b.scale, nil))
	if err != nil {
		return err
	}
	b.add("basic", f, 30000)
	return nil
}

// diverse is 1,000 shapes of pods, each looked at by itself.
func diverse(ctx context.Context, b *bench) error {
	ns := nodes(5000, nil)
	measured := pods("diverse", 10000*b.times/b.scale, func(i int, p *corev1.Pod) {
		request(p, "cpu", fmt.Sprintf("%dm", 50+i%100))
		request(p, "memory", fmt.Sprintf("%dMi", 300+i/100%10*50))
	})
	f, err := b.once(ctx, inmemory.Config{NoBatching: true}, ns, spread(pods("existing", 1000, nil), ns), measured)
	if err != nil {
		return err
	}
	b.add("diverse", f, 3000)
	return nil
}

// gpu is pods of one GPU on nodes of eight.
func gpu(ctx context.Context, b *bench) error {
	const resource = "nvidia.com/gpu"
	ns := nodes(5000, func(_ int, n *corev1.Node) { n.Status.Allocatable[resource] = "8" })
	measured := pods("gpu", 5000/b.scale, func(_ int, p *corev1.Pod) { request(p, resource, "1") })
	f, err := b.once(ctx, inmemory.Config{}, ns, nil, measured)
	if err != nil {
		return err
	}
	b.add("gpu", f, 10000)
	return nil
}

// growth shows how the cost of a pod grows with the cluster.
func growth(ctx context.Context, b *bench) error {
	for _, n := range []int{500, 5000, 50000} {
		ns := nodes(n, nil)
		f, err := b.once(ctx, inmemory.Config{}, ns, spread(pods("existing", 1000, nil), ns), pods("basic", 10000*b.times/b.scale, nil))
		if err != nil {
			return err
		}
		b.results.Add(fmt.Sprintf("sched.basic_%d_us_per_pod", n), f.wall.Seconds()*1e6/float64(f.pods), "us/pod", 0)
		b.results.Add(fmt.Sprintf("sched.basic_%d_cpu_us", n), f.micros(), "us/pod", 0)
		if n == 50000 {
			b.results.Add("sched.basic_50000_per_s", f.perSecond(), "pods/s", 5000)
		}
	}
	return nil
}
