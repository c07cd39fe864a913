package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	policyv1 "trireme.dev/proto/gen/trireme/policy/v1"
	recordv1 "trireme.dev/proto/gen/trireme/record/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/inmemory"
	"trireme.dev/services/scheduler/internal/clustertest"
	"trireme.dev/services/scheduler/internal/recording"
)

// twoProfiles has a second profile that packs.
const twoProfiles = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: packed
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
`

// history is something to happen to a cluster, drawn beforehand.
type history struct {
	seed uint64
	acts []func(*inmemory.Scheduler)
}

// drawHistory draws one in which pods of several kinds, queues and profiles, gangs, nodes and budgets come and go.
func drawHistory(t *rapid.T) *history {
	h := &history{seed: rapid.Uint64Range(0, 50).Draw(t, "seed")}
	add := func(act func(*inmemory.Scheduler)) { h.acts = append(h.acts, act) }
	nodes := map[string]*corev1.Node{}
	setNode := func(name string) {
		before, after := nodes[name], clustertest.Node(t, name)
		nodes[name] = after
		add(func(s *inmemory.Scheduler) { s.Node(before, after) })
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		setNode(fmt.Sprint("n", i))
	}
	add(func(s *inmemory.Scheduler) {
		s.Queue(nil, &schedulingv1.Queue{Metadata: &metav1.ObjectMeta{Name: "team", Uid: "q"}, Spec: &schedulingv1.QueueSpec{Limit: map[string]string{"cpu": "5"}}})
		s.Queue(nil, &schedulingv1.Queue{Metadata: &metav1.ObjectMeta{Name: "lab", Uid: "l"}, Spec: &schedulingv1.QueueSpec{}})
		s.Object(nil, &policyv1.PodDisruptionBudget{
			Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "b", Uid: "b", ResourceVersion: "1"},
			Spec:     &policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}},
			Status:   &policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1},
		})
	})
	shapes := []*corev1.PodSpec{clustertest.Shape(t), clustertest.Shape(t), {
		SchedulerName: proto.String(clustertest.SchedulerName),
		Containers:    []*corev1.Container{{Name: "main", Resources: &corev1.ResourceRequirements{Requests: map[string]string{"cpu": "1500m"}}}},
	}}
	var pods []string
	draw := func(name, group string) {
		p := clustertest.Pod(rapid.SampledFrom(shapes).Draw(t, "shape"), name, "")
		p.Spec.SchedulerName = proto.String(rapid.SampledFrom([]string{"default-scheduler", "default-scheduler", "packed", "foreign"}).Draw(t, "profile"))
		p.Spec.Priority = proto.Int32(rapid.SampledFrom([]int32{0, 0, 5, 9}).Draw(t, "priority"))
		if q := rapid.SampledFrom([]string{"", "", "team", "lab"}).Draw(t, "queue"); q != "" {
			p.Metadata.Labels[framework.LabelQueue] = q
		}
		if group != "" {
			p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: proto.String(group)}
			p.Spec.Priority, p.Spec.SchedulerName = proto.Int32(3), proto.String(clustertest.SchedulerName)
		}
		pods = append(pods, name)
		add(func(s *inmemory.Scheduler) { s.Create(p) })
	}
	for i := range rapid.IntRange(5, 40).Draw(t, "acts") {
		switch rapid.SampledFrom([]string{"pods", "pods", "pods", "gang", "delete", "node", "drop", "time"}).Draw(t, "act") {
		case "pods":
			for k := range rapid.IntRange(1, 6).Draw(t, "count") {
				draw(fmt.Sprintf("p%d-%d", i, k), "")
			}
		case "gang":
			name, size := fmt.Sprint("g", i), rapid.IntRange(1, 4).Draw(t, "size")
			add(func(s *inmemory.Scheduler) {
				s.Group(nil, &schedulingv1.PodGroup{
					Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Uid: name},
					Spec: &schedulingv1.PodGroupSpec{SchedulingPolicy: &schedulingv1.PodGroupSchedulingPolicy{
						Gang: &schedulingv1.GangSchedulingPolicy{MinCount: int32(size)},
					}},
				})
			})
			for k := range size {
				draw(fmt.Sprintf("%s-%d", name, k), name)
			}
		case "delete":
			if len(pods) > 0 {
				uid := rapid.SampledFrom(pods).Draw(t, "pod")
				add(func(s *inmemory.Scheduler) { s.Delete(uid) })
			}
		case "node":
			setNode(fmt.Sprint("n", rapid.IntRange(0, 6).Draw(t, "node")))
		case "drop":
			name := fmt.Sprint("n", rapid.IntRange(0, 6).Draw(t, "node"))
			if n := nodes[name]; n != nil {
				delete(nodes, name)
				add(func(s *inmemory.Scheduler) { s.Node(n, nil) })
			}
		case "time":
			d := time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second
			add(func(*inmemory.Scheduler) { time.Sleep(d) }) // of the bubble
		}
	}
	return h
}

// record has a scheduler live through a history, with all that goes on beside it, and returns its record.
func (h *history) record(t *testing.T, file string) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{ConfigFile: "two.yaml", configuration: []byte(twoProfiles)}
		profiles, err := cfg.configure(slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		chance := rand.New(rand.NewPCG(h.seed, 0))
		s, err := inmemory.New(inmemory.Config{
			Profile: profiles[0], OtherProfiles: profiles[1:], Configuration: cfg.configuration, Seed: h.seed, Record: file,
			Refuse: func([]*corev1.Binding) error {
				mu.Lock()
				defer mu.Unlock()
				if chance.IntN(5) == 0 {
					return apierr.Conflict("Pod", "default/any", "the pod changed")
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		for _, act := range h.acts {
			act(s)
		}
		time.Sleep(time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// TestReplayMakesTheSameDecisions over random histories of the real, asynchronous chain.
func TestReplayMakesTheSameDecisions(t *testing.T) {
	decisions, placed, preempted, failed, n := 0, 0, 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		h := drawHistory(rt)
		n++
		file := filepath.Join(t.TempDir(), "record")
		h.record(t, file)
		var out strings.Builder
		same, err := Replay(file, "", &out)
		if err != nil || !same {
			rt.Fatalf("%v\n%s", err, out.String())
		}
		for _, e := range entries(t, file) {
			if a := e.GetAttempt(); a != nil {
				decisions++
				placed += len(a.GetPlaced())
				for _, f := range a.GetFailed() {
					preempted += len(f.GetVictims())
				}
			}
			if e.GetEnded().GetStatus() != nil {
				failed++
			}
		}
	})
	if placed == 0 || preempted == 0 || failed == 0 {
		t.Errorf("%d histories, %d decisions, %d pods placed, %d preempted, %d bindings failed: want some of each", n, decisions, placed, preempted, failed)
	}
	t.Logf("%d histories, %d decisions, %d pods placed, %d preempted, %d bindings failed", n, decisions, placed, preempted, failed)
}

// entries reads a record.
func entries(t *testing.T, file string) (out []*recordv1.Entry) {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, err := recording.NewReader(in)
	for err == nil {
		var e *recordv1.Entry
		if e, err = r.Next(); err == nil {
			out = append(out, e)
		}
	}
	return out
}

const packs = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
  plugins:
    score: {disabled: [{name: NodeResourcesBalancedAllocation}]}
`

// recordSmall records a small cluster, in which everything happens after what came before has come to rest, and returns the
// record: pods are spread over two nodes until a large one fits on neither and preempts.
func recordSmall(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "record")
	synctest.Test(t, func(t *testing.T) {
		s, err := inmemory.New(inmemory.Config{Record: file})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait() // or the first step, that it has nothing to do, would come before the nodes at one time and not at another
		for _, name := range []string{"n1", "n2"} {
			s.Node(nil, &corev1.Node{
				Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{framework.LabelHostname: name}},
				Status:   &corev1.NodeStatus{Allocatable: map[string]string{"cpu": "4", "memory": "8Gi", "pods": "10"}},
			})
		}
		for _, p := range []struct {
			name, cpu string
			priority  int32
		}{{"a", "1", 0}, {"b", "1", 0}, {"c", "1", 0}, {"large", "4", 9}, {"d", "1", 0}, {"huge", "5", 0}} {
			spec := &corev1.PodSpec{
				SchedulerName: proto.String(clustertest.SchedulerName), Priority: proto.Int32(p.priority),
				Containers: []*corev1.Container{{Name: "main", Resources: &corev1.ResourceRequirements{Requests: map[string]string{"cpu": p.cpu, "memory": "1Gi"}}}},
			}
			s.Create(clustertest.Pod(spec, p.name, ""))
			time.Sleep(20 * time.Second)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
	return file
}

// TestReplayUnderAnotherConfiguration tells what would have come of it, and finds nothing where the configuration comes to
// the same.
func TestReplayUnderAnotherConfiguration(t *testing.T) {
	file := recordSmall(t)
	for _, tc := range []struct {
		config string
		same   bool
		want   string
	}{
		{packs, false, `default/b: n2 → n1
default/b: is not preempted, and was by default/large
6 pods: 5 as recorded, 1 on another node, 0 nowhere that had one, 0 on one that had none; 0 preempted, 1 in the record
`},
		{strings.ReplaceAll(twoProfiles, "packed", "other"), true, `6 pods: 6 as recorded, 0 on another node, 0 nowhere that had one, 0 on one that had none; 1 preempted, 1 in the record
`},
	} {
		other := filepath.Join(t.TempDir(), "other.yaml")
		if err := os.WriteFile(other, []byte(tc.config), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		same, err := Replay(file, other, &out)
		if err != nil || same != tc.same || out.String() != tc.want {
			t.Errorf("same %t, %v, printed:\n%s", same, err, out.String())
		}
	}
}

// TestReplayShowsTheFirstDifference of a record that somebody changed: another seed has the first tie go the other way.
func TestReplayShowsTheFirstDifference(t *testing.T) {
	file := recordSmall(t)
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, err := recording.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	r.Header().Seed = 1
	changed := filepath.Join(t.TempDir(), "changed")
	f, err := recording.Create(changed, r.Header(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries(t, file) {
		f.Take(recording.Step{Entry: e})
	}
	f.Close()
	var out strings.Builder
	same, err := Replay(changed, "", &out)
	want := regexp.MustCompile(`^0 decisions as recorded, then entry 5, at byte \d+, came out otherwise
- [0-9:.]+ attempt 1 at default/a: default/a → n1
\+ [0-9:.]+ attempt 1 at default/a: default/a → n2
$`)
	if err != nil || same || !want.MatchString(out.String()) {
		t.Errorf("same %t, %v, printed:\n%s", same, err, out.String())
	}
}

// TestReplayOfAnEndedProcess: what was written before a kill is replayed.
func TestReplayOfAnEndedProcess(t *testing.T) {
	file := recordSmall(t)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data[:len(data)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	same, err := Replay(file, "", &out)
	if err != nil || !same || !strings.Contains(out.String(), "ends within an entry") || !strings.Contains(out.String(), "decisions, all as recorded") {
		t.Errorf("same %t, %v, printed:\n%s", same, err, out.String())
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = Replay(file, "", &out); err == nil || !strings.Contains(err.Error(), "the record is damaged at byte ") {
		t.Errorf("a damaged record: %v", err)
	}
}

// TestReplayOfARealScheduler, with leader election, volumes' kinds and all that goes with a gateway.
func TestReplayOfARealScheduler(t *testing.T) {
	c := newCluster(t)
	file := filepath.Join(t.TempDir(), "record")
	c.node("n1", map[string]string{"nvidia.com/gpu": "4"})
	c.create(pod("before", nil))
	stop := c.schedule(func(cfg *Config) { cfg.Record = file })
	c.gang("g", 2)
	c.create(pod("g-0", inGroup("g", 1)))
	c.create(pod("g-1", inGroup("g", 1)))
	c.create(pod("waits", gpus(3)))
	c.awaitBound("before", "g-0", "g-1")
	c.awaitEvent("waits", "FailedScheduling", "Insufficient nvidia.com/gpu")
	c.node("n2", map[string]string{"nvidia.com/gpu": "4"})
	c.awaitBound("waits")
	stop()
	var out strings.Builder
	same, err := Replay(file, "", &out)
	if err != nil || !same {
		t.Errorf("%v\n%s", err, out.String())
	}
	placed := 0
	for _, e := range entries(t, file) {
		placed += len(e.GetAttempt().GetPlaced())
	}
	if placed < 4 {
		t.Errorf("%d pods placed in the record, want 4 or more", placed)
	}
}
