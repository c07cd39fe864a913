// Trace measures what tracing costs: how many pods per second the real gateway and scheduler create and bind on a
// simulated cluster, with tracing off, with one trace in a hundred, and with every trace recorded and kept by `up`. It
// prints a table and appends JSON lines to trace.jsonl.
//
// It needs what `make build` makes, and must run in the repository's root. It needs no root.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"trireme.dev/kit/daemon"
)

// result is one line of trace.jsonl, in the form of core.jsonl.
type result struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Limit is the throughput with tracing off; 0 where it is that itself.
	Limit float64 `json:"limit"`
	Ratio float64 `json:"ratio"`
}

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
	var results []result
	off := median(rates["off"])
	for _, s := range settings() {
		r := result{Name: "trace.pods_per_s_" + s.name, Value: median(rates[s.name]), Unit: "1/s"}
		if s.name != "off" {
			r.Limit, r.Ratio = off, r.Value/off
		}
		results = append(results, r)
	}
	results = append(results, result{Name: "trace.spans_dropped_100pct", Value: lost, Unit: "spans"})
	return report(out, results)
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

func report(out string, results []result) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tVALUE\tUNIT\tOFF\tRATIO")
	for _, r := range results {
		limit, ratio := "-", "-"
		if r.Limit > 0 {
			limit, ratio = fmt.Sprintf("%.1f", r.Limit), fmt.Sprintf("%.2f", r.Ratio)
		}
		fmt.Fprintf(w, "%s\t%.1f\t%s\t%s\t%s\n", r.Name, r.Value, r.Unit, limit, ratio)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(out, "trace.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
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
