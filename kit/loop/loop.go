// Package loop owns periodic work: nothing else in this repository sleeps. It never decides what to do
// when; loops that react to events wait on channels instead.
package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"trireme.dev/client/metrics"
	"trireme.dev/kit/telemetry"
)

// Config says when a loop runs.
type Config struct {
	// Name identifies the loop in logs and errors.
	Name string
	// Period is the pause between the end of one run and the start of the next. Required.
	Period time.Duration
	// Jitter lengthens each pause by a random part of Period, from 0 up to this fraction, so that many
	// processes started together do not stay in step.
	Jitter float64
	// Delay postpones the first run, which otherwise happens at once.
	Delay time.Duration
	// Logger receives the errors of failed runs. Nil means slog.Default.
	Logger *slog.Logger
}

// Every calls fn, pauses, and calls it again until ctx is done, then returns nil. Runs never overlap. An
// error or a panic of fn is logged and does not end the loop: the next run is the retry.
func Every(ctx context.Context, cfg Config, fn func(ctx context.Context) error) error {
	if cfg.Period <= 0 {
		return fmt.Errorf("loop %s: period %s, want more than zero", cfg.Name, cfg.Period)
	}
	logger := cfg.Logger
	if logger == nil {
		logger = slog.Default()
	}

	runs := metrics.Counter("trireme_loop_runs_total", "Runs of a periodic loop, by result: success or error.")
	succeeded := metrics.Labels("loop", cfg.Name, "result", "success")
	failed := metrics.Labels("loop", cfg.Name, "result", "error")
	var last atomic.Int64
	defer metrics.Gauge("trireme_loop_last_run_timestamp_seconds", "When a periodic loop last ended a run, in seconds since the epoch; 0 before it has.",
		func(report func(float64, ...string)) {
			report(time.Duration(last.Load()).Seconds(), "loop", cfg.Name)
		})()
	timer := time.NewTimer(cfg.Delay)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		// Both may be ready at once, and select chooses by chance.
		if ctx.Err() != nil {
			return nil
		}
		err := once(ctx, fn)
		last.Store(time.Now().UnixNano())
		result := succeeded
		if err != nil {
			result = failed
		}
		runs.Add(ctx, 1, result)
		if err != nil && !(ctx.Err() != nil && errors.Is(err, context.Canceled)) {
			logger.LogAttrs(ctx, slog.LevelError, "periodic run failed",
				slog.String(telemetry.KeyLoop, cfg.Name), slog.Any(telemetry.KeyError, err))
		}
		timer.Reset(cfg.Period + time.Duration(rand.Float64()*cfg.Jitter*float64(cfg.Period)))
	}
}

func once(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(ctx)
}
