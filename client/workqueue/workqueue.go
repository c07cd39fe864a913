// Package workqueue is the queue between informers and reconcilers: it holds keys, not objects, and a key that is
// added ten times before a worker gets to it is worked on once.
//
//	        Add                    Get                   Done
//	idle ─────────▶ waiting (dirty) ────▶ processing ─────────▶ idle
//	                    ▲                     │ Add: dirty too
//	                    └──────── Done ───────┘
//
// A key being processed is never handed to a second worker. It never runs anything and starts no goroutine.
package workqueue

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// ErrClosed is what Get returns once the queue is closed.
var ErrClosed = errors.New("work queue is closed")

// Config bounds how often a failing key is tried. A zero field takes its default.
type Config struct {
	// Name in metrics; a queue without one has none.
	Name string
	// BaseDelay before the first retry of a key; each further one waits twice as long. 5 ms.
	BaseDelay time.Duration
	// MaxDelay between retries of a key. 1000 s.
	MaxDelay time.Duration
	// Rate of retries of all keys together, per second. 10.
	Rate float64
	// Burst of retries of all keys together. 100.
	Burst int
}

func (c Config) withDefaults() Config {
	if c.BaseDelay == 0 {
		c.BaseDelay = 5 * time.Millisecond
	}
	if c.MaxDelay == 0 {
		c.MaxDelay = 1000 * time.Second
	}
	if c.Rate == 0 {
		c.Rate = 10
	}
	if c.Burst == 0 {
		c.Burst = 100
	}
	return c
}

// Queue holds keys to be worked on, in the order in which they were added. It is safe for concurrent use.
type Queue[K comparable] struct {
	config Config
	bucket *rate.Limiter
	// ready holds a token while waiting keys may be unclaimed: a getter that takes it and leaves keys puts it back.
	ready  chan struct{}
	closed chan struct{}

	mu         sync.Mutex
	waiting    []K
	dirty      map[K]time.Time // since when
	processing map[K]turn
	failures   map[K]int
	delayed    delayHeap[K]
	delayedAt  map[K]*delayedKey[K]
	timer      *time.Timer
	measured   *measured // nil without a name
}

// turn is the time that a key waited for a worker and has had one.
type turn struct{ added, begun time.Time }

// New returns an empty queue.
func New[K comparable](config Config) *Queue[K] {
	config = config.withDefaults()
	q := &Queue[K]{
		config:     config,
		bucket:     rate.NewLimiter(rate.Limit(config.Rate), config.Burst),
		ready:      make(chan struct{}, 1),
		closed:     make(chan struct{}),
		dirty:      map[K]time.Time{},
		processing: map[K]turn{},
		failures:   map[K]int{},
		delayedAt:  map[K]*delayedKey[K]{},
	}
	if config.Name != "" {
		q.measured = measure(config.Name, q.work)
	}
	return q
}

// Add asks for the key to be worked on. It does nothing where the key waits already.
func (q *Queue[K]) Add(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(key)
}

func (q *Queue[K]) add(key K) {
	if _, ok := q.dirty[key]; ok || q.isClosed() {
		return
	}
	q.dirty[key] = time.Now()
	q.measured.add()
	if _, ok := q.processing[key]; ok {
		return // Done will queue it.
	}
	q.push(key)
}

func (q *Queue[K]) push(key K) {
	q.waiting = append(q.waiting, key)
	q.signal()
}

func (q *Queue[K]) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Get waits for a key and hands it to the caller, who must call Done with it. The error is that of ctx, or ErrClosed.
func (q *Queue[K]) Get(ctx context.Context) (K, error) {
	var zero K
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	for {
		if q.isClosed() {
			return zero, ErrClosed
		}
		if key, ok := q.take(); ok {
			return key, nil
		}
		select {
		case <-q.ready:
			// ctx is not looked at before take: a token taken must be used, or another getter sleeps on.
		case <-q.closed:
		case <-ctx.Done():
			return zero, ctx.Err()
		}
	}
}

func (q *Queue[K]) take() (K, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var zero K
	if len(q.waiting) == 0 {
		return zero, false
	}
	key := q.waiting[0]
	q.waiting[0] = zero
	q.waiting = q.waiting[1:]
	t := turn{added: q.dirty[key], begun: time.Now()}
	delete(q.dirty, key)
	q.processing[key] = t
	q.measured.take(t)
	if len(q.waiting) > 0 {
		q.signal()
	}
	return key, true
}

// Done says that the caller has finished with a key that Get handed to it. A key added meanwhile waits again.
func (q *Queue[K]) Done(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t, ok := q.processing[key]
	if !ok {
		return
	}
	delete(q.processing, key)
	q.measured.done(t)
	if _, ok := q.dirty[key]; ok && !q.isClosed() {
		q.push(key)
	}
}

// Added is when the key that is being processed was added; zero for one that is not.
func (q *Queue[K]) Added(key K) time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.processing[key].added
}

// work says how many keys wait, and for how long those in hand have been, all together and the longest of them.
func (q *Queue[K]) work() (depth int, unfinished, longest time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.processing {
		took := time.Since(t.begun)
		unfinished += took
		longest = max(longest, took)
	}
	return len(q.waiting), unfinished, longest
}

// Len is how many keys wait; those being processed and those delayed don't count.
func (q *Queue[K]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// Close drops all that waits and ends every Get. Nothing can be added afterwards.
func (q *Queue[K]) Close() {
	q.close()
	q.measured.stop()
}

func (q *Queue[K]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isClosed() {
		return
	}
	close(q.closed)
	q.waiting, q.delayed = nil, nil
	clear(q.dirty)
	clear(q.delayedAt)
	if q.timer != nil {
		q.timer.Stop()
	}
}

func (q *Queue[K]) isClosed() bool {
	select {
	case <-q.closed:
		return true
	default:
		return false
	}
}

// AddRateLimited adds the key after a delay that doubles with each call until Forget, or that all retries together
// impose, whichever is longer.
func (q *Queue[K]) AddRateLimited(key K) {
	q.mu.Lock()
	delay := q.config.MaxDelay
	// Beyond 62 doublings the shift would overflow.
	if n := q.failures[key]; n < 62 && q.config.BaseDelay <= q.config.MaxDelay>>n {
		delay = q.config.BaseDelay << n
	}
	q.failures[key]++
	q.measured.retry()
	q.mu.Unlock()
	q.AddAfter(key, max(delay, q.bucket.Reserve().Delay()))
}

// Forget ends the back-off of a key: its next failure is its first. A delayed add stays.
func (q *Queue[K]) Forget(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failures, key)
}

// Failures is how often AddRateLimited was called for the key since it was last forgotten.
func (q *Queue[K]) Failures(key K) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.failures[key]
}

// AddAfter adds the key once the time is over. Of several delayed adds of a key only the earliest counts.
func (q *Queue[K]) AddAfter(key K, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if delay <= 0 {
		q.add(key)
		return
	}
	if q.isClosed() {
		return
	}
	at := time.Now().Add(delay)
	if d, ok := q.delayedAt[key]; ok {
		if !at.Before(d.at) {
			return
		}
		d.at = at
		heap.Fix(&q.delayed, d.index)
	} else {
		d = &delayedKey[K]{key: key, at: at}
		q.delayedAt[key] = d
		heap.Push(&q.delayed, d)
	}
	q.schedule()
}

// schedule sets the one timer to the earliest delayed key.
func (q *Queue[K]) schedule() {
	if len(q.delayed) == 0 {
		return
	}
	wait := time.Until(q.delayed[0].at)
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, q.release)
		return
	}
	q.timer.Reset(wait)
}

// release adds the delayed keys whose time has come.
func (q *Queue[K]) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for len(q.delayed) > 0 && !q.delayed[0].at.After(now) {
		d, _ := heap.Pop(&q.delayed).(*delayedKey[K])
		delete(q.delayedAt, d.key)
		q.add(d.key)
	}
	q.schedule()
}

type delayedKey[K comparable] struct {
	key   K
	at    time.Time
	index int
}

// delayHeap has the earliest key on top.
type delayHeap[K comparable] []*delayedKey[K]

func (h delayHeap[K]) Len() int           { return len(h) }
func (h delayHeap[K]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h delayHeap[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for package heap.
func (h *delayHeap[K]) Push(x any) {
	d, _ := x.(*delayedKey[K])
	d.index = len(*h)
	*h = append(*h, d)
}

// Pop is for package heap.
func (h *delayHeap[K]) Pop() any {
	old := *h
	d := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return d
}
