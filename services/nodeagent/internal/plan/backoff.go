package plan

import "time"

// The back-offs of Kubernetes.
const (
	InitialBackoff = 10 * time.Second
	MaxBackoff     = 300 * time.Second
	// backoffReset is how long a key must have been quiet for its back-off to begin anew.
	backoffReset = 2 * MaxBackoff
)

// Backoff remembers how long to wait before something that failed is tried again. It has no clock: callers say when
// now is. The zero value is ready; it is not safe for concurrent use.
type Backoff struct{ entries map[string]backoffEntry }

type backoffEntry struct {
	delay   time.Duration
	updated time.Time
}

// Wait returns until when to wait after a failure at the time given, and the delay that this follows from. Both are
// zero where there is nothing to wait for.
func (b *Backoff) Wait(key string, failed time.Time) (until time.Time, delay time.Duration) {
	e, ok := b.entries[key]
	if !ok || failed.Sub(e.updated) > backoffReset {
		return time.Time{}, 0
	}
	return failed.Add(e.delay), e.delay
}

// WaitSinceUpdate is Wait after the last call of Next.
func (b *Backoff) WaitSinceUpdate(key string) (until time.Time, delay time.Duration) {
	e, ok := b.entries[key]
	if !ok {
		return time.Time{}, 0
	}
	return e.updated.Add(e.delay), e.delay
}

// Next lengthens the wait after a failure at the time given: another try is about to be made, or has just failed.
func (b *Backoff) Next(key string, failed, now time.Time) {
	e, ok := b.entries[key]
	switch {
	case !ok || failed.Sub(e.updated) > backoffReset:
		e.delay = InitialBackoff
	default:
		e.delay = min(2*e.delay, MaxBackoff)
	}
	e.updated = now
	if b.entries == nil {
		b.entries = map[string]backoffEntry{}
	}
	b.entries[key] = e
}

// Forget begins a key anew.
func (b *Backoff) Forget(key string) { delete(b.entries, key) }
