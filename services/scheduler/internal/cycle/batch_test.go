package cycle

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/cache"
	"trireme.dev/services/scheduler/internal/clustertest"
	"trireme.dev/services/scheduler/internal/runtime"
	"trireme.dev/services/scheduler/plugins"
)

// twin is a cluster with a scheduler that batches, or one that does not.
type twin struct {
	*world
	fw *runtime.Framework
}

func newTwin(t *rapid.T, seed uint64) *twin {
	fw, err := runtime.New(plugins.Default(clustertest.SchedulerName), runtime.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{cache: cache.New(slog.New(slog.DiscardHandler)), on: map[string][]*framework.PodInfo{}}
	w.decider = NewDecider(fw, &w.snapshot, seed)
	return &twin{w, fw}
}

// TestBatchingIsExact runs the same history with batching and without: nodes that come, go and change, pods of few shapes one
// by one and in gangs, pods that go, and room that is being made for some. All decisions, messages included, are the same.
func TestBatchingIsExact(t *testing.T) {
	var last *twin
	hits := 0
	rapid.Check(t, func(t *rapid.T) {
		defer func() { hits += last.decider.batches.answers }()
		seed := rapid.Uint64().Draw(t, "seed")
		twins := []*twin{newTwin(t, seed), newTwin(t, seed)}
		twins[1].decider.NoBatching()
		last = twins[0]
		for _, w := range twins {
			w.cache.SetQueue(&schedulingv1.Queue{
				Metadata: &metav1.ObjectMeta{Name: "q"}, Spec: &schedulingv1.QueueSpec{Limit: map[string]string{"cpu": "2"}},
			})
		}
		shapes := make([]*corev1.PodSpec, rapid.IntRange(1, 3).Draw(t, "shapes"))
		for i := range shapes {
			shapes[i] = clustertest.Shape(t)
		}
		pods, n := map[string]*framework.PodInfo{}, 0
		var waiting []*framework.PodInfo // pods for which room is being made
		newPod := func(t *rapid.T) *framework.PodInfo {
			n++
			shape := proto.CloneOf(rapid.SampledFrom(shapes).Draw(t, "shape"))
			shape.Priority = proto.Int32(rapid.Int32Range(0, 2).Draw(t, "priority"))
			pod := clustertest.Pod(shape, fmt.Sprint("p", n), "")
			if rapid.IntRange(0, 2).Draw(t, "queue") == 2 {
				pod.Metadata.Labels[framework.LabelQueue] = "q"
			}
			return clustertest.Info(t, pod)
		}
		attempt := func(t *rapid.T, q *framework.Queued) {
			var said []string
			for _, w := range twins {
				if err := w.cache.Update(&w.snapshot); err != nil {
					t.Fatal(err)
				}
				d := w.decider.Decide(context.Background(), q, nil)
				if d.Err != nil {
					t.Fatal(d.Err)
				}
				for _, a := range d.Placed {
					if err := w.cache.Assume(a.Pod, a.Node); err != nil {
						t.Fatal(err)
					}
					w.fw.Nominator().Forget(a.Pod.UID())
					pods[a.Pod.UID()] = a.Pod
				}
				decided := printed(d)
				for _, f := range d.Failed {
					decided += fmt.Sprintf("%s makes room on %q, %d victims\n", f.Pod.Name(), f.NominatedNode, len(f.Victims))
					w.fw.Nominate(f.Pod, f.NominatedNode)
					if f.NominatedNode != "" && w == twins[0] {
						waiting = append(waiting, f.Pod)
					}
				}
				said = append(said, decided)
			}
			if said[0] != said[1] {
				t.Fatalf("with batching:\n%swithout:\n%s", said[0], said[1])
			}
			twins[0].verify(t, q.Pods[0])
		}
		setNode := func(t *rapid.T) {
			node := clustertest.Node(t, fmt.Sprint("n", rapid.IntRange(0, 15).Draw(t, "node")))
			for _, w := range twins {
				w.cache.SetNode(node)
			}
		}
		for range 12 {
			setNode(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"node": setNode,
			"node goes": func(t *rapid.T) {
				name := fmt.Sprint("n", rapid.IntRange(0, 15).Draw(t, "node"))
				for _, w := range twins {
					w.cache.RemoveNode(name)
				}
			},
			"pod":      func(t *rapid.T) { attempt(t, &framework.Queued{Pods: []*framework.PodInfo{newPod(t)}}) },
			"pod too":  func(t *rapid.T) { attempt(t, &framework.Queued{Pods: []*framework.PodInfo{newPod(t)}}) },
			"pod also": func(t *rapid.T) { attempt(t, &framework.Queued{Pods: []*framework.PodInfo{newPod(t)}}) },
			"gang": func(t *rapid.T) {
				members := make([]*framework.PodInfo, rapid.IntRange(2, 5).Draw(t, "pods"))
				for i := range members {
					members[i] = newPod(t)
				}
				g := gang(fmt.Sprint("g", n), rapid.IntRange(1, len(members)).Draw(t, "min"), 0, members...)
				if rapid.Bool().Draw(t, "topology") {
					g.Group.Spec.SchedulingConstraints = within("rack")
				}
				attempt(t, g)
			},
			"pod goes": func(t *rapid.T) {
				if len(pods) == 0 {
					t.Skip("none")
				}
				uid := rapid.SampledFrom(slices.Sorted(maps.Keys(pods))).Draw(t, "pod")
				delete(pods, uid)
				for _, w := range twins {
					w.cache.RemovePod(uid)
				}
			},
			"pod is confirmed": func(t *rapid.T) {
				if len(pods) == 0 {
					t.Skip("none")
				}
				uid := rapid.SampledFrom(slices.Sorted(maps.Keys(pods))).Draw(t, "pod")
				bound := proto.CloneOf(pods[uid].Pod)
				bound.Spec.NodeName = proto.String(twins[0].cache.NodeOf(uid))
				for _, w := range twins {
					w.cache.AddPod(clustertest.Info(t, bound))
				}
			},
			"waiting pod": func(t *rapid.T) {
				if len(waiting) == 0 {
					t.Skip("none")
				}
				pod := rapid.SampledFrom(waiting).Draw(t, "pod")
				if _, placed := pods[pod.UID()]; placed {
					t.Skip("it is placed")
				}
				attempt(t, &framework.Queued{Pods: []*framework.PodInfo{pod}})
			},
			"room is made": func(t *rapid.T) {
				pod, node := newPod(t), fmt.Sprint("n", rapid.IntRange(0, 15).Draw(t, "node"))
				for _, w := range twins {
					w.fw.Nominate(pod, node)
				}
				if rapid.Bool().Draw(t, "try") {
					attempt(t, &framework.Queued{Pods: []*framework.PodInfo{pod}})
				}
			},
		})
	})
	if hits < 10 { // of 20 histories; without -short there are five times as many
		t.Errorf("batches were used %d times", hits)
	}
	t.Logf("batches were used %d times", hits)
}

// verify compares all that a batch holds, the best or not, with what looking anew gives.
func (w *twin) verify(t *rapid.T, pod *framework.PodInfo) {
	d := w.decider
	positions, nodes := d.snapshot.Positions(), d.snapshot.Columns()
	if len(positions) == 0 {
		return
	}
	// An equal pod for which no room is being made.
	equal := proto.CloneOf(pod.Pod)
	equal.Metadata.Uid = "equal"
	pod = clustertest.Info(t, equal)
	state := framework.NewCycleState()
	narrowed, st := w.fw.RunPreFilter(state, pod, d.snapshot)
	if !st.IsSuccess() {
		return
	}
	b, err := d.batched(state, pod, positions, narrowed, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b == nil {
		return
	}
	feasible, err := d.filter(state, pod, nodes, positions, narrowed)
	if err != nil {
		t.Fatal(err)
	}
	if st := w.fw.RunPreScore(state, pod, nodes, feasible); !st.IsSuccess() {
		t.Fatal(st)
	}
	scores, st := w.fw.RunScore(state, pod, nodes, feasible, nil)
	if !st.IsSuccess() {
		t.Fatal(st)
	}
	want := make([]int64, len(positions))
	for k, i := range positions {
		want[k] = none
		if at, ok := slices.BinarySearch(feasible, i); ok {
			want[k] = scores[at]
		}
		if got, want := b.verdicts.Status(i), d.verdicts.Status(i); !got.Equal(want) {
			t.Fatalf("node %d: the batch knows %v, want %v", i, got, want)
		}
	}
	if !slices.Equal(b.ranking.Total, want) || !slices.Equal(b.tree.score[b.tree.leaves:b.tree.leaves+len(want)], want) {
		t.Fatalf("scores %v, in the tree %v, want %v", b.ranking.Total, b.tree.score[b.tree.leaves:], want)
	}
}

// TestMaxTree compares with looking at all.
func TestMaxTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scores := rapid.SliceOfN(rapid.Int64Range(-1, 3), 1, 20).Draw(t, "scores")
		var tree maxTree
		tree.reset(len(scores))
		tree.fill(scores)
		for range rapid.IntRange(0, 20).Draw(t, "changes") {
			k := rapid.IntRange(0, len(scores)-1).Draw(t, "leaf")
			scores[k] = rapid.Int64Range(-1, 3).Draw(t, "score")
			tree.set(k, scores[k])
			start := rapid.IntRange(0, len(scores)).Draw(t, "start")
			got, ok := tree.best(start)
			want, top := -1, slices.Max(scores)
			for j := range scores {
				if i := (start + j) % len(scores); scores[i] == top && top != none {
					want = i
					break
				}
			}
			if ok != (want >= 0) || (ok && got != want) {
				t.Fatalf("best of %v from %d on is %d %t, want %d", scores, start, got, ok, want)
			}
		}
	})
}
