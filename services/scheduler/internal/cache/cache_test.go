package cache

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
)

func node(name, zone string) *corev1.Node {
	return &corev1.Node{Metadata: &metav1.ObjectMeta{Name: name, Labels: map[string]string{framework.LabelZone: zone}}}
}

func pod(uid, on, group string) *framework.PodInfo {
	p := &corev1.Pod{
		Metadata: &metav1.ObjectMeta{Namespace: "default", Name: uid, Uid: uid},
		Spec: &corev1.PodSpec{Containers: []*corev1.Container{{
			Resources: &corev1.ResourceRequirements{Requests: map[string]string{"cpu": "1", "x.io/y": "1"}},
		}}},
	}
	if on != "" {
		p.Spec.NodeName = proto.String(on)
	}
	if group != "" {
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: proto.String(group)}
	}
	info, err := framework.NewPodInfo(p)
	if err != nil {
		panic(err)
	}
	return info
}

func newCache() *Cache { return New(slog.New(slog.DiscardHandler)) }

func TestPodStates(t *testing.T) {
	c := newCache()
	c.SetNode(node("n1", "a"))
	c.SetNode(node("n2", "a"))
	if err := c.Assume(pod("p", "", "g"), "n1"); err != nil {
		t.Fatal(err)
	}
	if !c.IsAssumed("p") || c.Scheduled(framework.GroupKey{Namespace: "default", Name: "g"}) != 1 {
		t.Error("an assumed pod does not count")
	}
	if err := c.Assume(pod("p", "", "g"), "n2"); err == nil {
		t.Error("assumed twice")
	}
	if err := c.Assume(pod("q", "", ""), "gone"); err == nil {
		t.Error("assumed on a node that does not exist")
	}
	// Confirmed elsewhere: it moves.
	c.AddPod(pod("p", "n2", "g"))
	if c.IsAssumed("p") || c.NodeOf("p") != "n2" {
		t.Errorf("confirmed pod is on %q, assumed %t", c.NodeOf("p"), c.IsAssumed("p"))
	}
	if c.Forget(pod("p", "", "g")) {
		t.Error("a confirmed pod was forgotten")
	}
	if !c.RemovePod("p") || c.RemovePod("p") {
		t.Error("removal was not reported once")
	}
	if n := c.Scheduled(framework.GroupKey{Namespace: "default", Name: "g"}); n != 0 {
		t.Errorf("%d members scheduled, want none", n)
	}
}

func TestNodeOrder(t *testing.T) {
	c := newCache()
	for _, n := range []struct{ name, zone string }{{"a3", "a"}, {"b1", "b"}, {"a1", "a"}, {"c1", "c"}, {"a2", "a"}, {"b2", "b"}} {
		c.SetNode(node(n.name, n.zone))
	}
	var s Snapshot
	order := func() (got []string) {
		if err := c.Update(&s); err != nil {
			t.Fatal(err)
		}
		for _, n := range s.Nodes() {
			got = append(got, n.Name())
		}
		return got
	}
	if got, want := order(), []string{"a1", "b1", "c1", "a2", "b2", "a3"}; !slices.Equal(got, want) {
		t.Errorf("order = %v, want %v", got, want)
	}
	c.SetNode(node("a1", "z"))
	c.RemoveNode("b1")
	if got, want := order(), []string{"a2", "b2", "c1", "a1", "a3"}; !slices.Equal(got, want) {
		t.Errorf("order = %v, want %v", got, want)
	}
}

// TestSnapshotIsTheCache compares a snapshot that is updated now and then with one made from nothing, over random
// histories.
func TestSnapshotIsTheCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCache()
		var s Snapshot
		name := rapid.SampledFrom([]string{"n1", "n2", "n3", "n4"})
		uid := rapid.SampledFrom([]string{"p", "q", "r", "s", "t"})
		t.Repeat(map[string]func(*rapid.T){
			"set node": func(t *rapid.T) {
				c.SetNode(node(name.Draw(t, "node"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone")))
			},
			"remove node": func(t *rapid.T) { c.RemoveNode(name.Draw(t, "node")) },
			"assume":      func(t *rapid.T) { _ = c.Assume(pod(uid.Draw(t, "pod"), "", ""), name.Draw(t, "node")) },
			"forget":      func(t *rapid.T) { c.Forget(pod(uid.Draw(t, "pod"), "", "")) },
			"add pod":     func(t *rapid.T) { c.AddPod(pod(uid.Draw(t, "pod"), name.Draw(t, "node"), "")) },
			"remove pod":  func(t *rapid.T) { c.RemovePod(uid.Draw(t, "pod")) },
			"update": func(t *rapid.T) {
				if err := c.Update(&s); err != nil {
					t.Fatal(err)
				}
				var fresh Snapshot
				if err := c.Update(&fresh); err != nil {
					t.Fatal(err)
				}
				if err := differ(&s, &fresh); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
}

func differ(a, b *Snapshot) error {
	if len(a.Nodes()) != len(b.Nodes()) {
		return fmt.Errorf("%d nodes, want %d", len(a.Nodes()), len(b.Nodes()))
	}
	for i, x := range a.Nodes() {
		y := b.Nodes()[i]
		if x.Node != y.Node || !slices.Equal(x.Pods, y.Pods) || x.Requested.MilliCPU != y.Requested.MilliCPU ||
			!maps.Equal(x.Requested.Scalar, y.Requested.Scalar) || a.Node(y.Name()) != x {
			return fmt.Errorf("node %s: %+v, want %+v", y.Name(), x, y)
		}
		if x.Requested.MilliCPU != 1000*int64(len(x.Pods)) {
			return fmt.Errorf("node %s counts %dm for %d pods of 1", x.Name(), x.Requested.MilliCPU, len(x.Pods))
		}
	}
	return nil
}
