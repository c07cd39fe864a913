package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/inmemory"
	"trireme.dev/test/bench/internal/measure"
)

// cluster is a running scheduler.
type cluster struct {
	*inmemory.Scheduler
	bound chan int // how many have been bound so far, the newest only
	last  int      // what measure last took from it
	stop  func() error
}

// start runs a scheduler over nodes, with pods on those that their specs name; the others it has placed when start returns.
func (b *bench) start(ctx context.Context, cfg inmemory.Config, nodes []*corev1.Node, existing []*corev1.Pod) (*cluster, error) {
	c := &cluster{bound: make(chan int, 1)}
	cfg.Seed, cfg.Record = b.seed, b.record
	also := cfg.Bound
	total := 0
	cfg.Bound = func(pod *corev1.Pod) {
		if also != nil {
			also(pod)
		}
		total++
		select {
		case <-c.bound:
		default:
		}
		c.bound <- total
	}
	s, err := inmemory.New(cfg)
	if err != nil {
		return nil, err
	}
	c.Scheduler = s
	for _, n := range nodes {
		s.Node(nil, n)
	}
	waiting := existing[:0:0]
	for _, p := range existing {
		if p.GetSpec().GetNodeName() != "" {
			s.Create(p)
		} else {
			waiting = append(waiting, p)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	c.stop = func() error {
		cancel()
		return <-ended
	}
	if _, err := c.measure(ctx, waiting, -1); err != nil {
		return nil, fmt.Errorf("existing pods: %w", err)
	}
	return c, nil
}

// figures are of one measurement.
type figures struct {
	pods      int
	wall, cpu time.Duration
	// used is the share of the processors that is asked for in the end.
	used float64
}

func (f figures) perSecond() float64 { return float64(f.pods) / f.wall.Seconds() }

// micros is processor time, of all threads, per pod.
func (f figures) micros() float64 { return float64(f.cpu.Microseconds()) / float64(f.pods) }

// measure creates pods and waits until as many are bound as are wanted, -1 for all.
func (c *cluster) measure(ctx context.Context, pods []*corev1.Pod, want int) (figures, error) {
	if want < 0 {
		want = len(pods)
	}
	runtime.GC()
	before := c.last
	cpu, err := measure.OwnProcessorTime()
	if err != nil {
		return figures{}, err
	}
	begun := time.Now()
	for _, p := range pods {
		c.Create(p)
	}
	stuck := time.NewTimer(time.Minute)
	defer stuck.Stop()
	for c.last < before+want {
		select {
		case c.last = <-c.bound:
			stuck.Reset(time.Minute)
		case <-ctx.Done():
			return figures{}, ctx.Err()
		case <-stuck.C:
			active, backoff, pool := c.Waiting()
			return figures{}, fmt.Errorf("%d of %d bound, nothing for a minute; waiting: %d ready, %d in backoff, %d unschedulable",
				c.last-before, want, active, backoff, pool)
		}
	}
	wall := time.Since(begun)
	used, err := measure.OwnProcessorTime()
	return figures{pods: want, wall: wall, cpu: used - cpu}, err
}

// nodes are the machines of the table: 4 CPU, 32 GiB, 110 pods, three zones. change may be nil.
func nodes(n int, change func(i int, node *corev1.Node)) []*corev1.Node {
	out := make([]*corev1.Node, n)
	for i := range out {
		name := fmt.Sprintf("node-%05d", i)
		out[i] = &corev1.Node{
			Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{
				"kubernetes.io/hostname":      name,
				"topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", i%3),
			}},
			Spec:   &corev1.NodeSpec{},
			Status: &corev1.NodeStatus{Allocatable: map[string]string{"cpu": "4", "memory": "32Gi", "pods": "110"}},
		}
		if change != nil {
			change(i, out[i])
		}
	}
	return out
}

// pods are those of the table: 100m and 500 MiB. change may be nil.
func pods(prefix string, n int, change func(i int, pod *corev1.Pod)) []*corev1.Pod {
	out := make([]*corev1.Pod, n)
	for i := range out {
		name := fmt.Sprintf("%s-%d", prefix, i)
		out[i] = &corev1.Pod{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: name, Generation: 1, Labels: map[string]string{"app": prefix}},
			Spec: &corev1.PodSpec{
				SchedulerName: proto.String("default-scheduler"),
				Containers: []*corev1.Container{{
					Name: "main", Image: "pause",
					Resources: &corev1.ResourceRequirements{Requests: map[string]string{"cpu": "100m", "memory": "500Mi"}},
				}},
			},
		}
		if change != nil {
			change(i, out[i])
		}
	}
	return out
}

// request sets what a pod asks for.
func request(p *corev1.Pod, resource, quantity string) {
	p.Spec.Containers[0].Resources.Requests[resource] = quantity
}

// spread puts pods on nodes, one after the other, as what is there already.
func spread(pods []*corev1.Pod, nodes []*corev1.Node) []*corev1.Pod {
	for i, p := range pods {
		p.Spec.NodeName = proto.String(nodes[i%len(nodes)].GetMetadata().GetName())
	}
	return pods
}
