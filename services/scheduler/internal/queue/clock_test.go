package queue

import (
	"testing"
	"time"
)

// TestDeadlinesAreMonotonic: whatever the wall clock does, backoffs, flushes and reports come when they are due, because every
// time that is compared with another bears a reading of the clock that does not jump.
func TestDeadlinesAreMonotonic(t *testing.T) {
	q := newQueue(nil)
	monotonic := func(what string, at time.Time) {
		t.Helper()
		if at == at.Round(0) { // Round(0) is what takes the reading away
			t.Errorf("%s is %s, without a reading of the monotonic clock", what, at)
		}
	}
	q.Add(pod("rejected", ""), time.Now())
	popped, _ := pop(q)
	q.Done(popped, Outcome{Rejected: true, Plugins: []string{"Fit"}})
	for e := range q.pool {
		monotonic("the time of an attempt", e.view.Timestamp)
		monotonic("the end of a backoff", e.until)
	}
	monotonic("the next flush", q.flushAt)

	q.Add(pod("failed", ""), time.Now())
	popped, _ = pop(q)
	q.Done(popped, Outcome{Failed: true})
	for _, e := range q.failed.items {
		monotonic("the end of an error's backoff", e.until)
	}

	q.Add(pod("gated", "", gates("example.com/x")), time.Now())
	for _, due := range q.unsaid {
		monotonic("a report of a gate", due)
	}
	if len(q.pool) != 2 || q.failed.Len() != 1 || len(q.unsaid) != 1 {
		t.Fatalf("%d in the pool, %d failed, %d gated: the test looks at nothing", len(q.pool), q.failed.Len(), len(q.unsaid))
	}
}

func TestDown(t *testing.T) {
	for _, at := range []time.Time{time.Now(), time.Unix(100, 999_999_999), time.Unix(100, 0)} {
		for _, to := range []time.Duration{time.Second, flushPeriod} {
			if got, want := down(at, to), at.Truncate(to); !got.Equal(want) {
				t.Errorf("down(%s, %s) = %s, want %s", at, to, got, want)
			}
		}
	}
}
