package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/client"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/test/bench/internal/measure"
)

// bound is the latency beyond which a rate no longer counts as sustained.
const bound = 500 * time.Millisecond

// maxPods is how many pods one rate may make.
const maxPods = 200000

// fanOut finds the highest rate of creates and binds at which watchers of all pods get every event within the bound.
func (d *driver) fanOut(ctx context.Context, results *measure.Results, ceiling float64) error {
	conns, err := d.dialMany(max(d.watchers, d.writers/8, 1))
	if err != nil {
		return err
	}
	if d.neverRead > 0 {
		stop, err := d.neverReading(ctx)
		defer stop()
		if err != nil {
			return err
		}
	}
	var best rate
	for offered, misses := float64(d.rates), 0; misses < 2 && (d.most == 0 || offered <= float64(d.most)); offered *= 1.25 {
		r, err := d.offer(ctx, conns, d.watchers, offered)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "offered %.0f pods/s: %.0f writes/s, %.0f events/s delivered, p50 %s, p99 %s; processor time %.2f gateway, %.2f driver, %.2f etcd\n",
			offered, r.writesPerSecond, r.delivered, r.p50.Round(time.Millisecond), r.p99.Round(time.Millisecond),
			r.gateway.Seconds()/r.took.Seconds(), r.driver.Seconds()/r.took.Seconds(), r.etcd.Seconds()/r.took.Seconds())
		if r.p99 > bound {
			misses++
			continue
		}
		if r.delivered > best.delivered {
			best, misses = r, 0
		} else {
			misses++ // the writers are at their limit
		}
	}
	// Unlike a rate these mean something on a machine that does other work.
	if d.pid != 0 {
		results.Add("api.fanout_gateway_us_per_event", best.perEvent(best.gateway), "us", 0)
	}
	results.Add("api.fanout_client_us_per_event", best.perEvent(best.driver), "us", 0)
	results.Add("api.fanout_sustained_events_per_s", best.delivered, "1/s", ceiling)
	results.Add("api.fanout_p99_ms", float64(best.p99.Microseconds())/1000, "ms", 0)
	results.Add("api.fanout_p50_ms", float64(best.p50.Microseconds())/1000, "ms", 0)
	results.Add("api.fanout_writes_per_s", best.writesPerSecond, "1/s", 0)
	return nil
}

// rate is what came of an offered one.
type rate struct {
	writes, events             int
	writesPerSecond, delivered float64
	p50, p99, took             time.Duration
	gateway, driver, etcd      time.Duration // of processors
}

// perEvent is the share of each event delivered in a processor time, in microseconds.
func (r rate) perEvent(t time.Duration) float64 {
	return float64(t.Nanoseconds()) / 1000 / float64(max(r.events, 1))
}

// usage is how long the processes have computed so far.
func (d *driver) usage() (gateway, own, etcd time.Duration, err error) {
	own, err = measure.OwnProcessorTime()
	if d.pid != 0 && err == nil {
		gateway, err = measure.ProcessorTime(d.pid)
	}
	if d.etcdPID != 0 && err == nil {
		etcd, err = measure.ProcessorTime(d.etcdPID)
	}
	return gateway, own, etcd, err
}

// flight is one run of writers and watchers. Times are of when a write was begun, by the pod's number.
type flight struct {
	prefix         string
	created, bound []atomic.Int64
	seen           atomic.Int64
}

// offer creates pods at a rate and binds each, while so many watchers count and time what they get.
func (d *driver) offer(ctx context.Context, conns []*grpc.ClientConn, watchers int, perSecond float64) (r rate, err error) {
	n := min(maxPods, int(perSecond*d.step.Seconds()))
	f := &flight{prefix: fmt.Sprintf("f%x-", time.Now().UnixNano()&0xffffff), created: make([]atomic.Int64, n), bound: make([]atomic.Int64, n)}
	watchCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	latencies := make([][]time.Duration, watchers)
	errs := make(chan error, watchers+1)
	var standing sync.WaitGroup
	for i := range watchers {
		standing.Add(1)
		wg.Go(func() {
			var err error
			if latencies[i], err = d.watch(watchCtx, client.For[*corev1.Pod](conns[i]), f, standing.Done); err != nil && watchCtx.Err() == nil {
				errs <- err
			}
		})
	}
	standing.Wait()

	gateway, own, etcd, err := d.usage()
	if err != nil {
		return r, err
	}
	begin := time.Now()
	err = d.write(ctx, podClients(conns), f, perSecond)
	wrote := time.Since(begin)
	want := int64(2 * n * watchers)
	for deadline := time.Now().Add(20 * time.Second); err == nil && f.seen.Load() < want; time.Sleep(time.Millisecond) {
		select {
		case err = <-errs:
		default:
		}
		if time.Now().After(deadline) {
			err = fmt.Errorf("%d events of %d were delivered", f.seen.Load(), want)
		}
	}
	r.took = time.Since(begin)
	cancel()
	wg.Wait()
	if err != nil {
		return r, err
	}
	if r.gateway, r.driver, r.etcd, err = d.usage(); err != nil {
		return r, err
	}
	r.gateway, r.driver, r.etcd = r.gateway-gateway, r.driver-own, r.etcd-etcd
	all := slices.Concat(latencies...)
	r.writes, r.events = 2*n, len(all)
	r.writesPerSecond, r.delivered = float64(r.writes)/wrote.Seconds(), float64(len(all))/r.took.Seconds()
	if len(all) > 0 {
		slices.Sort(all)
		r.p50, r.p99 = all[len(all)/2], all[len(all)*99/100]
	}
	return r, nil
}

// write creates the pods of a flight at a rate, and binds each.
func (d *driver) write(ctx context.Context, pods []corev1.PodServiceClient, f *flight, perSecond float64) error {
	begin := time.Now()
	pause := time.Duration(float64(time.Second) / perSecond)
	return measure.Parallel(len(f.created), 2*d.writers, func(i int) error {
		if early := time.Until(begin.Add(time.Duration(i) * pause)); early > 0 {
			time.Sleep(early)
		}
		through := pods[i%len(pods)]
		name := f.prefix + strconv.Itoa(i)
		f.created[i].Store(time.Now().UnixNano())
		if _, err := through.Create(ctx, &corev1.CreatePodRequest{Object: d.pod(name)}); err != nil {
			return err
		}
		f.bound[i].Store(time.Now().UnixNano())
		return d.bind(ctx, through, &corev1.Binding{Namespace: d.run, PodName: name, NodeName: d.node(i % max(d.nodes, 1))})
	})
}

// watch decodes and times every event of the flight's pods.
func (d *driver) watch(ctx context.Context, pods *client.Resource[*corev1.Pod], f *flight, standing func()) ([]time.Duration, error) {
	now, err := pods.List(ctx, client.ListOptions{Limit: 1})
	var stream *client.Watch[*corev1.Pod]
	if err == nil {
		stream, err = pods.Watch(ctx, client.WatchOptions{ResourceVersion: now.ResourceVersion})
	}
	standing()
	if err != nil {
		return nil, err
	}
	out := make([]time.Duration, 0, 2*len(f.created))
	revision := int64(0)
	for {
		resp, err := stream.Recv()
		if err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			return out, err
		}
		if resp.Revision < revision {
			return out, errors.New("revisions went back")
		}
		revision = resp.Revision
		now := time.Now().UnixNano()
		mine := int64(0)
		for _, e := range resp.Events {
			number, ok := strings.CutPrefix(e.Object.GetMetadata().GetName(), f.prefix)
			if !ok {
				continue
			}
			i, err := strconv.Atoi(number)
			if err != nil {
				return out, err
			}
			at := f.created[i].Load()
			if e.Type == metav1.WatchEventType_WATCH_EVENT_TYPE_MODIFIED {
				at = f.bound[i].Load()
			}
			out = append(out, time.Duration(now-at))
			mine++
		}
		f.seen.Add(mine)
	}
}
