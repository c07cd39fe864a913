package main

import (
	"context"
	"fmt"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/inmemory"
)

// once runs one measurement in a cluster of its own, after its scheduler has placed the existing pods that name no node.
func (b *bench) once(ctx context.Context, cfg inmemory.Config, nodes []*corev1.Node, existing, measured []*corev1.Pod) (f figures, err error) {
	c, err := b.start(ctx, cfg, nodes, existing)
	if err != nil {
		return f, err
	}
	if f, err = c.measure(ctx, measured, -1); err != nil {
		return f, err
	}
	if f.used, err = c.utilisation(); err != nil {
		return f, err
	}
	return f, c.stop()
}

// judgedPods is how many pods of a workload are judged.
const judgedPods = 20

// judge runs the same again, with fewer pods and not against the clock, and compares the nodes of some with the best.
func (b *bench) judge(ctx context.Context, name string, cfg inmemory.Config, nodes []*corev1.Node, existing, measured []*corev1.Pod) error {
	measured = measured[:max(len(measured)/10, min(len(measured), judgedPods))]
	j := newJudge(max(len(measured)/judgedPods, 1))
	cfg.Profile = j.profile()
	c, err := b.start(ctx, cfg, nodes, existing)
	if err != nil {
		return err
	}
	j.seen, j.chosen, j.best = 0, 0, 0 // the existing ones do not count
	if _, err := c.measure(ctx, measured, -1); err != nil {
		return err
	}
	if err := c.stop(); err != nil {
		return err
	}
	b.judged(j)
	b.results.Add("sched."+name+"_quality", float64(j.chosen)/float64(j.best), "of the best score", 1)
	return nil
}

// workload measures and judges.
func (b *bench) workload(ctx context.Context, name string, target float64, cfg inmemory.Config, nodes []*corev1.Node, existing, measured []*corev1.Pod) error {
	f, err := b.once(ctx, cfg, nodes, existing, measured)
	if err != nil {
		return err
	}
	b.add(name, f, target)
	return b.judge(ctx, name, cfg, nodes, existing, measured)
}

// add reports pods per second under name, the processor time of one beside it, and utilisation where it was looked at.
func (b *bench) add(name string, f figures, target float64) {
	b.results.Add("sched."+name+"_per_s", f.perSecond(), "pods/s", target)
	b.results.Add("sched."+name+"_cpu_us", f.micros(), "us/pod", 0)
	if f.used > 0 {
		b.results.Add("sched."+name+"_utilisation", f.used, "of the processors", 0)
	}
}

// basic is one shape of pods on 5,000 nodes.
func basic(ctx context.Context, b *bench) error {
	ns := nodes(5000, nil)
	return b.workload(ctx, "basic", 30000, inmemory.Config{}, ns, pods("existing", 1000, nil), pods("basic", 10000*b.times/b.scale, nil))
}

// diverse is 1,000 shapes of pods, each looked at by itself.
func diverse(ctx context.Context, b *bench) error {
	ns := nodes(5000, nil)
	measured := pods("diverse", 10000*b.times/b.scale, func(i int, p *corev1.Pod) {
		request(p, "cpu", fmt.Sprintf("%dm", 50+i%100))
		request(p, "memory", fmt.Sprintf("%dMi", 300+i/100%10*50))
	})
	return b.workload(ctx, "diverse", 3000, inmemory.Config{NoBatching: true}, ns, pods("existing", 1000, nil), measured)
}

// gpu is pods of one GPU on nodes of eight.
func gpu(ctx context.Context, b *bench) error {
	const resource = "nvidia.com/gpu"
	ns := nodes(5000, func(_ int, n *corev1.Node) { n.Status.Allocatable[resource] = "8" })
	measured := pods("gpu", 5000/b.scale, func(_ int, p *corev1.Pod) { request(p, resource, "1") })
	return b.workload(ctx, "gpu", 10000, inmemory.Config{}, ns, nil, measured)
}

// growth shows how the cost of a pod grows with the cluster.
func growth(ctx context.Context, b *bench) error {
	for _, n := range []int{500, 5000, 50000} {
		ns := nodes(n, nil)
		f, err := b.once(ctx, inmemory.Config{}, ns, pods("existing", 1000, nil), pods("basic", 10000*b.times/b.scale, nil))
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
