package apiserver

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"trireme.dev/kit/loop"
)

const (
	// gcIdle makes the collector run before the heap has grown by half. Most of it is the watch cache, which stays: Go's own
	// measure would hold as much again in reserve.
	gcIdle = 50
	// gcBusy is for as long as requests throw away so much that the collector would run several times a second, a sixth of all the
	// gateway computes. Beyond it, memory that is touched for the first time costs more than collecting.
	gcBusy = 200
	// collectorPeriod is how often it is asked which of them it is.
	collectorPeriod = time.Second
	// often is how many collections in a period are too many.
	often = 2
	// quietPeriods without a collection end the busy time.
	quietPeriods = 10
)

// collector chooses how far the heap may grow.
type collector struct {
	seen  uint64 // collections so far
	busy  bool
	quiet int // periods without a collection
}

// next is told how many collections there have been and returns whether the choice has changed.
func (c *collector) next(collections uint64) (changed bool) {
	since := collections - c.seen
	c.seen = collections
	c.quiet++
	if since > 0 {
		c.quiet = 0
	}
	switch {
	case !c.busy && since >= often, c.busy && c.quiet >= quietPeriods:
		c.busy = !c.busy
		return true
	}
	return false
}

// collect chooses until ctx ends. GOGC replaces it.
func collect(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	debug.SetGCPercent(gcIdle)
	count := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	read := func() uint64 {
		metrics.Read(count)
		return count[0].Value.Uint64()
	}
	c := collector{seen: read()}
	return loop.Every(ctx, loop.Config{Name: "collector", Period: collectorPeriod, Delay: collectorPeriod}, func(context.Context) error {
		if !c.next(read()) {
			return nil
		}
		if c.busy {
			debug.SetGCPercent(gcBusy)
			return nil
		}
		debug.SetGCPercent(gcIdle)
		debug.FreeOSMemory() // what the busy time took
		c.seen = read()
		return nil
	})
}
