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
	// nodePods are bound in each round, on ten of the nodes that are watched.
	nodePods = 1500
)

// watchNodes measures what an event of a pod costs while 10, 100, 1,000 and 5,000 nodes watch their own pods: the processor
// time of the gateway for a pod that is bound, the write included, which stays the same.
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
	for _, watchers := range []int{10, 100, 1000, 5000} {
		if watchers > d.nodeWatchers {
			break
		}
		more := watchers - standing
		err := parallel(more, d.writers, func(i int) error {
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
	name := func(i int) string { return fmt.Sprintf("w%d-%d", watchers, i) }
	err := parallel(nodePods, d.writers, func(i int) error {
		_, err := clients[i%len(clients)].Create(ctx, &corev1.CreatePodRequest{Object: d.pod(name(i))})
		return err
	})
	if err != nil {
		return 0, err
	}
	before, err := processorTime(d.pid)
	if err != nil {
		return 0, err
	}
	start := seen.Load()
	err = parallel(nodePods, d.writers, func(i int) error {
		return d.bind(ctx, clients[i%len(clients)], name(i), d.node(i%10*watchers/10))
	})
	if err != nil {
		return 0, err
	}
	for deadline := time.Now().Add(10 * time.Second); seen.Load()-start < nodePods; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("%d watchers were given %d events of %d", watchers, seen.Load()-start, nodePods)
		}
	}
	after, err := processorTime(d.pid)
	return float64((after - before).Microseconds()) / nodePods, err
}
