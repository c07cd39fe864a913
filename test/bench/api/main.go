// Api is the load driver of the gateway: it creates nodes and pods from many writers, watches them from many clients,
// lists them, and prints what the gateway makes of it, beside what lies below: raw etcd and raw gRPC streams on the same
// machine in the same run. It appends the figures to api.jsonl.
//
// Pointed at an address it drives the gateway there; objects that it makes are in namespaces of its own and stay. Without
// one it starts etcd and a gateway of its own, in processes apart, with mutual TLS, and takes them away at the end; it must
// then run in the repository's root.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"trireme.dev/kit/daemon"
	"trireme.dev/kit/rpc"
	"trireme.dev/test/bench/internal/local"
	"trireme.dev/test/bench/internal/measure"
)

// config is what the flags say.
type config struct {
	client       rpc.ClientConfig
	out          string
	pid, etcdPID int
	binaries     local.Binaries

	nodes, pods, writers, watchers, nodeWatchers, lists int

	step, settle time.Duration
	rates, most  int
	only         string
	neverRead    int
}

func main() {
	var c config
	flag.StringVar(&c.client.Address, "apiserver", "", "`address` of the gateway: host:port or unix:///path; empty starts one")
	flag.StringVar(&c.client.CertFile, "cert", "", "`file` with the client's certificate")
	flag.StringVar(&c.client.KeyFile, "key", "", "`file` with its key")
	flag.StringVar(&c.client.CAFile, "ca", "", "`file` with the cluster's CA")
	flag.BoolVar(&c.client.InsecureTCP, "insecure", false, "speak TCP without TLS")
	flag.IntVar(&c.pid, "pid", 0, "process `number` of the gateway, for its memory and processor time; 0 leaves those out")
	flag.StringVar(&c.binaries.Etcd, "etcd", "build/tools/etcd", "etcd's `binary`, where no address is given")
	flag.StringVar(&c.binaries.Gateway, "gateway", "build/bench/apiserver", "the gateway's `binary`, where no address is given")
	flag.StringVar(&c.out, "out", "build/bench", "`folder` of api.jsonl")
	flag.IntVar(&c.nodes, "nodes", 5000, "nodes present")
	flag.IntVar(&c.pods, "pods", 11000, "pods present when they are listed")
	flag.IntVar(&c.writers, "writers", 32, "writers that create pods at once")
	flag.IntVar(&c.watchers, "watchers", 100, "watchers of all pods, each with a connection of its own")
	flag.IntVar(&c.neverRead, "never-read", 0, "watchers of all pods beside them that never read what they are sent")
	flag.IntVar(&c.nodeWatchers, "node-watchers", 5000, "most watchers of one node's pods each")
	flag.IntVar(&c.lists, "lists", 9, "lists, of which the median counts")
	flag.DurationVar(&c.step, "step", 6*time.Second, "how long each rate is held")
	flag.DurationVar(&c.settle, "settle", 100*time.Second, "how long the gateway is left alone after the load before its memory is read: longer than it keeps young history")
	flag.IntVar(&c.rates, "rates", 100, "creates a second at which the fan-out starts; each rate is a quarter above the one before")
	flag.IntVar(&c.most, "most", 0, "creates a second at which the fan-out ends; 0 to go on until the watchers fall behind")
	flag.StringVar(&c.only, "only", "", "`steps` to do, separated by commas, in this order: etcd, ceilings, idle, nodes, creates, lists, memory, nodewatch, fanout; empty for all; without nodes the namespace is missing")
	flag.Parse()
	if os.Getenv("GOGC") == "" {
		// A hundred clients in one process throw away what they decode. Twice as rarely as by default costs them a third less; more
		// rarely still costs more, because memory that is touched for the first time is dear.
		debug.SetGCPercent(200)
	}
	daemon.Main(func(ctx context.Context) error { return run(ctx, c) })
}

func run(ctx context.Context, c config) (err error) {
	var results measure.Results
	var puts float64
	if c.client.Address == "" {
		if c.wants("etcd") {
			if puts, err = measure.GoBenchmark(ctx, "services/apiserver", "./internal/storage/etcd", "", "BenchmarkTxnPut", "puts/s"); err != nil {
				return err
			}
		}
		l, err := local.Start(ctx, c.binaries)
		if err != nil {
			return err
		}
		defer l.Stop()
		c.client, c.pid, c.etcdPID = l.Client, l.Gateway.PID(), l.Etcd.PID()
	}
	d := &driver{config: c, run: fmt.Sprintf("bench-%x", time.Now().UnixNano()&0xffffff)}
	defer d.close()
	if d.conn, err = d.dial(); err != nil {
		return err
	}
	var ceilings ceilings
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"ceilings", func(ctx context.Context) error {
			var err error
			ceilings, err = measureCeilings(ctx, c.watchers)
			return err
		}},
		{"idle", func(ctx context.Context) error { return d.memory(ctx, &results, "api.rss_idle_mb", 10*time.Second) }},
		{"nodes", d.createNodes},
		{"creates", func(ctx context.Context) error {
			rate, err := d.createPods(ctx)
			results.Add("api.create_per_s", rate, "1/s", puts)
			return err
		}},
		{"lists", func(ctx context.Context) error { return d.list(ctx, &results) }},
		{"memory", func(ctx context.Context) error { return d.memory(ctx, &results, "api.rss_11k_mb", d.settle) }},
		{"nodewatch", func(ctx context.Context) error { return d.watchNodes(ctx, &results) }},
		{"fanout", func(ctx context.Context) error { return d.fanOut(ctx, &results, ceilings.single) }},
	}
	for _, s := range steps {
		if !c.wants(s.name) {
			continue
		}
		begin := time.Now()
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %s\n", s.name, time.Since(begin).Round(time.Millisecond))
	}
	if ceilings.single > 0 {
		results.Add("grpc.streams_events_per_s", ceilings.single, "1/s", 0)
		results.Add("grpc.streams_batched_events_per_s", ceilings.batched, "1/s", 0)
	}
	if puts > 0 {
		results.Add("etcd.txn_put_per_s", puts, "1/s", 0)
	}
	return results.Report(filepath.Join(c.out, "api.jsonl"), "LIMIT")
}

// wants reports whether a step is to be done.
func (c *config) wants(step string) bool {
	return c.only == "" || slices.Contains(strings.Split(c.only, ","), step)
}

// driver drives one gateway.
type driver struct {
	config
	run   string // names what this run makes
	conn  *grpc.ClientConn
	conns []*grpc.ClientConn
}

func (d *driver) dial() (*grpc.ClientConn, error) {
	conn, err := rpc.Dial(d.client)
	if err == nil {
		d.conns = append(d.conns, conn)
	}
	return conn, err
}

func (d *driver) close() {
	for _, c := range d.conns {
		_ = c.Close() // nothing is left to be lost
	}
}
