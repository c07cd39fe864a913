package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/test/bench/internal/measure"
)

const (
	// nodeConnections carry the watches of all nodes, as far as there are so many.
	nodeConnections = 50
	// nodeRounds follow one another at each number of watchers. In each, one transaction binds ten pods to each of ten of the
	// nodes that are watched: so that the write, whose share in the figure stays the same, is not all of it.
	nodeRounds = 40
	nodeGang   = 100
	gangNodes  = 10
)

// watchNodes measures what an event of a pod costs while nobody, and while 10, 100, 1,000 and 5,000 nodes watch their own
// pods: the processor time of the gateway for a pod that is bound in a gang of a hundred, the write included.
func (d *driver) watchNodes(ctx context.Context, results *measure.Results) error {
	if d.pid == 0 {
		return nil // another machine's time cannot be read
	}
	conns, err := d.dialMany(min(nodeConnections, d.nodeWatchers))
	if err != nil {
		return err
	}
	clients := podClients(conns)
	watchCtx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var seen atomic.Int64
	standing := 0
	for _, watchers := range []int{0, 10, 100, 1000, 5000} {
		if watchers > d.nodeWatchers {
			break
		}
		more := watchers - standing
		err := measure.Parallel(more, d.writers, func(i int) error {
			no := false
			stream, err := clients[i%len(clients)].Watch(watchCtx, &metav1.WatchRequest{
				FieldSelector: "spec.nodeName=" + d.node(standing+i), SendInitialEvents: &no,
			})
			if err != nil {
				return err
			}
			if _, err := stream.Recv(); err != nil {
				return err
			}
			wg.Go(func() {
				for {
					resp, err := stream.Recv()
					if err != nil {
						return // cancelled; a watch that broke is missed in the count
					}
					seen.Add(int64(len(resp.GetEvents())))
				}
			})
			return nil
		})
		if err != nil {
			return err
		}
		standing = watchers
		cost, err := d.bindWatched(ctx, clients, watchers, &seen)
		if err != nil {
			return err
		}
		results.Add(fmt.Sprintf("api.nodewatch_us_per_event_%d", watchers), cost, "us", 0)
	}
	return nil
}

// bindWatched creates pods, which nobody watches, then binds them to watched nodes, and returns the processor time of
// the gateway for each binding.
func (d *driver) bindWatched(ctx context.Context, clients []corev1.PodServiceClient, watchers int, seen *atomic.Int64) (float64, error) {
	const pods = nodeRounds * nodeGang
	name := func(i int) string { return fmt.Sprintf("w%d-%d", watchers, i) }
	err := measure.Parallel(pods, d.writers, func(i int) error {
		_, err := clients[i%len(clients)].Create(ctx, &corev1.CreatePodRequest{Object: d.pod(name(i))})
		return err
	})
	if err != nil {
		return 0, err
	}
	// What the creates have left to do, and the streams, is not the events'.
	time.Sleep(time.Second)
	before, err := measure.ProcessorTime(d.pid)
	if err != nil {
		return 0, err
	}
	start := seen.Load()
	for round := range nodeRounds {
		gang := make([]*corev1.Binding, nodeGang)
		for i := range gang {
			gang[i] = &corev1.Binding{Namespace: d.run, PodName: name(round*nodeGang + i), NodeName: d.node(i % gangNodes * max(watchers, gangNodes) / gangNodes)}
		}
		if err := d.bind(ctx, clients[0], gang...); err != nil {
			return 0, err
		}
	}
	want := int64(pods)
	if watchers == 0 {
		want = 0
	}
	for deadline := time.Now().Add(10 * time.Second); seen.Load()-start < want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("%d watchers were given %d events of %d", watchers, seen.Load()-start, want)
		}
	}
	after, err := measure.ProcessorTime(d.pid)
	return float64((after - before).Microseconds()) / pods, err
}
