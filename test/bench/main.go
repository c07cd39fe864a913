// Bench measures a real cluster of one node: how fast it comes up, how fast a pod starts, what it holds in memory, and
// how fast etcd writes; each beside the limit of what lies below it, measured in the same run. It prints a table and
// appends JSON lines to core.jsonl.
//
// It needs root and what `make build runtimes images` makes, and must run in the repository's root.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"trireme.dev/kit/daemon"
)

// result is one line of core.jsonl.
type result struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Limit is what lies below, in the same unit; 0 where nothing does.
	Limit float64 `json:"limit"`
	// Ratio of value to limit; 0 without a limit.
	Ratio float64 `json:"ratio"`
}

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
	var results []result
	add := func(name string, value float64, unit string, limit float64) {
		r := result{Name: name, Value: value, Unit: unit, Limit: limit}
		if limit > 0 {
			r.Ratio = value / limit
		}
		results = append(results, r)
	}
	puts, err := goBenchmark(ctx, "services/apiserver", "./internal/storage/etcd", "", "BenchmarkTxnPut", "puts/s")
	if err != nil {
		return err
	}
	bare, err := goBenchmark(ctx, "services/nodeagent", "./internal/runtime/containerd", "realruntime", "BenchmarkBare", "start-ms")
	if err != nil {
		return err
	}
	m, err := measureCluster(ctx, starts)
	if err != nil {
		return err
	}
	add("up.node_ready_s", m.nodeReady.Seconds(), "s", 0)
	add("up.first_pod_running_s", m.firstPod.Seconds(), "s", 0)
	add("pod.start_p50_ms", float64(m.startP50.Microseconds())/1000, "ms", bare)
	add("idle.pss_mb", m.idlePSS, "MB", 0)
	add("etcd.txn_put_per_s", puts, "1/s", 0)
	return report(out, results)
}

// report prints the table and appends the lines.
func report(out string, results []result) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tVALUE\tUNIT\tLIMIT\tRATIO")
	for _, r := range results {
		limit, ratio := "-", "-"
		if r.Limit > 0 {
			limit, ratio = fmt.Sprintf("%.1f", r.Limit), fmt.Sprintf("%.2f", r.Ratio)
		}
		fmt.Fprintf(w, "%s\t%.2f\t%s\t%s\t%s\n", r.Name, r.Value, r.Unit, limit, ratio)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(out, "core.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(f)
	for _, r := range results {
		if err := lines.Encode(r); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}
