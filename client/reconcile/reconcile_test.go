package reconcile_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client/reconcile"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// script answers the calls for a key in turn and writes down when they came; later calls get the last answer.
type script struct {
	start   time.Time
	answers []func() (reconcile.Result, error)

	mu    sync.Mutex
	times []time.Duration
}

func (s *script) Reconcile(context.Context, reconcile.Key) (reconcile.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.times), len(s.answers)-1)
	s.times = append(s.times, time.Since(s.start))
	return s.answers[n]()
}

func done() (reconcile.Result, error)   { return reconcile.Result{}, nil }
func failed() (reconcile.Result, error) { return reconcile.Result{}, errors.New("not yet") }
func panics() (reconcile.Result, error) { panic("poison") }
func terminal() (reconcile.Result, error) {
	return reconcile.Result{After: time.Second}, reconcile.Terminal(errors.New("never"))
}
func after(d time.Duration) func() (reconcile.Result, error) {
	return func() (reconcile.Result, error) { return reconcile.Result{After: d}, nil }
}

// run reconciles one key by the script for an hour and returns when it was called.
func run(t *testing.T, answers ...func() (reconcile.Result, error)) (times []time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{start: time.Now(), answers: answers}
		r := reconcile.New(reconcile.Config{Name: "test", Logger: quiet}, s)
		r.Enqueue(reconcile.Key{Namespace: "default", Name: "a"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
		times = s.times
	})
	return times
}

func TestResults(t *testing.T) {
	ms, s := time.Millisecond, time.Second
	for _, test := range []struct {
		name    string
		answers []func() (reconcile.Result, error)
		want    []time.Duration
	}{
		{"success is not repeated", []func() (reconcile.Result, error){done}, []time.Duration{0}},
		{"errors back off", []func() (reconcile.Result, error){failed, failed, failed, done}, []time.Duration{0, 5 * ms, 15 * ms, 35 * ms}},
		{"after waits and forgets failures",
			[]func() (reconcile.Result, error){failed, failed, after(10 * s), failed, done},
			[]time.Duration{0, 5 * ms, 15 * ms, 10*s + 15*ms, 10*s + 20*ms}},
		{"a panic is an error", []func() (reconcile.Result, error){panics, panics, done}, []time.Duration{0, 5 * ms, 15 * ms}},
		{"terminal is not repeated, whatever the result says", []func() (reconcile.Result, error){failed, terminal}, []time.Duration{0, 5 * ms}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := run(t, test.answers...); !slices.Equal(got, test.want) {
				t.Errorf("called at %v, want %v", got, test.want)
			}
		})
	}
}

func TestTerminalKeepsTheError(t *testing.T) {
	if reconcile.Terminal(nil) != nil {
		t.Error("Terminal(nil) is an error")
	}
	if err := reconcile.Terminal(io.ErrUnexpectedEOF); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("the cause is lost")
	}
}

func TestWorkersNeverShareAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		busy, together, most := map[reconcile.Key]bool{}, 0, 0
		r := reconcile.New(reconcile.Config{Name: "test", Workers: 4, Logger: quiet}, reconcile.Func(
			func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
				mu.Lock()
				if busy[key] {
					t.Errorf("two workers on %s", key)
				}
				busy[key] = true
				together++
				most = max(most, together)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				busy[key] = false
				together--
				return reconcile.Result{}, nil
			}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			for range 50 {
				for _, name := range []string{"a", "b", "c", "d", "e"} {
					r.Enqueue(reconcile.Key{Name: name})
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
		if most != 4 {
			t.Errorf("at most %d workers were busy at a time, want 4", most)
		}
	})
}

func TestRunWaitsForItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finished := false
		r := reconcile.New(reconcile.Config{Name: "test", Logger: quiet}, reconcile.Func(
			func(ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
				<-ctx.Done()
				time.Sleep(5 * time.Second) // Cleaning up takes a while.
				finished = true
				return reconcile.Result{}, ctx.Err()
			}))
		r.Enqueue(reconcile.Key{Name: "a"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = r.Run(ctx)
		if !finished {
			t.Error("Run returned before its worker")
		}
	})
}

func TestEnqueueHelpers(t *testing.T) {
	pod := func(owners ...*metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{Metadata: &metav1.ObjectMeta{Namespace: "ns", Name: "pod", OwnerReferences: owners}}
	}
	owner := func(kind, name string, controller bool) *metav1.OwnerReference {
		return &metav1.OwnerReference{Kind: kind, Name: name, Controller: proto.Bool(controller)}
	}
	// enqueued runs a reconciler over what fill enqueued.
	enqueued := func(fill func(*reconcile.Runner)) string {
		var keys []string
		synctest.Test(t, func(t *testing.T) {
			r := reconcile.New(reconcile.Config{Name: "test", Logger: quiet}, reconcile.Func(
				func(_ context.Context, key reconcile.Key) (reconcile.Result, error) {
					keys = append(keys, key.String())
					return reconcile.Result{}, nil
				}))
			fill(r)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = r.Run(ctx)
		})
		return strings.Join(keys, " ")
	}
	for _, test := range []struct {
		name string
		fill func(*reconcile.Runner)
		want string
	}{
		{"self", func(r *reconcile.Runner) {
			h := reconcile.EnqueueSelf[*corev1.Pod](r)
			h.Add(pod(), true)
			h.Update(pod(), pod())
			h.Delete(pod())
		}, "ns/pod"},
		{"the controller only", func(r *reconcile.Runner) {
			reconcile.EnqueueOwner[*corev1.Pod](r, "ReplicaSet").Add(pod(owner("ReplicaSet", "other", false), owner("ReplicaSet", "rs", true)), false)
		}, "ns/rs"},
		{"not of another kind", func(r *reconcile.Runner) {
			reconcile.EnqueueOwner[*corev1.Pod](r, "ReplicaSet").Delete(pod(owner("Job", "job", true)))
		}, ""},
		{"both controllers of an adopted object", func(r *reconcile.Runner) {
			reconcile.EnqueueOwner[*corev1.Pod](r, "ReplicaSet").Update(pod(owner("ReplicaSet", "a", true)), pod(owner("ReplicaSet", "b", true)))
		}, "ns/a ns/b"},
		{"nobody's object", func(r *reconcile.Runner) {
			reconcile.EnqueueOwner[*corev1.Pod](r, "ReplicaSet").Add(pod(), false)
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := enqueued(test.fill); got != test.want {
				t.Errorf("enqueued %q, want %q", got, test.want)
			}
		})
	}
}
