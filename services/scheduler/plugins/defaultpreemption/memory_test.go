package defaultpreemption_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"

	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins/defaultpreemption"
)

// TestMemoryIsExact runs a history of preemptions by pods of few shapes, among pods that come and go and nominations that are
// made and taken back. What the plugin decides, messages included, is what one decides that remembers nothing.
func TestMemoryIsExact(t *testing.T) {
	preempted := 0
	rapid.Check(t, func(t *rapid.T) {
		var nodes []*corev1.Node
		for i := range rapid.IntRange(2, 6).Draw(t, "nodes") {
			nodes = append(nodes, node(fmt.Sprintf("n%d", i)))
		}
		w := newWorld(t, nodes, nil, 1, nil)
		on := map[string]string{} // nodes by pod
		running := map[string]*framework.PodInfo{}
		var waiting []*framework.PodInfo
		n := 0
		draw := func(t *rapid.T) *framework.PodInfo {
			n++
			return shape{
				name: fmt.Sprintf("p%d", n), cpu: rapid.Int64Range(1, 3).Draw(t, "cpu"), priority: rapid.Int32Range(0, 2).Draw(t, "priority"),
				start: rapid.Int64Range(1, 2).Draw(t, "start"), guarded: rapid.Bool().Draw(t, "guarded"),
			}.pod(t, "")
		}
		run := func(t *rapid.T, pod *framework.PodInfo) {
			name := fmt.Sprintf("n%d", rapid.IntRange(0, len(nodes)-1).Draw(t, "node"))
			if w.snapshot.Node(name).Requested.MilliCPU+pod.Request.MilliCPU > capacity*1000 {
				return
			}
			w.snapshot.Assume(pod, name)
			w.fw.Nominate(pod, "")
			on[pod.UID()], running[pod.UID()] = name, pod
		}
		end := func(uid string) {
			if err := w.snapshot.Forget(running[uid], on[uid]); err != nil {
				t.Fatal(err)
			}
			delete(on, uid)
			delete(running, uid)
		}
		attempt := func(t *rapid.T, pod *framework.PodInfo) {
			said := func() string {
				fits, result, st := w.attempt(t, pod)
				out := fmt.Sprintln(fits, st)
				if result != nil {
					out += fmt.Sprintln(result.NominatedNode, result.Clear)
					for _, v := range result.Victims {
						out += v.Pod.Name() + "\n"
					}
				}
				return out
			}
			remembering, got := w.plugin, said()
			var err error
			if w.plugin, err = defaultpreemption.New(w.fw, defaultpreemption.DefaultArgs()); err != nil {
				t.Fatal(err)
			}
			_, result, st := w.attempt(t, pod)
			if want := said(); got != want {
				t.Fatalf("pod %s of priority %d: got %swant %s", pod.Name(), pod.Priority(), got, want)
			}
			w.plugin = remembering
			if result == nil || !st.IsSuccess() {
				return
			}
			preempted++
			w.fw.Nominate(pod, result.NominatedNode)
			waiting = append(waiting, pod)
			if rapid.Bool().Draw(t, "at once") {
				for _, v := range result.Victims {
					end(v.Pod.UID())
				}
			}
		}
		for range 3 * len(nodes) {
			run(t, draw(t))
		}
		t.Repeat(map[string]func(*rapid.T){
			"pod runs":  func(t *rapid.T) { run(t, draw(t)) },
			"pod too":   func(t *rapid.T) { run(t, draw(t)) },
			"new pod":   func(t *rapid.T) { attempt(t, draw(t)) },
			"newer pod": func(t *rapid.T) { attempt(t, draw(t)) },
			"again": func(t *rapid.T) {
				if len(waiting) == 0 {
					t.Skip("none waits")
				}
				attempt(t, rapid.SampledFrom(waiting).Draw(t, "pod"))
			},
			"nominated pod runs": func(t *rapid.T) {
				if len(waiting) == 0 {
					t.Skip("none waits")
				}
				pod := rapid.SampledFrom(waiting).Draw(t, "pod")
				run(t, pod)
				if _, ok := on[pod.UID()]; ok {
					waiting = slices.DeleteFunc(waiting, func(o *framework.PodInfo) bool { return o == pod })
				}
			},
			"pod ends": func(t *rapid.T) {
				if len(running) == 0 {
					t.Skip("none runs")
				}
				uids := make([]string, 0, len(on))
				for uid := range on {
					uids = append(uids, uid)
				}
				slices.Sort(uids)
				end(rapid.SampledFrom(uids).Draw(t, "pod"))
			},
			"nomination is taken back": func(t *rapid.T) {
				if len(waiting) == 0 {
					t.Skip("none waits")
				}
				w.fw.Nominate(rapid.SampledFrom(waiting).Draw(t, "pod"), "")
			},
		})
	})
	if preempted < 100 {
		t.Errorf("%d preemptions in all histories", preempted)
	}
}

// TestRoomForOneIsNotForEquals: what is true of the node on which room is being made for a pod is remembered neither for its
// equals nor, found out for them, for the pod.
func TestRoomForOneIsNotForEquals(t *testing.T) {
	victim := shape{name: "a", cpu: capacity, priority: 1}.pod(t, "n")
	w := newWorld(t, []*corev1.Node{node("n")}, []*framework.PodInfo{victim}, 0, nil)
	first, equal := shape{name: "first", cpu: capacity, priority: 9}.pod(t, ""), shape{name: "equal", cpu: capacity, priority: 9}.pod(t, "")
	for round := range 3 {
		if _, result, st := w.attempt(t, first); !st.IsSuccess() || result.NominatedNode != "n" {
			t.Fatalf("round %d: got %+v, %v; want room on n", round, result, st)
		}
		w.fw.Nominate(first, "n")
		if _, result, st := w.attempt(t, equal); st.IsSuccess() {
			t.Fatalf("round %d: room on %s, which is being made for another", round, result.NominatedNode)
		}
	}
}
