package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestDevicesAreListedInOrderOfNumber(t *testing.T) {
	dev := t.TempDir()
	for _, name := range []string{"nvidia10", "nvidia2", "nvidiactl", "null"} {
		if err := os.WriteFile(filepath.Join(dev, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{filepath.Join(dev, "nvidia2"), filepath.Join(dev, "nvidia10")}
	if got := devices(dev); !slices.Equal(got, want) {
		t.Errorf("devices = %v, want %v", got, want)
	}
	if got := devices(t.TempDir()); !slices.Equal(got, []string{"(none)"}) {
		t.Errorf("devices of an empty folder = %v, want (none)", got)
	}
}

func TestWorkReportsAndStopsWhenTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		var reports []uint64
		steps := work(ctx, func(n uint64) { reports = append(reports, n) })
		if len(reports) != 2 {
			t.Errorf("reports = %v, want two in 25 s", reports)
		}
		if steps < 245 || steps > 250 {
			t.Errorf("steps = %d, want about 250 in 25 s", steps)
		}
	})
}
