package cache

import (
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
)

// TestBooks compares what is kept up, in the cache and in a snapshot, with counting anew, through random changes.
func TestBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := New(slog.New(slog.DiscardHandler))
		var s Snapshot
		pods, n := map[string]*framework.PodInfo{}, 0
		node := func() string { return fmt.Sprint("n", rapid.IntRange(0, 3).Draw(t, "node")) }
		newPod := func(on string) *framework.PodInfo {
			n++
			p := &corev1.Pod{
				Metadata: &metav1.ObjectMeta{Namespace: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace"), Name: fmt.Sprint("p", n), Uid: fmt.Sprint("p", n)},
				Spec: &corev1.PodSpec{Containers: []*corev1.Container{{
					Resources: &corev1.ResourceRequirements{Requests: map[string]string{"cpu": rapid.SampledFrom([]string{"1", "500m"}).Draw(t, "cpu"), "x.io/y": "2"}},
				}}},
			}
			if queue := rapid.SampledFrom([]string{"", "q0", "q1"}).Draw(t, "queue"); queue != "" {
				p.Metadata.Labels = map[string]string{framework.LabelQueue: queue}
			}
			if on != "" {
				p.Spec.NodeName = proto.String(on)
			}
			info, err := framework.NewPodInfo(p)
			if err != nil {
				t.Fatal(err)
			}
			pods[info.UID()] = info
			return info
		}
		one := func() *framework.PodInfo {
			if len(pods) == 0 {
				t.Skip("none")
			}
			return pods[rapid.SampledFrom(slices.Sorted(maps.Keys(pods))).Draw(t, "pod")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"node": func(*rapid.T) {
				c.SetNode(&corev1.Node{
					Metadata: &metav1.ObjectMeta{Name: node()},
					Status:   &corev1.NodeStatus{Allocatable: map[string]string{"cpu": rapid.SampledFrom([]string{"4", "8"}).Draw(t, "size"), "x.io/y": "3"}},
				})
			},
			"node goes": func(*rapid.T) { c.RemoveNode(node()) },
			"queue": func(*rapid.T) {
				c.SetQueue(&schedulingv1.Queue{Metadata: &metav1.ObjectMeta{Name: fmt.Sprint("q", rapid.IntRange(0, 1).Draw(t, "queue"))}})
			},
			"queue goes": func(*rapid.T) { c.RemoveQueue(fmt.Sprint("q", rapid.IntRange(0, 1).Draw(t, "queue"))) },
			"namespace": func(*rapid.T) {
				c.SetNamespace("a", map[string]string{framework.LabelQueue: rapid.SampledFrom([]string{"q0", "q1"}).Draw(t, "of a")})
			},
			"namespace goes": func(*rapid.T) { c.RemoveNamespace("a") },
			"pod bound":      func(*rapid.T) { c.AddPod(newPod(node())) },
			"pod assumed": func(*rapid.T) {
				p := newPod("")
				if c.Assume(p, node()) != nil {
					delete(pods, p.UID())
				}
			},
			"pod forgotten": func(*rapid.T) { c.Forget(one()) },
			"pod gone": func(*rapid.T) {
				p := one()
				c.RemovePod(p.UID())
				delete(pods, p.UID())
			},
			"": func(t *rapid.T) {
				if err := c.Update(&s); err != nil {
					t.Fatal(err)
				}
				books := s.Books()
				want := map[string]map[string]int64{}
				if len(books.Queues) > 0 {
					for _, st := range c.pods {
						queue := framework.QueueOf(st.pod, c.namespaces[st.pod.Namespace()])
						if want[queue] == nil {
							want[queue] = map[string]int64{}
						}
						for r, v := range st.pod.Uses {
							want[queue][r] += v
						}
					}
					var cpu int64
					for _, node := range s.Nodes() {
						cpu += node.Allocatable.MilliCPU
					}
					if books.Capacity["cpu"] != cpu {
						t.Fatalf("capacity %d, want %d", books.Capacity["cpu"], cpu)
					}
					if got := strip(books.Used); !reflect.DeepEqual(got, strip(want)) {
						t.Fatalf("used %v, want %v", got, strip(want))
					}
				}
				if len(s.Nodes()) == 0 {
					return
				}
				// In thought, and back.
				before := books.Clone()
				p := newPod("")
				delete(pods, p.UID())
				s.Assume(p, s.Nodes()[0].Name())
				if err := s.Forget(p, s.Nodes()[0].Name()); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(strip(before.Used), strip(s.Books().Used)) {
					t.Fatalf("a pod assumed and forgotten leaves %v of %v", s.Books().Used, before.Used)
				}
			},
		})
	})
}

// strip leaves out what is nothing.
func strip(used map[string]map[string]int64) map[string]map[string]int64 {
	out := map[string]map[string]int64{}
	for q, u := range used {
		for r, v := range u {
			if v != 0 {
				if out[q] == nil {
					out[q] = map[string]int64{}
				}
				out[q][r] = v
			}
		}
	}
	return out
}
