package main

import (
	"context"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/inmemory"
)

// gangPreemption is gangs that matter, on 5,000 nodes full of pods that do not: each of their pods must drive three out. With
// a topology, all of them in one of 50 racks.
func gangPreemption(name, topology string) func(context.Context, *bench) error {
	const size = 50
	return func(ctx context.Context, b *bench) error {
		ns := racks()
		low := pods("low", 20000, func(_ int, p *corev1.Pod) { request(p, "cpu", "900m") })
		c, err := b.start(ctx, inmemory.Config{}, ns, spread(low, ns))
		if err != nil {
			return err
		}
		f, err := c.gangs(ctx, "gang", size, max(40/b.scale, 1), topology, func(p *corev1.Pod) {
			request(p, "cpu", "3")
			p.Spec.Priority = proto.Int32(1000)
		})
		if err != nil {
			return err
		}
		b.add(name, f, 0)
		b.results.Add("sched."+name+"_us_per_gang", f.micros()*size, "µs", 0)
		return c.stop()
	}
}
