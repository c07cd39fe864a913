package main

import (
	"context"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/inmemory"
)

// preemption is pods that matter, on 5,000 nodes full of pods that do not: each must drive three out.
func preemption(ctx context.Context, b *bench) error {
	ns := nodes(5000, nil)
	low := pods("low", 20000, func(_ int, p *corev1.Pod) { request(p, "cpu", "900m") })
	high := pods("high", 5000/b.scale, func(_ int, p *corev1.Pod) {
		request(p, "cpu", "3")
		p.Spec.Priority = proto.Int32(1000)
	})
	f, err := b.once(ctx, inmemory.Config{}, ns, low, high)
	if err != nil {
		return err
	}
	b.add("preemption", f, 3000)
	return nil
}
