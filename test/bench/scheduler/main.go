// Scheduler measures the scheduler: end to end, with etcd and gateway, and its chain in memory, without them: queue, cache,
// cycles over all nodes, and bindings that are confirmed as a watch would. It prints pods per second of the clock and processor
// time per pod, and appends both to scheduler.jsonl.
//
// Each workload is a file; -run chooses among them by name. It must run in the repository's root.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"

	"trireme.dev/kit/daemon"
	"trireme.dev/test/bench/internal/local"
	"trireme.dev/test/bench/internal/measure"
)

// workload is a way to load the scheduler.
type workload struct {
	name string
	// run adds results.
	run func(context.Context, *bench) error
}

// workloads lists them in the order in which they are run.
func workloads() []workload {
	return []workload{
		{"e2e", endToEnd},
		{"basic", basic},
		{"diverse", diverse},
		{"gpu", gpu},
		{"growth", growth},
		{"unschedulable", unschedulable},
		{"quality", quality},
		{"preemption", preemption},
		{"spread", topology("spread", 5000, 5000, 5000, zoneSpread)},
		{"antiaffinity", topology("antiaffinity", 1000, 2000, 4000, hostAntiAffinity)},
		{"affinity", topology("affinity", 5000, 5000, 4000, zoneAffinity)},
		{"preferred_affinity", topology("preferred_affinity", 5000, 5000, 2000, hostPreference)},
		{"gang_3000x3", gangs(3, 3000, rack)},
		{"gang_9x1000", gangs(1000, 9, rack)},
		{"gang_10x5000", gangs(5000, 10, zone)},
		{"gang1000", gang1000},
		{"gang_preemption", gangPreemption("gang_preemption", "")},
		{"gang_preemption_rack", gangPreemption("gang_preemption_rack", rack)},
	}
}

// bench is what workloads share.
type bench struct {
	results measure.Results
	seed    uint64
	// scale divides the numbers of pods, for a quick look.
	scale int
	// times multiplies them, for a long profile.
	times int
	// record is a file for what the scheduler sees and decides, of the last workload; empty for none.
	record string
	// binaries are run where all of it is.
	binaries local.Binaries
	// chosen and best are sums of scores, of the nodes that pods went to and of the best there were, over all workloads.
	chosen, best int64
}

func main() {
	out := flag.String("out", "build/bench", "`folder` of scheduler.jsonl")
	which := flag.String("run", ".", "`pattern` of the workloads to run")
	profile := flag.String("cpuprofile", "", "`file` for a processor profile")
	memory := flag.String("memprofile", "", "`file` for a profile of all allocations")
	b := bench{}
	flag.Uint64Var(&b.seed, "seed", 0, "`number` that says where ties between nodes begin")
	flag.IntVar(&b.scale, "scale", 1, "divides the numbers of pods, for a quick look")
	flag.IntVar(&b.times, "times", 1, "multiplies them, for a long profile")
	flag.StringVar(&b.record, "record", "", "`file` for a record of the last workload")
	flag.StringVar(&b.binaries.Etcd, "etcd", "build/tools/etcd", "etcd's `binary`")
	flag.StringVar(&b.binaries.Gateway, "gateway", "build/bench/apiserver", "the gateway's `binary`")
	flag.StringVar(&b.binaries.Scheduler, "scheduler", "build/bench/scheduler", "the scheduler's `binary`")
	flag.Parse()
	daemon.Main(func(ctx context.Context) error { return b.main(ctx, *out, *which, *profile, *memory) })
}

func (b *bench) main(ctx context.Context, out, which, profile, memory string) error {
	chosen, err := regexp.Compile(which)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if memory != "" {
		runtime.MemProfileRate = 512
		defer func() {
			runtime.GC() // the profile is of the time up to the last one
			if f, err := os.Create(memory); err == nil {
				_ = pprof.Lookup("allocs").WriteTo(f, 0)
				_ = f.Close()
			}
		}()
	}
	for _, w := range workloads() {
		if !chosen.MatchString(w.name) {
			continue
		}
		if err := w.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	if b.best > 0 {
		b.results.Add("sched.quality", float64(b.chosen)/float64(b.best), "of the best score, over all that is above", 1)
	}
	return b.results.Report(filepath.Join(out, "scheduler.jsonl"), "TO REACH")
}
