package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
)

// The rules of Kubernetes' scheduling queue, one table each: what an attempt's end, an event, an update and time do to a pod.
// One differs on purpose: events of the time of an attempt count for a gang as for a pod, where Kubernetes 1.36 has all members
// wait out their backoff.

// in returns where the only entity of a queue is.
func in(q *Queue) string {
	switch {
	case len(q.inFlight) > 0:
		return "in flight"
	case q.active.Len() > 0:
		return "active"
	case q.backoff.Len() > 0:
		return "backoff"
	case q.failed.Len() > 0:
		return "error backoff"
	case len(q.pool) > 0:
		return "pool"
	}
	return "nowhere"
}

// attempts: r is rejected by Fit, p leaves Fit pending, m does so and Outside rejects, n is rejected by nobody, e fails with an error, and 10 s pass after each
// but the last. It returns the pod's entity.
func attempts(t *testing.T, q *Queue, p *framework.PodInfo, ends string) *entity {
	t.Helper()
	outcomes := map[rune]Outcome{
		'r': {Rejected: true, Plugins: []string{"Fit"}},
		'p': {Rejected: true, Plugins: []string{"Fit"}, Pending: []string{"Fit"}},
		'm': {Rejected: true, Plugins: []string{"Fit", "Outside"}, Pending: []string{"Fit"}},
		'n': {Rejected: true},
		'e': {Failed: true},
	}
	q.Add(p, time.Now())
	e := q.pods[p.UID()].entity
	for i, end := range ends {
		if i > 0 {
			q.Move(nodeAdded, nil)
			time.Sleep(10 * time.Second)
			q.Tick()
		}
		popped, _ := pop(q)
		if popped == nil {
			t.Fatalf("attempt %d does not come", i+1)
		}
		q.Done(popped, outcomes[end])
	}
	return e
}

func TestBackoffAfterAttempts(t *testing.T) {
	for _, tc := range []struct {
		attempts string
		want     time.Duration // in seconds
	}{
		{"", 0}, // the first attempt has none
		{"r", 1}, {"rr", 2}, {"rrr", 4}, {"rrrr", 8}, {"rrrrr", 10}, {"rrrrrr", 10},
		{"p", 1}, {"rp", 2},
		{"e", 1}, {"ee", 2}, {"eee", 4}, {"eeee", 8}, {"eeeee", 10}, {"eeeeee", 10},
		{"n", 1}, {"nn", 2}, // nobody says what would help: as an error
		{"rrre", 1}, {"rrree", 2}, // errors in a row count by themselves
		{"er", 1}, {"eeer", 1}, {"rer", 2}, // and not among rejections
		{"ere", 1}, {"eere", 1}, // which begin their count anew
	} {
		t.Run(tc.attempts, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// The virtual clock begins at a whole second, so that rounding down takes nothing away.
				e := attempts(t, newQueue(nil), pod("a", ""), tc.attempts)
				got := time.Duration(0)
				if !e.until.IsZero() {
					got = e.until.Sub(e.view.Timestamp) / time.Second
				}
				if got != tc.want {
					t.Errorf("after %q a backoff of %d s, want %d", tc.attempts, got, tc.want)
				}
			})
		})
	}
}

func TestBackoffEndsAtWholeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(nil)
		time.Sleep(300 * time.Millisecond)
		attempts(t, q, pod("low", ""), "r")
		time.Sleep(400 * time.Millisecond)
		attempts(t, q, pod("high", "", priority(10)), "r")
		q.Move(nodeAdded, nil)
		if _, backoff, _ := q.Len(); backoff != 2 {
			t.Fatalf("%d in backoff, want both", backoff)
		}
		// Of those that come due within one second the order is that of the queue, and not of their milliseconds.
		if diff := cmp.Diff([]string{"high", "low"}, names(q)); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

func TestWhereAnAttemptEnds(t *testing.T) {
	for _, tc := range []struct {
		attempts, want string
	}{
		{"r", "pool"}, {"p", "pool"}, {"e", "error backoff"}, {"n", "error backoff"},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(nil)
			attempts(t, q, pod("a", ""), tc.attempts)
			if got := in(q); got != tc.want {
				t.Errorf("after %q it is in %s, want %s", tc.attempts, got, tc.want)
			}
		})
	}
}

// A pod that was rejected, and then something happens.
func TestWhatAnEventDoes(t *testing.T) {
	labels := framework.Change{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.UpdateNodeLabel}}
	taint := framework.Change{Event: framework.ClusterEvent{Resource: framework.Node, Action: framework.UpdateNodeTaint}}
	anything := framework.Change{Event: framework.ClusterEvent{Resource: framework.AnyResource, Action: framework.AllActions}}
	hint := func(h framework.Hint) func(*Config) {
		return func(c *Config) {
			c.Events["Fit"] = []framework.EventHint{{Event: nodeAdded.Event, Hint: func(*framework.PodInfo, *framework.Change) framework.Hint { return h }}}
		}
	}
	for _, tc := range []struct {
		name     string
		attempts string
		config   func(*Config)
		after    time.Duration
		change   framework.Change
		want     string
	}{
		{name: "the event of the plugin that rejected", attempts: "r", change: nodeAdded, want: "backoff"},
		{name: "once its backoff is over", attempts: "r", after: time.Second, change: nodeAdded, want: "active"},
		{name: "just before that", attempts: "rr", after: 2*time.Second - 1, change: nodeAdded, want: "backoff"},
		{name: "the event of another plugin", attempts: "r", change: labels, want: "pool"},
		{name: "an event of nobody", attempts: "r", change: taint, want: "pool"},
		{name: "any event", attempts: "r", change: anything, want: "backoff"},
		{name: "of a pending plugin", attempts: "p", change: nodeAdded, want: "active"},
		{name: "of a pending plugin, another event", attempts: "p", change: labels, want: "pool"},
		{name: "of the pending one of two plugins", attempts: "m", change: nodeAdded, want: "active"},
		{name: "of the other one of two plugins", attempts: "m", change: labels, want: "backoff"},
		{name: "the hint says Queue", attempts: "r", config: hint(framework.Queue), change: nodeAdded, want: "backoff"},
		{name: "the hint says Skip", attempts: "r", config: hint(framework.QueueSkip), change: nodeAdded, want: "pool"},
		{name: "a pending plugin's hint says Skip", attempts: "p", config: hint(framework.QueueSkip), change: nodeAdded, want: "pool"},
		{name: "after an error", attempts: "e", change: nodeAdded, want: "error backoff"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(tc.config)
				attempts(t, q, pod("a", ""), tc.attempts)
				time.Sleep(tc.after)
				q.Move(tc.change, nil)
				if got := in(q); got != tc.want {
					t.Errorf("it is in %s, want %s", got, tc.want)
				}
			})
		})
	}
}

// A pod that a gate holds is asked about again on the events of the gate's plugin, and on no others.
func TestWhatAnEventDoesToAGatedPod(t *testing.T) {
	gate := framework.Change{Event: framework.ClusterEvent{Resource: framework.Namespace, Action: framework.Add}}
	for _, tc := range []struct {
		name   string
		open   bool
		change framework.Change
		asked  int
		want   string
	}{
		{"another plugin's event", true, nodeAdded, 0, "pool"},
		{"its event, and the gate holds still", false, gate, 1, "pool"},
		{"its event, and the gate is open", true, gate, 1, "active"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				open, asked := false, 0
				q := newQueue(func(c *Config) {
					c.Events["Gate"] = []framework.EventHint{{Event: gate.Event}}
					c.PreEnqueue = func(*framework.PodInfo) *framework.Status {
						asked++
						if open {
							return nil
						}
						return framework.NewStatus(framework.UnschedulableAndUnresolvable, "closed").WithPlugin("Gate")
					}
				})
				q.Add(pod("a", ""), time.Now())
				open, asked = tc.open, 0
				q.Move(tc.change, nil)
				if got := in(q); got != tc.want || asked != tc.asked {
					t.Errorf("it is in %s after %d questions, want %s and %d", got, asked, tc.want, tc.asked)
				}
			})
		})
	}
}

func TestGangAfterAnAttempt(t *testing.T) {
	for _, tc := range []struct {
		during bool // the event comes while the attempt goes on
		want   string
	}{{false, "pool"}, {true, "backoff"}} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(nil)
			q.SetGroup(gang("g", 2))
			q.Add(pod("g-0", "g"), time.Now())
			q.Add(pod("g-1", "g"), time.Now())
			g, _ := pop(q)
			if tc.during {
				q.Move(nodeAdded, nil)
			}
			q.Done(g, Outcome{Rejected: true, Plugins: []string{"Fit"}})
			if got := in(q); got != tc.want {
				t.Errorf("with an event during the attempt %t the gang is in %s, want %s", tc.during, got, tc.want)
			}
		})
	}
}

// A pod in the pool changes, and a plugin waits for one kind of change.
func TestWhatAnUpdateDoes(t *testing.T) {
	cpu := func(amount string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers = []*corev1.Container{{Name: "c", Resources: &corev1.ResourceRequirements{Requests: map[string]string{"cpu": amount}}}}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
		want   framework.Action
	}{
		{"a label", func(p *corev1.Pod) { p.Metadata.Labels = map[string]string{"a": "b"} }, framework.UpdatePodLabel},
		{"asks for less", cpu("1"), framework.UpdatePodScaleDown},
		{"a toleration", func(p *corev1.Pod) { p.Spec.Tolerations = []*corev1.Toleration{{Key: proto.String("k")}} }, framework.UpdatePodToleration},
		{"an annotation", func(p *corev1.Pod) { p.Metadata.Annotations = map[string]string{"a": "b"} }, framework.UpdateOther},
		{"asks for more", cpu("3"), framework.UpdateOther},
		{"its resource version", func(p *corev1.Pod) { p.Metadata.ResourceVersion = "7" }, 0},
		{"its status", func(p *corev1.Pod) { p.Status = &corev1.PodStatus{Phase: "Pending"} }, 0},
	} {
		for _, waitsFor := range []framework.Action{
			framework.UpdatePodLabel, framework.UpdatePodScaleDown, framework.UpdatePodToleration, framework.UpdateOther,
		} {
			t.Run(tc.name+", "+framework.ClusterEvent{Action: waitsFor}.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := newQueue(func(c *Config) {
						c.Events["Fit"] = []framework.EventHint{{Event: framework.ClusterEvent{Resource: framework.UnscheduledPod, Action: waitsFor}}}
					})
					attempts(t, q, pod("a", "", cpu("2")), "r")
					q.Update(pod("a", "", cpu("2"), tc.change))
					want := "pool"
					if waitsFor == tc.want {
						want = "backoff"
					}
					if got := in(q); got != want {
						t.Errorf("it is in %s, want %s", got, want)
					}
				})
			})
		}
	}
}

func TestGatesThatGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(nil)
		q.Add(pod("a", "", gates("x", "y")), time.Now())
		for _, step := range []struct {
			gates []string
			want  string
		}{{[]string{"y"}, "pool"}, {nil, "active"}} {
			q.Update(pod("a", "", gates(step.gates...)))
			if got := in(q); got != step.want {
				t.Errorf("with gates %v it is in %s, want %s", step.gates, got, step.want)
			}
		}
	})
}

func TestActivate(t *testing.T) {
	for _, tc := range []struct {
		name, attempts string
		moved          bool // by an event, into backoff
		pod            func(*corev1.Pod)
		want           string
	}{
		{name: "from the pool", attempts: "r", want: "active"},
		{name: "from backoff", attempts: "r", moved: true, want: "active"},
		{name: "from backoff after an error", attempts: "e", want: "active"},
		{name: "what is active already", want: "active"},
		{name: "what a gate holds", pod: gates("x"), want: "pool"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(nil)
				change := tc.pod
				if change == nil {
					change = func(*corev1.Pod) {}
				}
				p := pod("a", "", change)
				attempts(t, q, p, tc.attempts)
				if tc.moved {
					q.Move(nodeAdded, nil)
				}
				q.Activate([]*framework.PodInfo{p, pod("unknown", "")})
				if got := in(q); got != tc.want {
					t.Errorf("it is in %s, want %s", got, tc.want)
				}
			})
		})
	}
	for name, o := range map[string]Outcome{"rejected": {Rejected: true, Plugins: []string{"Fit"}}, "failed": {Failed: true}} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(nil)
			p := pod("a", "")
			q.Add(p, time.Now())
			popped, _ := pop(q)
			q.Activate([]*framework.PodInfo{p})
			q.Done(popped, o)
			if got := in(q); got != "active" {
				t.Errorf("activated in flight and %s: it is in %s, want active", name, got)
			}
		})
	}
}

// Events are kept only as long as an attempt that began before them goes on.
func TestEventsThatAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(nil)
		kept := func(want int, when string) {
			t.Helper()
			if got := q.log.Len(); got != want {
				t.Errorf("%s: %d kept, want %d", when, got, want)
			}
		}
		rejected := Outcome{Rejected: true, Plugins: []string{"Fit"}}
		q.Add(pod("a", ""), time.Now())
		q.Add(pod("b", ""), time.Now())
		q.Move(nodeAdded, nil)
		kept(0, "nothing in flight")
		a, _ := pop(q)
		q.Move(nodeAdded, nil)
		b, _ := pop(q)
		q.Move(nodeAdded, nil)
		kept(4, "two in flight, an event after each")
		q.Done(a, rejected)
		kept(2, "the first has ended: the second and what came after it")
		q.Done(a, rejected) // it is over
		kept(2, "ended twice")
		q.Done(b, rejected)
		kept(0, "both have ended")
	})
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(nil)
		q.Add(pod("a", ""), time.Now())
		q.Add(pod("b", ""), time.Now())
		a, _ := pop(q)
		q.Move(nodeAdded, nil)
		b, _ := pop(q)
		// What came before an attempt began is known to it.
		q.Done(b, Outcome{Rejected: true, Plugins: []string{"Fit"}})
		q.Done(a, Outcome{Rejected: true, Plugins: []string{"Fit"}})
		if _, backoff, pool := q.Len(); backoff != 1 || pool != 1 {
			t.Errorf("backoff %d, pool %d: want the one popped before the event in backoff", backoff, pool)
		}
	})
}

// The pool is looked through every 30 s for what has been there for 5 minutes.
func TestFlushTimes(t *testing.T) {
	for _, tc := range []struct {
		rejectedAt, flushedAt time.Duration
	}{
		{0, 5*time.Minute + 30*time.Second},
		{1 * time.Second, 5*time.Minute + 30*time.Second},
		{29 * time.Second, 5*time.Minute + 30*time.Second},
		{30 * time.Second, 6 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			q := newQueue(nil)
			done := make(chan error)
			go func() { done <- q.Run(ctx) }()
			begin := time.Now()
			time.Sleep(tc.rejectedAt)
			attempts(t, q, pod("a", ""), "r")
			q.Add(pod("gated", "", gates("x")), time.Now()) // is not looked at
			if popped := next(ctx, q); popped.Name() != "default/a" {
				t.Errorf("flushed %s", popped.Name())
			}
			if got := time.Since(begin); got != tc.flushedAt {
				t.Errorf("rejected at %s, flushed at %s, want %s", tc.rejectedAt, got, tc.flushedAt)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
