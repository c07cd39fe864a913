package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"trireme.dev/client/apierr"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/storage"
)

// Random writers at two gateways; watchers with every sort of selector that are cut off at any response, resume at either
// gateway, lag and hit compaction; gateways that are stopped and cut off, and a store that is killed meanwhile. What each
// watcher was told must be what the store says has happened, event by event; replayed it must equal a list at the same
// revision, byte by byte, at either gateway; and what a writer was told must be there, once. Informers go through all of it
// and end with the state, as do their handlers.
//
// The choices follow from a seed, which is printed: -seed=N makes them again, though not the interleaving, which on the
// engine in memory is close to the same (testing/synctest). -duration=10m goes on with the seeds that follow.
func TestStreamsAreWhatHappened(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		rounds(t, 2*time.Second, func(t *testing.T, n uint64) report {
			var r report
			synctest.Test(t, func(t *testing.T) { r = playModel(t, newCluster(t, inMemory(t), nil), n, modelConfig{steps: 1500}) })
			return r
		})
	})
	t.Run("etcd", func(t *testing.T) {
		rounds(t, 0, func(t *testing.T, n uint64) report {
			return playModel(t, newCluster(t, ownProcess(t), nil), n, modelConfig{steps: 900})
		})
	})
}

// rounds plays with one seed after the other.
func rounds(t *testing.T, usual time.Duration, play func(*testing.T, uint64) report) {
	n := seed(t)
	var sum report
	for begin := time.Now(); ; n++ {
		failed := !t.Run(fmt.Sprint("seed=", n), func(t *testing.T) {
			r := play(t, n)
			for _, wrong := range r.wrong {
				t.Error(wrong)
			}
			sum.add(r)
		})
		if failed || *seedFlag != 0 && *durationFlag == 0 || time.Since(begin) >= duration(usual) {
			break
		}
	}
	t.Log(sum.String())
	if !t.Failed() && (sum.events == 0 || sum.cuts == 0 || sum.compared == 0 || sum.expired == 0 && sum.rounds > 3) {
		t.Error("nothing was tested")
	}
}

// report of one or more rounds.
type report struct {
	rounds, writes, unknown, events, cuts, expired, conflicts, compared int
	revisions                                                           int64
	wrong                                                               []string
}

func (r *report) add(o report) {
	r.rounds++
	r.writes, r.unknown, r.events, r.cuts = r.writes+o.writes, r.unknown+o.unknown, r.events+o.events, r.cuts+o.cuts
	r.expired, r.conflicts, r.compared, r.revisions = r.expired+o.expired, r.conflicts+o.conflicts, r.compared+o.compared, r.revisions+o.revisions
}

func (r *report) String() string {
	return fmt.Sprintf("%d rounds: %d writes acknowledged and %d with an unknown outcome, %d revisions; %d events heard, %d cuts, %d times expired, %d times slow; %d lists compared",
		r.rounds, r.writes, r.unknown, r.revisions, r.events, r.cuts, r.expired, r.conflicts, r.compared)
}

type modelConfig struct {
	steps int  // of all writers together
	calm  bool // nothing is restarted or compacted
	// tamper changes what a watcher hears; nil where it does not.
	tamper func([]heard) []heard
}

// model is one round.
type model struct {
	cluster *cluster
	journal *journal
	steps   *counter
	target  atomic.Int64 // where watchers stop, once that is known
	tamper  func([]heard) []heard

	mu     sync.Mutex
	writes []written
	report report
}

func (m *model) complain(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report.wrong = append(m.report.wrong, fmt.Sprintf(format, args...))
}

// roundTimeout is how long a round may take before it is stuck.
const roundTimeout = 3 * time.Minute

func playModel(t *testing.T, c *cluster, n uint64, cfg modelConfig) report {
	ctx, cancel := context.WithTimeout(t.Context(), roundTimeout)
	defer cancel()
	m := &model{cluster: c, steps: newCounter(), tamper: cfg.tamper}
	var err error
	if m.journal, err = newJournal(ctx, c); err != nil {
		t.Fatal(err)
	}
	var following, writing, watching sync.WaitGroup
	journaling, stopJournal := context.WithCancel(ctx)
	following.Go(func() {
		if err := m.journal.run(journaling); err != nil {
			m.complain("%v", err)
			cancel()
		}
	})
	defer following.Wait()
	defer stopJournal()
	const writers = 4
	for i := range writers {
		w := &writer{model: m, random: rand.New(rand.NewPCG(n, uint64(i))), id: i}
		writing.Go(func() { w.run(ctx, cfg.steps/writers) })
	}
	if !cfg.calm {
		writing.Go(func() { m.disturb(ctx, rand.New(rand.NewPCG(n, 100)), cfg.steps) })
	}
	var observers []observer
	if !cfg.calm {
		observers = m.informers(journaling, &following)
	}
	watchers := make([]*watcher, len(interests))
	for i, interest := range interests {
		watchers[i] = &watcher{model: m, interest: interest, random: rand.New(rand.NewPCG(n, uint64(200+i)))}
		watching.Go(func() { watchers[i].run(ctx) })
	}
	writing.Wait()
	m.steps.done()
	last := (&writer{model: m, random: rand.New(rand.NewPCG(n, 1)), id: writers}).marks(ctx)
	watching.Wait()
	if err := m.journal.wait(ctx, last); err != nil {
		m.complain("%v", err)
	}
	for _, o := range observers {
		o.check(ctx, m)
	}
	if ctx.Err() != nil {
		m.complain("the round is stuck: %v", ctx.Err())
		return m.report
	}
	for _, w := range watchers {
		w.compare(ctx, true)
		for _, s := range w.segments {
			m.report.wrong = append(m.report.wrong, m.journal.judge(w.interest, s)...)
		}
	}
	m.judgeWrites()
	m.report.revisions = last - m.journal.start
	return m.report
}

// disturb does something to the gateways or the store every so many steps.
func (m *model) disturb(ctx context.Context, random *rand.Rand, steps int) {
	for at := 0; ; {
		at += 1 + random.IntN(steps/5)
		if at > steps*9/10 || !m.steps.reach(ctx, at) {
			return
		}
		switch random.IntN(8) {
		case 0:
			m.cluster.restart(random.IntN(2))
		case 1, 2:
			m.cluster.crash(random.IntN(2))
		case 3:
			m.cluster.killStore(time.Duration(random.IntN(300)) * time.Millisecond)
		default:
			m.compact(ctx, random)
		}
	}
}

// compact forgets history up to somewhere that the journal has passed. A gateway that starts anew then does not have it
// either.
func (m *model) compact(ctx context.Context, random *rand.Rand) {
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := m.cluster.store().Compact(limited, m.journal.at()-int64(random.IntN(20)))
	if err != nil && !errors.Is(err, storage.ErrCompacted) && !errors.Is(err, storage.ErrUnavailable) && limited.Err() == nil {
		m.complain("compact: %v", err)
	}
	m.cluster.crash(random.IntN(2))
}

// counter counts steps, and lets others wait for them.
type counter struct {
	mu    sync.Mutex
	n     int
	over  bool
	moved chan struct{}
}

func newCounter() *counter { return &counter{moved: make(chan struct{})} }

func (c *counter) step() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	c.wake()
}

func (c *counter) wake() {
	close(c.moved)
	c.moved = make(chan struct{})
}

// done lets all go.
func (c *counter) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.wake()
}

func (c *counter) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// reach waits for a step; false where it does not come.
func (c *counter) reach(ctx context.Context, n int) bool {
	for {
		c.mu.Lock()
		reached, over, moved := c.n >= n, c.over, c.moved
		c.mu.Unlock()
		if reached || over {
			return reached
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
}

// watcher follows one interest over as many streams as it takes.
type watcher struct {
	model    *model
	interest interest
	random   *rand.Rand

	segments []*segment
	state    map[string]item // replayed
	position int64           // complete up to here; 0 for nothing
}

func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil && !w.through() {
		streaming, cancel := context.WithCancel(ctx)
		err := w.follow(streaming)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if !w.survived(ctx, err) {
			return
		}
		if w.random.IntN(8) == 0 && w.position > 0 {
			w.compare(ctx, false)
		}
	}
}

func (w *watcher) through() bool {
	target := w.model.target.Load()
	return target > 0 && w.position >= target
}

// survived reports whether the watcher may go on after a stream's end.
func (w *watcher) survived(ctx context.Context, err error) bool {
	count := func(n *int) {
		w.model.mu.Lock()
		defer w.model.mu.Unlock()
		*n++
	}
	switch {
	case err == nil:
		count(&w.model.report.cuts)
	case apierr.IsExpired(err):
		count(&w.model.report.expired)
		w.position = 0
	case apierr.IsConflict(err):
		count(&w.model.report.conflicts)
	case errors.Is(err, io.EOF), apierr.IsUnavailable(err), apierr.IsCanceled(err):
		pause(ctx, 5*time.Millisecond)
	default:
		w.model.complain("%v at %d: watch: %v", w.interest, w.position, err)
		return false
	}
	return true
}

// follow reads one stream until it is done, or cuts it off.
func (w *watcher) follow(ctx context.Context) error {
	req := &metav1.WatchRequest{Namespace: w.interest.namespace, LabelSelector: w.interest.labels, FieldSelector: w.interest.fields}
	if w.position > 0 {
		req.ResourceVersion = strconv.FormatInt(w.position, 10)
	}
	stream, err := call(ctx, w.model.cluster.conns[w.random.IntN(2)], w.interest.subject.service, "Watch", req)
	if err != nil {
		return err
	}
	collecting := w.position == 0
	var pending []heard
	for left := 1 + w.random.IntN(40); !w.through(); left-- {
		if left <= 0 && w.model.target.Load() == 0 {
			return nil
		}
		if w.random.IntN(25) == 0 {
			w.model.steps.reach(ctx, w.model.steps.now()+w.random.IntN(150)) // lags
		}
		resp, err := stream.watching()
		if err != nil {
			return err
		}
		if resp.revision < w.position {
			return fmt.Errorf("revision went back from %d to %d", w.position, resp.revision)
		}
		events := resp.events
		if w.model.tamper != nil && !collecting {
			events = w.model.tamper(events)
		}
		pending = append(pending, events...)
		switch {
		case collecting && !resp.ends:
			if !resp.more && len(resp.events) > 0 {
				return fmt.Errorf("initial events at %d without more", resp.revision)
			}
		case collecting:
			if err := w.begin(pending, resp.revision); err != nil {
				return err
			}
			collecting, pending = false, nil
		case !resp.more:
			if err := w.apply(pending, resp.revision); err != nil {
				return err
			}
			pending = nil
		case len(events) > 0 && events[len(events)-1].revision != resp.revision:
			return fmt.Errorf("more at %d after an event of %d", resp.revision, events[len(events)-1].revision)
		}
	}
	return nil
}

func (w *watcher) begin(events []heard, revision int64) error {
	s := &segment{from: revision, to: revision}
	w.state = map[string]item{}
	for _, e := range events {
		if e.typ != added || e.revision > revision {
			return fmt.Errorf("initial event %v %s@%d in the state at %d", e.typ, e.key, e.revision, revision)
		}
		w.state[e.key] = e.item
		s.initial = append(s.initial, e.item)
	}
	w.segments = append(w.segments, s)
	w.position = revision
	return nil
}

// apply takes whole revisions.
func (w *watcher) apply(events []heard, revision int64) error {
	s := w.segments[len(w.segments)-1]
	for _, e := range events {
		if e.revision <= w.position || e.revision > revision {
			return fmt.Errorf("event of %d between %d and %d", e.revision, w.position, revision)
		}
		if e.typ == deleted {
			delete(w.state, e.key)
		} else {
			w.state[e.key] = e.item
		}
	}
	s.events = append(s.events, events...)
	s.to, w.position = revision, revision
	w.model.mu.Lock()
	defer w.model.mu.Unlock()
	w.model.report.events += len(events)
	return nil
}

// compare holds the replayed state against lists at its revision. They may be expired while things go on.
func (w *watcher) compare(ctx context.Context, must bool) {
	for i, conn := range w.model.cluster.conns {
		limited, cancel := context.WithTimeout(ctx, 20*time.Second)
		items, meta, err := listAll(limited, conn, w.interest.subject.service, &metav1.ListRequest{
			Namespace: w.interest.namespace, LabelSelector: w.interest.labels, FieldSelector: w.interest.fields,
			ResourceVersion: strconv.FormatInt(w.position, 10), ResourceVersionMatch: "Exact",
		})
		cancel()
		if err != nil {
			passing := apierr.IsExpired(err) || apierr.IsUnavailable(err) || apierr.IsTimeout(err) || apierr.IsCanceled(err) || limited.Err() != nil
			if must && !apierr.IsExpired(err) || !passing {
				w.model.complain("%v at gateway %d: list at %d: %v", w.interest, i, w.position, err)
			}
			continue
		}
		if meta.GetResourceVersion() != strconv.FormatInt(w.position, 10) {
			w.model.complain("%v at gateway %d: list at %d came at %s", w.interest, i, w.position, meta.GetResourceVersion())
		}
		for _, want := range items {
			if got := w.state[want.key]; !bytes.Equal(got.bytes, want.bytes) {
				w.model.complain("%v at %d, gateway %d: %s is replayed at %d, listed at %d", w.interest, w.position, i, want.key, got.revision, want.revision)
			}
		}
		if len(items) != len(w.state) {
			w.model.complain("%v at %d, gateway %d: replayed %d objects, listed %d", w.interest, w.position, i, len(w.state), len(items))
		}
		w.model.mu.Lock()
		w.model.report.compared++
		w.model.mu.Unlock()
	}
}

// The check must be able to fail: a stream that somebody has changed does not pass.
func TestModelFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		tamper func(events []heard) []heard
		wrap   func(storage.Store) storage.Store
		want   string
	}{
		"nothing":   {},
		"lost":      {tamper: once(func(e []heard) []heard { return e[:len(e)-1] }), want: "lost|want"},
		"doubled":   {tamper: once(func(e []heard) []heard { return append(e, e[len(e)-1]) }), want: "twice|want"},
		"reordered": {tamper: onceOf(2, func(e []heard) []heard { e[0], e[len(e)-1] = e[len(e)-1], e[0]; return e }), want: "after an event of"},
		"changed":   {tamper: once(func(e []heard) []heard { e[0].bytes = append([]byte{}, e[0].bytes[:len(e[0].bytes)-3]...); return e }), want: "another object"},
		"of another type": {tamper: once(func(e []heard) []heard {
			e[0].typ = map[metav1.WatchEventType]metav1.WatchEventType{added: modified, modified: added, deleted: modified}[e[0].typ]
			return e
		}), want: "want"},
		"lost between store and cache": {wrap: loseOne, want: "lost|want"},
		"written by nobody":            {wrap: forgetOne, want: "acknowledged"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := playModel(t, newCluster(t, inMemory(t), c.wrap), 1, modelConfig{steps: 400, calm: true, tamper: c.tamper})
				found := c.want == "" && len(r.wrong) == 0
				for _, wrong := range r.wrong {
					for _, want := range strings.Split(c.want, "|") {
						found = found || want != "" && strings.Contains(wrong, want)
					}
				}
				if !found {
					t.Errorf("want %q, found %d things: %q", c.want, len(r.wrong), r.wrong)
				}
			})
		})
	}
}

// once changes the first events that it may.
func once(change func([]heard) []heard) func([]heard) []heard { return onceOf(1, change) }

// onceOf changes the first events of several revisions.
func onceOf(revisions int, change func([]heard) []heard) func([]heard) []heard {
	var done atomic.Bool
	return func(events []heard) []heard {
		if len(events) == 0 || revisions > 1 && events[0].revision == events[len(events)-1].revision || !done.CompareAndSwap(false, true) {
			return events
		}
		return change(append([]heard{}, events...))
	}
}

// faulty is a store that breaks its promises.
type faulty struct {
	storage.Store

	watch  func(storage.Batch) storage.Batch
	commit func(storage.Txn) bool // false for one that is acknowledged and not done
}

func (f *faulty) Watch(ctx context.Context, prefix string, opts storage.WatchOptions, emit func(storage.Batch) error) error {
	return f.Store.Watch(ctx, prefix, opts, func(b storage.Batch) error {
		if f.watch != nil {
			b = f.watch(b)
		}
		return emit(b)
	})
}

func (f *faulty) Commit(ctx context.Context, txn storage.Txn) (int64, error) {
	if f.commit != nil && !f.commit(txn) {
		return f.Revision(ctx)
	}
	return f.Store.Commit(ctx, txn)
}

// loseOne loses one event on its way to each gateway.
func loseOne(s storage.Store) storage.Store {
	var seen, lost atomic.Int64
	return &faulty{Store: s, watch: func(b storage.Batch) storage.Batch {
		for i, e := range b.Events {
			if strings.HasPrefix(e.Key, configMaps.prefix) && seen.Add(1) > 30 && lost.CompareAndSwap(0, 1) {
				b.Events = append(append([]storage.Event{}, b.Events[:i]...), b.Events[i+1:]...)
				return b
			}
		}
		return b
	}}
}

// forgetOne acknowledges one write that it does not do.
func forgetOne(s storage.Store) storage.Store {
	return forget(s, func(n int64) bool { return n == 20 })
}

// forgetMany is for histories that need not show each single one.
func forgetMany(s storage.Store) storage.Store {
	return forget(s, func(n int64) bool { return n%10 == 0 })
}

func forget(s storage.Store, lost func(n int64) bool) storage.Store {
	var seen atomic.Int64
	return &faulty{Store: s, commit: func(txn storage.Txn) bool {
		return !strings.HasPrefix(txn.Then[0].Key, configMaps.prefix) || !lost(seen.Add(1))
	}}
}
