package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/client"
	"trireme.dev/kit/rpc"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/test/bench/internal/local"
	"trireme.dev/test/bench/internal/measure"
)

const (
	e2eConns   = 4
	e2eWriters = 128
	// e2eStuck is how long nothing may happen before a run has failed.
	e2eStuck = time.Minute
	// calmFor is how long processes must have done next to nothing, quiet how little of that time they may have computed.
	calmFor = 500 * time.Millisecond
	quiet   = calmFor / 10
)

// driver creates pods in a cluster and watches what becomes of them.
type driver struct {
	cluster *local.Cluster
	conns   []*grpc.ClientConn
	pods    []*client.Resource[*corev1.Pod] // through each connection
}

func newDriver(cluster *local.Cluster) (*driver, error) {
	d := &driver{cluster: cluster}
	for range e2eConns {
		conn, err := rpc.Dial(cluster.Client)
		if err != nil {
			d.close()
			return nil, err
		}
		d.conns = append(d.conns, conn)
		d.pods = append(d.pods, client.For[*corev1.Pod](conn))
	}
	return d, nil
}

func (d *driver) close() {
	for _, c := range d.conns {
		_ = c.Close() // nothing is left to be lost
	}
}

// createNodes creates nodes with their statuses, which is what node agents would write.
func (d *driver) createNodes(ctx context.Context, nodes []*corev1.Node) error {
	to := client.For[*corev1.Node](d.conns[0])
	return measure.Parallel(len(nodes), e2eWriters, func(i int) error {
		created, err := to.Create(ctx, nodes[i])
		if err != nil {
			return err
		}
		created.Status = nodes[i].GetStatus()
		_, err = to.UpdateStatus(ctx, created)
		return err
	})
}

// boundAt tells of a pod when it was seen to be on a node.
type boundAt struct {
	name string
	at   time.Time
	err  error
}

// watchBound watches all pods from now on and tells of those that were bound, until ctx ends or the watch does.
func (d *driver) watchBound(ctx context.Context) (<-chan boundAt, error) {
	conn := d.conns[0]
	all := client.For[*corev1.Pod](conn)
	now, err := all.List(ctx, client.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	stream, err := all.Watch(ctx, client.WatchOptions{ResourceVersion: now.ResourceVersion})
	if err != nil {
		return nil, err
	}
	out := make(chan boundAt, e2eWriters)
	go func() { // ends with ctx
		defer close(out)
		seen := map[string]bool{}
		for {
			resp, err := stream.Recv()
			if err != nil {
				select {
				case out <- boundAt{err: err}:
				case <-ctx.Done():
				}
				return
			}
			at := time.Now()
			for _, e := range resp.Events {
				name := e.Object.GetMetadata().GetName()
				if e.Object.GetSpec().GetNodeName() == "" || seen[name] {
					continue
				}
				seen[name] = true
				select {
				case out <- boundAt{name: name, at: at}:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out, nil
}

// flight creates pods, at a rate where there is one, and waits until each is bound. It returns how long each took, from when its
// call was due.
func (d *driver) flight(ctx context.Context, bound <-chan boundAt, pods []*corev1.Pod, perSecond int) ([]time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	due := make([]time.Time, len(pods))
	created := make(chan error, 1)
	begun := time.Now()
	go func() {
		created <- measure.Parallel(len(pods), e2eWriters, func(i int) error {
			due[i] = time.Now()
			if perSecond > 0 {
				due[i] = begun.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
				time.Sleep(time.Until(due[i]))
			}
			_, err := d.pods[i%len(d.pods)].Create(ctx, pods[i])
			return err
		})
	}()
	at := make(map[string]time.Time, len(pods))
	stuck := time.NewTimer(e2eStuck)
	defer stuck.Stop()
	for writing := created; writing != nil || len(at) < len(pods); {
		select {
		case err := <-writing:
			if err != nil {
				return nil, err
			}
			writing = nil
		case b, ok := <-bound:
			if !ok || b.err != nil {
				cancel()
				return nil, errors.Join(fmt.Errorf("watch ended: %w", b.err), <-created)
			}
			at[b.name] = b.at
			stuck.Reset(e2eStuck)
		case <-stuck.C:
			cancel()
			return nil, errors.Join(fmt.Errorf("%d of %d bound, nothing for %s", len(at), len(pods), e2eStuck), <-created)
		}
	}
	took := make([]time.Duration, len(pods))
	for i, p := range pods {
		took[i] = at[p.GetMetadata().GetName()].Sub(due[i])
	}
	return took, nil
}

// calm waits until the processes have come to rest.
func (d *driver) calm(ctx context.Context) error {
	before, err := d.usage()
	for err == nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(calmFor):
		}
		var now []processor
		if now, err = d.usage(); err != nil {
			break
		}
		used := time.Duration(0)
		for i := range now {
			used += now[i].used - before[i].used
		}
		if used <= quiet {
			return nil
		}
		before = now
	}
	return err
}

// usage is how long each of the processes has computed so far.
func (d *driver) usage() ([]processor, error) {
	own, err := measure.OwnProcessorTime()
	if err != nil {
		return nil, err
	}
	out := []processor{{"driver", own}}
	for _, p := range []struct {
		name    string
		process *local.Process
	}{{"etcd", d.cluster.Etcd}, {"gateway", d.cluster.Gateway}, {"scheduler", d.cluster.Scheduler}} {
		used, err := measure.ProcessorTime(p.process.PID())
		if err != nil {
			return nil, err
		}
		out = append(out, processor{p.name, used})
	}
	return out, nil
}

// countEvents counts the events that tell of a binding.
func (d *driver) countEvents(ctx context.Context) (int, error) {
	list, err := client.For[*corev1.Event](d.conns[0]).List(ctx, client.ListOptions{FieldSelector: "reason=Scheduled"})
	if err != nil {
		return 0, err
	}
	return len(list.Items), nil
}
