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
	conns, err := d.dialMany(d.watchers)
	if err != nil {
		return err
	}
	var best rate
	misses := 0
	var before, after time.Duration
	if d.pid != 0 {
		if before, err = processorTime(d.pid); err != nil {
			return err
		}
	}
	events := 0
	for offered := float64(d.rates); misses < 2; offered *= 1.25 {
		r, err := d.offer(ctx, podClients(conns), offered)
		if err != nil {
			return err
		}
		events += r.events
		fmt.Fprintf(os.Stderr, "offered %.0f pods/s: %.0f writes/s, %.0f events/s delivered, p99 %s\n", offered, r.writes, r.delivered, r.p99.Round(time.Millisecond))
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
	if d.pid != 0 {
		if after, err = processorTime(d.pid); err != nil {
			return err
		}
		// Writes included. Unlike a rate it means something on a machine that does other work.
		results.Add("api.fanout_gateway_us_per_event", float64((after-before).Microseconds())/float64(events), "us", 0)
	}
	results.Add("api.fanout_sustained_events_per_s", best.delivered, "1/s", ceiling)
	results.Add("api.fanout_p99_ms", float64(best.p99.Microseconds())/1000, "ms", 0)
	results.Add("api.fanout_writes_per_s", best.writes, "1/s", 0)
	return nil
}

// rate is what came of an offered one.
type rate struct {
	writes, delivered float64 // a second
	p99               time.Duration
	events            int
}

// flight is one run of writers and watchers. Times are of when a write was begun, by the pod's number.
type flight struct {
	prefix         string
	created, bound []atomic.Int64
	seen           atomic.Int64
}

// offer creates pods at a rate and binds each, while all watchers count and time what they get.
func (d *driver) offer(ctx context.Context, watchers []corev1.PodServiceClient, perSecond float64) (rate, error) {
	n := min(maxPods, int(perSecond*d.step.Seconds()))
	f := &flight{prefix: fmt.Sprintf("f%x-", time.Now().UnixNano()&0xffffff), created: make([]atomic.Int64, n), bound: make([]atomic.Int64, n)}
	watchCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	latencies := make([][]time.Duration, len(watchers))
	errs := make(chan error, len(watchers))
	var standing sync.WaitGroup
	for i, pods := range watchers {
		standing.Add(1)
		wg.Go(func() {
			var err error
			if latencies[i], err = d.watch(watchCtx, pods, f, standing.Done); err != nil && watchCtx.Err() == nil {
				errs <- err
			}
		})
	}
	standing.Wait()

	begin := time.Now()
	pause := time.Duration(float64(time.Second) / perSecond)
	err := parallel(n, 2*d.writers, func(i int) error {
		if early := time.Until(begin.Add(time.Duration(i) * pause)); early > 0 {
			time.Sleep(early)
		}
		pods := watchers[i%len(watchers)]
		name := f.prefix + strconv.Itoa(i)
		f.created[i].Store(time.Now().UnixNano())
		if _, err := pods.Create(ctx, &corev1.CreatePodRequest{Object: d.pod(name)}); err != nil {
			return err
		}
		f.bound[i].Store(time.Now().UnixNano())
		return d.bind(ctx, pods, name, d.node(i%max(d.nodes, 1)))
	})
	wrote := time.Since(begin)
	want := int64(2 * n * len(watchers))
	for deadline := time.Now().Add(20 * time.Second); err == nil && f.seen.Load() < want; time.Sleep(time.Millisecond) {
		select {
		case err = <-errs:
		default:
		}
		if time.Now().After(deadline) {
			err = fmt.Errorf("%d events of %d were delivered", f.seen.Load(), want)
		}
	}
	took := time.Since(begin)
	cancel()
	wg.Wait()
	if err != nil {
		return rate{}, err
	}
	all := slices.Concat(latencies...)
	slices.Sort(all)
	return rate{
		writes:    float64(2*n) / wrote.Seconds(),
		delivered: float64(len(all)) / took.Seconds(),
		p99:       all[len(all)*99/100],
		events:    len(all),
	}, nil
}

// watch decodes and times every event of the flight's pods.
func (d *driver) watch(ctx context.Context, pods corev1.PodServiceClient, f *flight, standing func()) ([]time.Duration, error) {
	no := false
	stream, err := pods.Watch(ctx, &metav1.WatchRequest{SendInitialEvents: &no})
	if err == nil {
		_, err = stream.Recv() // from now on
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
		if resp.GetRevision() < revision {
			return out, errors.New("revisions went back")
		}
		revision = resp.GetRevision()
		now := time.Now().UnixNano()
		mine := int64(0)
		for _, e := range resp.GetEvents() {
			number, ok := strings.CutPrefix(e.GetObject().GetMetadata().GetName(), f.prefix)
			if !ok {
				continue
			}
			i, err := strconv.Atoi(number)
			if err != nil {
				return out, err
			}
			at := f.created[i].Load()
			if e.GetType() == metav1.WatchEventType_WATCH_EVENT_TYPE_MODIFIED {
				at = f.bound[i].Load()
			}
			out = append(out, time.Duration(now-at))
			mine++
		}
		f.seen.Add(mine)
	}
}
