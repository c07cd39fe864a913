package loop_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"trireme.dev/kit/loop"
)

// runs records when fn is called during the first hour.
func runs(t *testing.T, cfg loop.Config, fn func(n int) error) []time.Duration {
	t.Helper()
	var at []time.Duration
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		err := loop.Every(ctx, cfg, func(context.Context) error {
			at = append(at, time.Since(start))
			return fn(len(at))
		})
		if err != nil {
			t.Errorf("Every = %v, want nil", err)
		}
		if got := time.Since(start); got != time.Hour {
			t.Errorf("Every returned after %s, want 1h", got)
		}
	})
	return at
}

func TestEveryRunsAtOnceAndThenEachPeriod(t *testing.T) {
	at := runs(t, loop.Config{Name: "x", Period: 25 * time.Minute}, func(int) error { return nil })
	want := []time.Duration{0, 25 * time.Minute, 50 * time.Minute}
	if len(at) != 3 || at[0] != want[0] || at[1] != want[1] || at[2] != want[2] {
		t.Errorf("ran at %v, want %v", at, want)
	}
}

func TestEveryDelaysTheFirstRun(t *testing.T) {
	at := runs(t, loop.Config{Name: "x", Period: 25 * time.Minute, Delay: 40 * time.Minute}, func(int) error { return nil })
	if len(at) != 1 || at[0] != 40*time.Minute {
		t.Errorf("ran at %v, want 40m once", at)
	}
}

func TestEveryJitterOnlyLengthens(t *testing.T) {
	at := runs(t, loop.Config{Name: "x", Period: time.Minute, Jitter: 0.5}, func(int) error { return nil })
	distinct := map[time.Duration]bool{}
	for i := 1; i < len(at); i++ {
		pause := at[i] - at[i-1]
		if pause < time.Minute || pause > 90*time.Second {
			t.Errorf("pause %s, want between 1m and 1m30s", pause)
		}
		distinct[pause] = true
	}
	if len(distinct) < 2 {
		t.Errorf("all %d pauses are equal, want them spread", len(at)-1)
	}
}

func TestEverySurvivesErrorsAndPanics(t *testing.T) {
	var log bytes.Buffer
	cfg := loop.Config{Name: "relist", Period: 16 * time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	at := runs(t, cfg, func(n int) error {
		switch n {
		case 1:
			return errors.New("first went wrong")
		case 2:
			panic("second went worse")
		}
		return nil
	})
	if len(at) != 4 {
		t.Errorf("ran %d times, want 4", len(at))
	}
	for _, want := range []string{"loop=relist", "first went wrong", "second went worse"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log lacks %q:\n%s", want, &log)
		}
	}
}

func TestEveryRefusesNoPeriod(t *testing.T) {
	err := loop.Every(t.Context(), loop.Config{Name: "x"}, func(context.Context) error { return nil })
	if err == nil {
		t.Error("Every accepted a period of zero")
	}
}
