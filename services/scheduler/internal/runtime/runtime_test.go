package runtime

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// spy takes part in most points, answers as told and notes its calls in log.
type spy struct {
	name      string
	log       *[]string
	names     []string
	preFilter *framework.Status
	filter    *framework.Status
	preScore  *framework.Status
	scores    map[string]int64
	reserve   *framework.Status
	permit    *framework.Status
	timeout   time.Duration
	bind      *framework.Status
}

func (s *spy) Name() string                                       { return s.name }
func (s *spy) note(point string)                                  { *s.log = append(*s.log, s.name+"."+point) }
func (s *spy) PreFilterExtensions() framework.PreFilterExtensions { return nil }

func (s *spy) PreFilter(*framework.CycleState, *framework.PodInfo, *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	s.note("PreFilter")
	if s.names == nil {
		return nil, s.preFilter
	}
	set := map[string]struct{}{}
	for _, n := range s.names {
		set[n] = struct{}{}
	}
	return &framework.PreFilterResult{NodeNames: set}, s.preFilter
}

func (s *spy) Filter(*framework.CycleState, *framework.PodInfo, *framework.NodeInfo) *framework.Status {
	s.note("Filter")
	return s.filter
}

func (s *spy) PreScore(*framework.CycleState, *framework.PodInfo, *framework.Columns, []int32) *framework.Status {
	return s.preScore
}

func (s *spy) Score(_ *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	return s.scores[n.Name()], nil
}

func (s *spy) Reserve(context.Context, *framework.CycleState, *framework.PodInfo, string) *framework.Status {
	s.note("Reserve")
	return s.reserve
}

func (s *spy) Unreserve(context.Context, *framework.CycleState, *framework.PodInfo, string) {
	s.note("Unreserve")
}

func (s *spy) Permit(context.Context, *framework.CycleState, *framework.PodInfo, string) (*framework.Status, time.Duration) {
	s.note("Permit")
	return s.permit, s.timeout
}

func (s *spy) Bind(context.Context, []framework.Assignment) *framework.Status {
	s.note("Bind")
	return s.bind
}

type harness struct {
	*Framework
	log   []string
	state *framework.CycleState
	pod   *framework.PodInfo
}

func build(t *testing.T, spies ...*spy) *harness {
	t.Helper()
	h := &harness{state: framework.NewCycleState(), pod: &framework.PodInfo{Pod: &corev1.Pod{Metadata: &metav1.ObjectMeta{Uid: "u"}}}}
	profile := plugins.Default("s")
	// What orders the queue, and nothing else: the others would have a say.
	profile.Plugins = profile.Plugins[1:2]
	for _, s := range spies {
		s.log = &h.log
		profile.Plugins = append(profile.Plugins, framework.Registration{New: framework.Use(s), Weight: 2})
	}
	f, err := New(profile, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	h.Framework = f
	return h
}

func (h *harness) assignment() framework.Assignment {
	return framework.Assignment{Pod: h.pod, Node: "n1", State: h.state}
}

func (h *harness) calls(point string) (got []string) {
	for _, l := range h.log {
		if name, p, _ := strings.Cut(l, "."); p == point {
			got = append(got, name)
		}
	}
	return got
}

func TestPreFilter(t *testing.T) {
	no := framework.NewStatus(framework.Unschedulable, "no")
	never := framework.NewStatus(framework.UnschedulableAndUnresolvable, "never")
	for _, tc := range []struct {
		name   string
		a, b   spy
		code   framework.Code
		text   string
		called int
		names  int // -1 for all
	}{
		{"all", spy{}, spy{}, framework.Success, "", 2, -1},
		{"intersection", spy{names: []string{"x", "y"}}, spy{names: []string{"y", "z"}}, framework.Success, "", 2, 1},
		{"disjoint", spy{names: []string{"x"}}, spy{names: []string{"z"}}, framework.UnschedulableAndUnresolvable, "node(s) didn't satisfy plugin(s) [A B] simultaneously", 2, 0},
		{"empty", spy{names: []string{}}, spy{}, framework.UnschedulableAndUnresolvable, "node(s) didn't satisfy plugin A", 1, 0},
		{"unschedulable goes on", spy{preFilter: no}, spy{}, framework.Unschedulable, "no", 2, -1},
		{"unresolvable stops", spy{preFilter: never}, spy{}, framework.UnschedulableAndUnresolvable, "never", 1, -1},
		{"error stops", spy{preFilter: framework.AsStatus(errors.New("broken"))}, spy{}, framework.Error, "PreFilter of plugin A: broken", 1, -1},
		{"wait is not allowed", spy{preFilter: framework.NewStatus(framework.Wait)}, spy{}, framework.Error, "PreFilter of plugin A: status Wait is not allowed here", 1, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.a.name, tc.b.name = "A", "B"
			h := build(t, &tc.a, &tc.b)
			got, st := h.RunPreFilter(h.state, h.pod, h.Snapshot())
			if st.Code() != tc.code || st.Message() != tc.text {
				t.Errorf("status = %v, want %s %q", st, tc.code, tc.text)
			}
			if n := len(h.calls("PreFilter")); n != tc.called {
				t.Errorf("%d plugins called, want %d", n, tc.called)
			}
			if (got.Names == nil) != (tc.names < 0) || (tc.names >= 0 && len(got.Names) != tc.names) {
				t.Errorf("names = %v, want %d", got.Names, tc.names)
			}
		})
	}
}

func TestSkipsAndFilters(t *testing.T) {
	h := build(t, &spy{name: "A", preFilter: framework.NewStatus(framework.Skip), filter: framework.NewStatus(framework.Unschedulable, "a")},
		&spy{name: "B", filter: framework.NewStatus(framework.Unschedulable, "b")},
		&spy{name: "C"})
	if _, st := h.RunPreFilter(h.state, h.pod, h.Snapshot()); !st.IsSuccess() {
		t.Fatal(st)
	}
	var node framework.NodeInfo
	if err := node.SetNode(&corev1.Node{Status: &corev1.NodeStatus{Allocatable: map[string]string{"pods": "1"}}}); err != nil {
		t.Fatal(err)
	}
	st := h.RunFilter(h.state, h.pod, &node)
	if st.Plugin() != "B" || !slices.Equal(h.calls("Filter"), []string{"B"}) {
		t.Errorf("status %v after %v, want B's, with A skipped and C not reached", st, h.calls("Filter"))
	}
	h = build(t, &spy{name: "A", filter: framework.NewStatus(framework.Skip)})
	if st := h.RunFilter(h.state, h.pod, &node); st.Code() != framework.Error {
		t.Errorf("a Filter that skips gives %v, want an error", st)
	}
}

func (h *harness) runScore(nodes *framework.Snapshot) ([]int64, *framework.Status) {
	if st := h.RunPreScore(h.state, h.pod, nodes.Columns(), nodes.Positions()); !st.IsSuccess() {
		return nil, st
	}
	return h.RunScore(h.state, h.pod, nodes.Columns(), nodes.Positions(), nil)
}

func TestScore(t *testing.T) {
	nodes, err := framework.NewSnapshot([]*corev1.Node{{Metadata: &metav1.ObjectMeta{Name: "x"}}, {Metadata: &metav1.ObjectMeta{Name: "y"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := build(t, &spy{name: "Zero"})
	base, st := h.runScore(nodes)
	if !st.IsSuccess() {
		t.Fatal(st)
	}
	h = build(t, &spy{name: "A", scores: map[string]int64{"x": 10, "y": 30}},
		&spy{name: "B", scores: map[string]int64{"x": 99}, preScore: framework.NewStatus(framework.Skip)})
	got, st := h.runScore(nodes)
	if !st.IsSuccess() || got[0]-base[0] != 20 || got[1]-base[1] != 60 {
		t.Errorf("scores = %v (%v), want 20 and 60 more than %v", got, st, base)
	}
	for _, bad := range []int64{-1, 101} {
		h = build(t, &spy{name: "A", scores: map[string]int64{"y": bad}})
		if _, st := h.runScore(nodes); st.Code() != framework.Error || !strings.Contains(st.Message(), "plugin A scores node y") {
			t.Errorf("a score of %d gives %v, want an error that names plugin and node", bad, st)
		}
	}
}

func TestReserveAndUnreserve(t *testing.T) {
	h := build(t, &spy{name: "A"}, &spy{name: "B", reserve: framework.NewStatus(framework.Unschedulable, "full")}, &spy{name: "C"})
	if st := h.RunReserve(t.Context(), h.assignment()); st.Plugin() != "B" || !st.IsRejected() {
		t.Errorf("status = %v, want B's", st)
	}
	h.RunUnreserve(t.Context(), h.assignment())
	if got := h.calls("Unreserve"); !slices.Equal(got, []string{"C", "B", "A"}) {
		t.Errorf("Unreserve of %v, want all in reverse order", got)
	}
}

func TestPermit(t *testing.T) {
	wait := framework.NewStatus(framework.Wait)
	for _, tc := range []struct {
		name  string
		act   func(*harness)
		after time.Duration
		want  string
	}{
		{"allowed by all", func(h *harness) { h.WaitingPod("u").Allow("A"); h.WaitingPod("u").Allow("B") }, 0, ""},
		{"allowed by one, the other times out", func(h *harness) { h.WaitingPod("u").Allow("A") }, 20 * time.Second, "rejected due to timeout after waiting 20s at plugin B"},
		{"first timer wins", func(*harness) {}, 10 * time.Second, "rejected due to timeout after waiting 10s at plugin A"},
		{"rejected", func(h *harness) { h.WaitingPod("u").Reject("B", "no"); h.WaitingPod("u").Allow("A") }, 0, "no"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := build(t, &spy{name: "A", permit: wait, timeout: 10 * time.Second}, &spy{name: "B", permit: wait, timeout: 20 * time.Second})
				if st := h.RunPermit(t.Context(), h.assignment()); !st.IsWait() {
					t.Fatalf("Permit = %v, want Wait", st)
				}
				begin := time.Now()
				tc.act(h)
				st := h.WaitOnPermit(t.Context(), h.pod)
				if st.Message() != tc.want || time.Since(begin) != tc.after {
					t.Errorf("%v after %s, want %q after %s", st, time.Since(begin), tc.want, tc.after)
				}
				if h.WaitingPod("u") != nil {
					t.Error("the pod is still held")
				}
			})
		})
	}
	h := build(t, &spy{name: "A", permit: wait, timeout: time.Second}, &spy{name: "B", permit: framework.NewStatus(framework.Unschedulable, "no")}, &spy{name: "C"})
	if st := h.RunPermit(t.Context(), h.assignment()); st.Message() != "no" || h.WaitingPod("u") != nil {
		t.Errorf("Permit = %v, want B's refusal and nothing held", st)
	}
	if got := h.calls("Permit"); len(got) != 3 {
		t.Errorf("Permit of %v, want all three", got)
	}
}

func TestBind(t *testing.T) {
	skip := framework.NewStatus(framework.Skip)
	h := build(t, &spy{name: "A", bind: skip}, &spy{name: "B"}, &spy{name: "C"})
	if st := h.RunBind(t.Context(), nil); !st.IsSuccess() || !slices.Equal(h.calls("Bind"), []string{"A", "B"}) {
		t.Errorf("%v after %v, want success from B", st, h.calls("Bind"))
	}
	h = build(t, &spy{name: "A", bind: skip})
	if st := h.RunBind(t.Context(), nil); st.Code() != framework.Error {
		t.Errorf("all skipped: %v, want an error", st)
	}
}

func TestProfileErrorsAreAllSaid(t *testing.T) {
	twice := plugins.Default("s")
	twice.Plugins = append(twice.Plugins, twice.Plugins[1], framework.Registration{New: framework.Use(&spy{name: "A"})})
	twice.Order = map[framework.Point][]string{framework.PointReserve: {"PrioritySort"}, framework.PointFilter: {"Nobody"}}
	_, err := New(twice, Deps{})
	for _, want := range []string{"PrioritySort is listed twice", "A scores with weight 0", "Reserve lists plugin PrioritySort, which does not implement it", "Filter lists plugin Nobody"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	if _, err = New(framework.Profile{}, Deps{}); err == nil || !strings.Contains(err.Error(), "no queue sort plugin") || !strings.Contains(err.Error(), "no bind plugin") {
		t.Errorf("an empty profile gives %v", err)
	}
}
