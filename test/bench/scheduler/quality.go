package main

import (
	"context"
	"fmt"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/inmemory"
)

// quality compares where pods of a few shapes go with all that makes scheduling fast, and where a straightforward look at all
// nodes for each of them puts them: the best score, with equals in turn. Every pod must go to the same node.
func quality(ctx context.Context, b *bench) error {
	where := func(noBatching bool) (map[string]string, error) {
		out := map[string]string{}
		ns := nodes(1000, func(i int, n *corev1.Node) { n.Status.Allocatable["cpu"] = fmt.Sprint(2 + i%7) })
		measured := pods("quality", 4000/b.scale, func(i int, p *corev1.Pod) { request(p, "cpu", fmt.Sprintf("%dm", 100*(1+i%5))) })
		_, err := b.once(ctx, inmemory.Config{NoBatching: noBatching, Bound: func(p *corev1.Pod) {
			out[p.GetMetadata().GetName()] = p.GetSpec().GetNodeName()
		}}, ns, nil, measured)
		return out, err
	}
	fast, err := where(false)
	if err != nil {
		return err
	}
	best, err := where(true)
	if err != nil {
		return err
	}
	same := 0
	for pod, node := range best {
		if fast[pod] == node {
			same++
		}
	}
	b.results.Add("sched.quality", float64(same)/float64(len(best)), "of pods on the best node", 1)
	return nil
}
