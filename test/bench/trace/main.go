// Trace measures what tracing costs: how many pods per second the real gateway and scheduler create and bind on a
// simulated cluster, with tracing off, with one trace in a hundred, and with every trace recorded and kept by `up`. It
// prints a table and appends JSON lines to trace.jsonl.
//
// It needs what `make build` makes, and must run in the repository's root. It needs no root.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"trireme.dev/kit/daemon"
	"trireme.dev/test/bench/internal/measure"
)

// setting is one way to trace.
type setting struct {
	name string
	env  []string
}

func settings() []setting {
	return []setting{
		{"off", []string{"OTEL_SDK_DISABLED=true"}},
		{"1pct", []string{"OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01"}},
		{"100pct", []string{"OTEL_TRACES_SAMPLER=always_on"}},
	}
}

func main() {
	out := flag.String("out", "build/bench", "`folder` of trace.jsonl")
	binary := flag.String("binary", "bin/trireme", "the `program` to measure")
	w := workload{}
	flag.IntVar(&w.pods, "pods", 2000, "pods to create and bind in one run")
	flag.IntVar(&w.nodes, "nodes", 50, "simulated nodes")
	runs := flag.Int("runs", 5, "runs of each setting; their median counts")
	flag.Parse()
	daemon.Main(func(ctx context.Context) error {
		var err error
		if w.binary, err = filepath.Abs(*binary); err != nil {
			return err
		}
		return run(ctx, w, *runs, *out)
	})
}

func run(ctx context.Context, w workload, runs int, out string) error {
	rates, lost := map[string][]float64{}, 0.0
	// One of each after the other, so that what the machine does beside concerns them alike.
	for i := range runs {
		for _, s := range settings() {
			m, err := w.measure(ctx, s.env)
			if err != nil {
				return fmt.Errorf("tracing %s: %w", s.name, err)
			}
			fmt.Fprintf(os.Stderr, "run %d, %s: %.0f pods/s\n", i+1, s.name, m.podsPerSecond)
			rates[s.name] = append(rates[s.name], m.podsPerSecond)
			if s.name == "100pct" {
				lost = max(lost, float64(m.dropped))
			}
		}
	}
	var results measure.Results
	off := median(rates["off"])
	for _, s := range settings() {
		limit := off
		if s.name == "off" {
			limit = 0
		}
		results.Add("trace.pods_per_s_"+s.name, median(rates[s.name]), "1/s", limit)
	}
	results.Add("trace.spans_dropped_100pct", lost, "spans", 0)
	return results.Report(filepath.Join(out, "trace.jsonl"), "OFF")
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
