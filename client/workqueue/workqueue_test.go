package workqueue_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"trireme.dev/client/workqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, q *workqueue.Queue[string]) string {
	t.Helper()
	key, err := q.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestKeyAddedTwiceIsWorkedOnOnce(t *testing.T) {
	q := workqueue.New[string](workqueue.Config{})
	q.Add("a")
	q.Add("b")
	q.Add("a")
	if q.Len() != 2 {
		t.Fatalf("Len = %d, want 2", q.Len())
	}
	if a, b := get(t, q), get(t, q); a != "a" || b != "b" {
		t.Fatalf("got %s, %s", a, b)
	}
}

func TestKeyAddedWhileProcessedWaitsForDone(t *testing.T) {
	q := workqueue.New[string](workqueue.Config{})
	q.Add("a")
	get(t, q)
	q.Add("a")
	q.Add("a")
	if q.Len() != 0 {
		t.Fatal("a second worker could take a key that is being processed")
	}
	q.Done("a")
	if q.Len() != 1 {
		t.Fatalf("Len = %d after Done, want 1", q.Len())
	}
	get(t, q)
	q.Done("a")
	if q.Len() != 0 {
		t.Fatal("the key came back though nobody added it")
	}
}

func TestGetEndsWithContextAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New[string](workqueue.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { _, err := q.Get(ctx); ended <- err }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Get = %v, want Canceled", err)
		}
		for range 2 {
			go func() { _, err := q.Get(t.Context()); ended <- err }()
		}
		synctest.Wait()
		q.AddAfter("late", time.Second)
		q.Close()
		for range 2 {
			if err := <-ended; !errors.Is(err, workqueue.ErrClosed) {
				t.Errorf("Get = %v, want ErrClosed", err)
			}
		}
		q.Add("a")
		time.Sleep(time.Minute)
		if q.Len() != 0 {
			t.Error("a closed queue took a key")
		}
	})
}

// TestNoWakeUpIsLost lets getters begin to wait at the very moment at which keys come: none may sleep on while a key
// waits. That is a race, so it is run often and without a bubble, which would serialise it.
func TestNoWakeUpIsLost(t *testing.T) {
	const getters = 4
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 5000 {
		q := workqueue.New[int](workqueue.Config{})
		start := make(chan struct{})
		var workers sync.WaitGroup
		for i := range getters {
			workers.Go(func() {
				<-start
				if _, err := q.Get(ctx); err != nil {
					t.Error(err)
				}
			})
			workers.Go(func() {
				<-start
				q.Add(i)
			})
		}
		close(start)
		workers.Wait()
		if t.Failed() {
			return
		}
	}
}

func TestDelayedAddKeepsTheEarliest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New[string](workqueue.Config{})
		start := time.Now()
		q.AddAfter("a", 10*time.Second)
		q.AddAfter("a", 3*time.Second)
		q.AddAfter("a", 20*time.Second)
		q.AddAfter("b", 2*time.Second)
		var order []string
		for range 2 {
			key := get(t, q)
			order = append(order, key+" "+time.Since(start).String())
			q.Done(key)
		}
		if want := []string{"b 2s", "a 3s"}; !slices.Equal(order, want) {
			t.Errorf("got %v, want %v", order, want)
		}
		time.Sleep(time.Minute)
		if q.Len() != 0 {
			t.Error("the later delayed adds came too")
		}
	})
}

func TestRetriesOfAKeyDouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New[string](workqueue.Config{})
		var waits []time.Duration
		retry := func() {
			start := time.Now()
			q.AddRateLimited("a")
			key := get(t, q)
			waits = append(waits, time.Since(start))
			q.Done(key)
		}
		for range 4 {
			retry()
		}
		q.Forget("a")
		retry()
		ms := time.Millisecond
		if want := []time.Duration{5 * ms, 10 * ms, 20 * ms, 40 * ms, 5 * ms}; !slices.Equal(waits, want) {
			t.Errorf("waits %v, want %v", waits, want)
		}
		q.Forget("a")
		for range 80 {
			q.AddRateLimited("a")
		}
		if n := q.Failures("a"); n != 80 {
			t.Errorf("Failures = %d, want 80", n)
		}
		get(t, q) // The earliest of them.
		q.Done("a")
		start := time.Now()
		q.AddRateLimited("a")
		get(t, q)
		if wait := time.Since(start); wait != 1000*time.Second {
			t.Errorf("the 81st retry waits %s, want 1000s", wait)
		}
	})
}

func TestAllRetriesTogetherAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New[int](workqueue.Config{})
		start := time.Now()
		for i := range 150 {
			q.AddRateLimited(i)
		}
		for range 150 {
			key, err := q.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			q.Done(key)
		}
		// A burst of 100 is free; the other 50 come at 10 a second.
		if d := time.Since(start).Round(10 * time.Millisecond); d != 5*time.Second {
			t.Errorf("150 retries took %s, want 5s", d)
		}
	})
}

// model is what the queue must do, said in the plainest way.
type model struct {
	waiting    []int
	processing map[int]bool
	again      map[int]bool
}

func (m *model) add(k int) {
	switch {
	case m.processing[k]:
		m.again[k] = true
	case !slices.Contains(m.waiting, k):
		m.waiting = append(m.waiting, k)
	}
}

func TestQueueFollowsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := workqueue.New[int](workqueue.Config{})
		m := &model{processing: map[int]bool{}, again: map[int]bool{}}
		key := rapid.IntRange(0, 4)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k := key.Draw(t, "key")
				q.Add(k)
				m.add(k)
			},
			"get": func(t *rapid.T) {
				if len(m.waiting) == 0 {
					t.Skip("nothing waits")
				}
				k, err := q.Get(t.Context())
				if err != nil || k != m.waiting[0] {
					t.Fatalf("Get = %d, %v; want %d", k, err, m.waiting[0])
				}
				m.waiting = m.waiting[1:]
				m.processing[k] = true
			},
			"done": func(t *rapid.T) {
				k := key.Draw(t, "key")
				q.Done(k)
				if m.processing[k] {
					delete(m.processing, k)
					if m.again[k] {
						delete(m.again, k)
						m.add(k)
					}
				}
			},
			"": func(t *rapid.T) {
				if q.Len() != len(m.waiting) {
					t.Fatalf("Len = %d, want %d", q.Len(), len(m.waiting))
				}
			},
		})
	})
}
