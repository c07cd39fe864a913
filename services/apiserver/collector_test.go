package apiserver

import "testing"

// TestCollectorFollowsLoad: many collections in a second let the heap grow, and only ten seconds without any end that.
func TestCollectorFollowsLoad(t *testing.T) {
	var c collector
	collections := uint64(0)
	for i, step := range []struct {
		collections uint64 // in a period
		periods     int
		busy        bool
	}{
		{collections: 1, periods: 60}, // a little work
		{collections: often, periods: 1, busy: true},
		{collections: 1, periods: 20, busy: true}, // less of them, because there is more room
		{periods: quietPeriods - 1, busy: true},   // a pause
		{collections: 1, periods: 1, busy: true},  // which ends
		{periods: quietPeriods - 1, busy: true},
		{periods: 1},
		{periods: 60},
		{collections: 7, periods: 1, busy: true},
	} {
		for range step.periods {
			collections += step.collections
			was := c.busy
			if changed := c.next(collections); changed != (c.busy != was) {
				t.Errorf("step %d: changed %v, busy %v after %v", i, changed, c.busy, was)
			}
		}
		if c.busy != step.busy {
			t.Fatalf("step %d: busy %v, want %v", i, c.busy, step.busy)
		}
	}
}
