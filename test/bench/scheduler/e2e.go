package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"trireme.dev/test/bench/internal/local"
	"trireme.dev/test/bench/internal/measure"
)

const (
	// e2eRate is how many pods a second are offered where it is latencies that count.
	e2eRate = 1000
	// e2eTarget in pods a second, where as many are offered as are taken.
	e2eTarget = 2000
	// e2eLatency is what the slowest hundredth may take from the call that creates a pod until a watch shows it bound, in
	// milliseconds.
	e2eLatency = 1000
)

// endToEnd is pods through the real thing: etcd, gateway and scheduler as processes, with this one, which drives them, on the
// same processors. Nodes are objects only, nothing runs on them.
func endToEnd(ctx context.Context, b *bench) error {
	var puts float64
	if b.scale == 1 {
		var err error
		if puts, err = measure.GoBenchmark(ctx, "services/apiserver", "./internal/storage/etcd", "", "BenchmarkTxnPut", "puts/s"); err != nil {
			return err
		}
	}
	full, err := b.endToEnd(ctx, 0)
	if err != nil {
		return fmt.Errorf("as many as are taken: %w", err)
	}
	paced, err := b.endToEnd(ctx, e2eRate)
	if err != nil {
		return fmt.Errorf("%d a second: %w", e2eRate, err)
	}
	n := len(full.latencies)
	b.results.Add("sched.e2e_pods_per_s", float64(n)/full.wall.Seconds(), "pods/s", e2eTarget)
	b.results.Add("sched.e2e_p50_ms", paced.percentile(50), "ms", 0)
	b.results.Add("sched.e2e_p99_ms", paced.percentile(99), "ms", e2eLatency)
	b.results.Add("sched.e2e_full_p50_ms", full.percentile(50), "ms", 0)
	for _, r := range []struct {
		name string
		of   e2eRun
	}{{"", full}, {"paced_", paced}} {
		sum := time.Duration(0)
		for _, p := range r.of.processors {
			b.results.Add("sched.e2e_"+r.name+p.name+"_cpu_us", perPod(p.used, n), "us/pod", 0)
			sum += p.used
		}
		b.results.Add("sched.e2e_"+r.name+"cpu_us", perPod(sum, n), "us/pod", 0)
	}
	b.results.Add("sched.e2e_events", float64(full.events)/float64(full.pods), "of pods have one", 1)
	if puts > 0 {
		b.results.Add("etcd.txn_put_per_s", puts, "1/s", 0)
	}
	return nil
}

func perPod(d time.Duration, pods int) float64 {
	return float64(d.Microseconds()) / float64(pods)
}

// e2eRun is what one run showed.
type e2eRun struct {
	wall time.Duration
	// latencies from create to bound, in order.
	latencies  []time.Duration
	processors []processor
	// pods there are and how many events say that one was bound.
	pods, events int
}

// processor is how long a process computed.
type processor struct {
	name string
	used time.Duration
}

func (r e2eRun) percentile(p int) float64 {
	return float64(r.latencies[len(r.latencies)*p/100].Microseconds()) / 1000
}

// endToEnd runs a cluster of its own and offers pods at a rate, or as many as are taken where that is 0.
func (b *bench) endToEnd(ctx context.Context, perSecond int) (r e2eRun, err error) {
	cluster, err := local.Start(ctx, b.binaries)
	if err != nil {
		return r, err
	}
	defer cluster.Stop()
	d, err := newDriver(cluster)
	if err != nil {
		return r, err
	}
	defer d.close()
	if err := d.createNodes(ctx, nodes(5000, nil)); err != nil {
		return r, fmt.Errorf("nodes: %w", err)
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	bound, err := d.watchBound(watching)
	if err != nil {
		return r, err
	}
	existing, measured := pods("existing", 1000, nil), pods("e2e", 10000*b.times/b.scale, nil)
	if _, err := d.flight(ctx, bound, existing, 0); err != nil {
		return r, fmt.Errorf("existing pods: %w", err)
	}
	if err := d.calm(ctx); err != nil {
		return r, err
	}
	before, err := d.usage()
	if err != nil {
		return r, err
	}
	fmt.Fprintf(os.Stderr, "e2e: %d pods\n", len(measured))
	begun := time.Now()
	if r.latencies, err = d.flight(ctx, bound, measured, perSecond); err != nil {
		return r, err
	}
	r.wall = time.Since(begun)
	// What is still being written about the pods is part of what they cost.
	if err := d.calm(ctx); err != nil {
		return r, err
	}
	if r.processors, err = d.usage(); err != nil {
		return r, err
	}
	for i := range r.processors {
		r.processors[i].used -= before[i].used
	}
	slices.Sort(r.latencies)
	r.pods = len(existing) + len(measured)
	r.events, err = d.countEvents(ctx)
	fmt.Fprintf(os.Stderr, "e2e: %d pods bound in %s, p50 %.0f ms, p99 %.0f ms, events of %d\n",
		len(measured), r.wall.Round(time.Millisecond), r.percentile(50), r.percentile(99), r.events)
	return r, err
}
