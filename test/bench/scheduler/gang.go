package main

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/inmemory"
)

const rack = "example.com/rack"

// gangs places gangs of so many pods, each as a whole in one of the topology's domains, on 5,000 nodes in 50 racks.
func gangs(size, count int, topology string) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		c, err := b.start(ctx, inmemory.Config{}, racks(), nil)
		if err != nil {
			return err
		}
		f, err := c.gangs(ctx, "gang", size, max(count/b.scale, 1), topology, nil)
		if err != nil {
			return err
		}
		if f.used, err = c.utilisation(); err != nil {
			return err
		}
		b.add(fmt.Sprintf("gang_%dx%d", count, size), f, 5000)
		return c.stop()
	}
}

// gang1000 is one gang of 1,000 pods, from the first pod's creation to the last one's binding.
func gang1000(ctx context.Context, b *bench) error {
	c, err := b.start(ctx, inmemory.Config{}, racks(), nil)
	if err != nil {
		return err
	}
	if _, err := c.gangs(ctx, "warm", 1000, 1, rack, nil); err != nil {
		return err
	}
	f, err := c.gangs(ctx, "gang", 1000, 1, rack, nil)
	if err != nil {
		return err
	}
	b.results.Add("sched.gang1000_ms", f.wall.Seconds()*1000, "ms", 0)
	b.results.Add("sched.gang1000_cpu_ms", f.cpu.Seconds()*1000, "ms", 0)
	return c.stop()
}

// racks are 5,000 nodes of which every hundred have one.
func racks() []*corev1.Node {
	return nodes(5000, func(i int, n *corev1.Node) { n.Metadata.Labels[rack] = fmt.Sprintf("rack-%02d", i%50) })
}

// gangs creates gangs, each within one domain of the topology unless that is empty, and waits until all of their pods are
// bound. change may be nil.
func (c *cluster) gangs(ctx context.Context, prefix string, size, count int, topology string, change func(*corev1.Pod)) (figures, error) {
	for i := range count {
		spec := &schedulingv1.PodGroupSpec{
			SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{Gang: &schedulingv1.GangSchedulingPolicy{MinCount: int32(size)}},
		}
		if topology != "" {
			spec.SchedulingConstraints = &schedulingv1.PodGroupSchedulingConstraints{Topology: []*schedulingv1.TopologyConstraint{{Key: topology}}}
		}
		name := fmt.Sprintf("%s-%d", prefix, i)
		c.Group(nil, &schedulingv1.PodGroup{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: name}, Spec: spec})
	}
	return c.measure(ctx, pods(prefix, size*count, func(i int, p *corev1.Pod) {
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: proto.String(fmt.Sprintf("%s-%d", prefix, i/size))}
		if change != nil {
			change(p)
		}
	}), -1)
}
