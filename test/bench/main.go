// Bench measures a real cluster of one node: how fast it comes up, how fast a pod starts, what it holds in memory, and
// how fast etcd writes; each beside the limit of what lies below it, measured in the same run. It prints a table and
// appends JSON lines to core.jsonl.
//
// It needs root and what `make build runtimes images` makes, and must run in the repository's root.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"

	"trireme.dev/kit/daemon"
	"trireme.dev/test/bench/internal/measure"
)

func main() {
	out := flag.String("out", "build/bench", "`folder` of core.jsonl")
	starts := flag.Int("starts", 60, "pods to start one after the other")
	flag.Parse()
	daemon.Main(func(ctx context.Context) error { return run(ctx, *out, *starts) })
}

func run(ctx context.Context, out string, starts int) error {
	if os.Geteuid() != 0 {
		return errors.New("bench starts real containers: run it as root")
	}
	var results measure.Results
	puts, err := measure.GoBenchmark(ctx, "services/apiserver", "./internal/storage/etcd", "", "BenchmarkTxnPut", "puts/s")
	if err != nil {
		return err
	}
	bare, err := measure.GoBenchmark(ctx, "services/nodeagent", "./internal/runtime/containerd", "realruntime", "BenchmarkBare", "start-ms")
	if err != nil {
		return err
	}
	m, err := measureCluster(ctx, starts)
	if err != nil {
		return err
	}
	results.Add("up.node_ready_s", m.nodeReady.Seconds(), "s", 0)
	results.Add("up.first_pod_running_s", m.firstPod.Seconds(), "s", 0)
	results.Add("pod.start_p50_ms", float64(m.startP50.Microseconds())/1000, "ms", bare)
	results.Add("idle.pss_mb", m.idlePSS, "MB", 0)
	results.Add("etcd.txn_put_per_s", puts, "1/s", 0)
	return results.Report(filepath.Join(out, "core.jsonl"), "LIMIT")
}
