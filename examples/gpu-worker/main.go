// Command gpu-worker is the workload of examples/gpu-gang.yaml: it says who it is and which GPUs it was given, then
// works until it is told to stop. It is one static file on an empty root, so that the example pulls no image.
//
// Its rank and the size of its gang come from RANK and WORLD_SIZE, which the manifest sets; its devices from
// NVIDIA_VISIBLE_DEVICES and from what stands in /dev.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"
)

// reportEvery is how often the worker says that it is still at work.
const reportEvery = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	host, err := os.Hostname()
	if err != nil {
		fmt.Fprintf(os.Stderr, "gpu-worker: %v\n", err)
		os.Exit(1)
	}
	rank, size := env("RANK", "0"), env("WORLD_SIZE", "1")
	fmt.Printf("rank %s of %s on %s\n", rank, size, host)
	fmt.Printf("NVIDIA_VISIBLE_DEVICES=%s\n", env("NVIDIA_VISIBLE_DEVICES", "(none)"))
	fmt.Printf("devices: %s\n", strings.Join(devices("/dev"), " "))

	start := time.Now()
	steps := work(ctx, func(steps uint64) {
		fmt.Printf("rank %s: %d steps in %s\n", rank, steps, time.Since(start).Round(time.Second))
	})
	fmt.Printf("rank %s: told to stop after %d steps\n", rank, steps)
}

// env is the value of a variable, or otherwise where it is unset or empty.
func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// devices lists the GPU nodes in a /dev folder, in order of number of digits and name: nvidia2 before nvidia10.
func devices(dev string) []string {
	found, err := filepath.Glob(filepath.Join(dev, "nvidia[0-9]*"))
	if err != nil || len(found) == 0 {
		return []string{"(none)"}
	}
	sort.Slice(found, func(i, j int) bool {
		if len(found[i]) != len(found[j]) {
			return len(found[i]) < len(found[j])
		}
		return found[i] < found[j]
	})
	return found
}

// work does a little arithmetic every 100 ms until ctx ends, reports every reportEvery, and returns its steps.
func work(ctx context.Context, report func(steps uint64)) uint64 {
	step, said := time.NewTicker(100*time.Millisecond), time.NewTicker(reportEvery)
	defer step.Stop()
	defer said.Stop()
	var steps uint64
	weight := 1.0
	for {
		select {
		case <-ctx.Done():
			return steps
		case <-said.C:
			report(steps)
		case <-step.C:
			for i := range 10_000 {
				weight += 1 / (weight + float64(i))
			}
			steps++
		}
	}
}
