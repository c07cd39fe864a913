package cache

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"trireme.dev/services/scheduler/framework"
)

// TestStatesOfAPod: each transition of Kubernetes' scheduler cache (none, assumed, added), as a script of what is done to pod p
// on nodes n1 and n2. Two differ on purpose. An added pod whose node changes is moved, where Kubernetes ends the process: the
// gateway's word counts. A pod that is assumed again is refused without regard to where.
func TestStatesOfAPod(t *testing.T) {
	for _, tc := range []struct {
		script string
		// where the pod is in the end, with a star where it is assumed, and what the last step answers.
		where, answer string
	}{
		{"assume n1", "n1*", "ok"},
		{"assume n1, assume n1", "n1*", "error"},
		{"assume n1, assume n2", "n1*", "error"},
		{"add n1, assume n1", "n1", "error"},
		{"assume gone", "", "error"},
		{"forget", "", "none"},
		{"assume n1, forget", "", "ok"},
		{"assume n1, forget, forget", "", "none"},
		{"assume n1, forget, assume n2", "n2*", "ok"},
		{"add n1, forget", "n1", "none"},
		{"add n1", "n1", "ok"},
		{"assume n1, add n1", "n1", "ok"},
		{"assume n1, add n2", "n2", "ok"}, // confirmed elsewhere: it moves
		{"assume n1, add n1, forget", "n1", "none"},
		{"add n1, add n1", "n1", "ok"},
		{"add n1, add n2", "n2", "ok"},
		{"add gone", "gone", "ok"}, // its node comes later
		{"remove", "", "none"},
		{"add n1, remove", "", "ok"},
		{"assume n1, remove", "", "ok"},
		{"add n1, remove, assume n1", "n1*", "ok"},
	} {
		t.Run(tc.script, func(t *testing.T) {
			c := newCache()
			c.SetNode(node("n1", "a"))
			c.SetNode(node("n2", "b"))
			answer := ""
			for step := range strings.SplitSeq(tc.script, ", ") {
				verb, on, _ := strings.Cut(step, " ")
				done := true
				answer = "ok"
				switch verb {
				case "assume":
					if err := c.Assume(pod("p", "", "g"), on); err != nil {
						answer = "error"
					}
				case "forget":
					done = c.Forget(pod("p", "", "g"))
				case "add":
					c.AddPod(pod("p", on, "g"))
				case "remove":
					done = c.RemovePod("p")
				}
				if !done {
					answer = "none"
				}
			}
			where := c.NodeOf("p")
			if c.IsAssumed("p") {
				where += "*"
			}
			if where != tc.where || answer != tc.answer {
				t.Errorf("it is on %q and the answer %s, want %q and %s", where, answer, tc.where, tc.answer)
			}
			// What is counted goes by the same states.
			members, cpu := 0, map[string]int64{}
			if tc.where != "" {
				members = 1
				cpu[strings.TrimSuffix(tc.where, "*")] = 1000
			}
			var s Snapshot
			if err := c.Update(&s); err != nil {
				t.Fatal(err)
			}
			if got := c.Scheduled(framework.GroupKey{Namespace: "default", Name: "g"}); got != members {
				t.Errorf("%d members are scheduled, want %d", got, members)
			}
			for _, n := range s.Nodes() {
				if n.Requested.MilliCPU != cpu[n.Name()] {
					t.Errorf("node %s counts %dm, want %dm", n.Name(), n.Requested.MilliCPU, cpu[n.Name()])
				}
			}
		})
	}
}

// TestNodeThatGoesBeforeItsPods: it stays in the books until its last pod has left, and no snapshot shows it.
func TestNodeThatGoesBeforeItsPods(t *testing.T) {
	c := newCache()
	var s Snapshot
	nodes := func() (got []string) {
		if err := c.Update(&s); err != nil {
			t.Fatal(err)
		}
		for _, n := range s.Nodes() {
			got = append(got, fmt.Sprint(n.Name(), len(n.Pods)))
		}
		return got
	}
	for _, step := range []struct {
		what string
		do   func()
		want []string
		held int // nodes in the books
	}{
		{"a node with two pods", func() {
			c.SetNode(node("n1", "a"))
			c.SetNode(node("n2", "a"))
			c.AddPod(pod("p", "n1", ""))
			c.AddPod(pod("q", "n1", ""))
		}, []string{"n12", "n20"}, 2},
		{"the node goes", func() { c.RemoveNode("n1") }, []string{"n20"}, 2},
		{"one pod leaves", func() { c.RemovePod("p") }, []string{"n20"}, 2},
		{"the node comes again", func() { c.SetNode(node("n1", "a")) }, []string{"n11", "n20"}, 2},
		{"and goes", func() { c.RemoveNode("n1") }, []string{"n20"}, 2},
		{"the last pod leaves", func() { c.RemovePod("q") }, []string{"n20"}, 1},
		{"an empty node goes", func() { c.RemoveNode("n2") }, nil, 0},
	} {
		step.do()
		if got := nodes(); !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.what, got, step.want)
		}
		if held, _, _ := c.Size(); held != step.held {
			t.Errorf("%s: %d nodes are held, want %d", step.what, held, step.held)
		}
	}
}

// TestSnapshotCopiesWhatChanged: a refresh takes over the nodes that changed since the last one, and leaves the others alone.
func TestSnapshotCopiesWhatChanged(t *testing.T) {
	c := newCache()
	for i := range 20 {
		c.SetNode(node(fmt.Sprintf("n%02d", i), "a"))
	}
	var s Snapshot
	if err := c.Update(&s); err != nil {
		t.Fatal(err)
	}
	const mark = 7
	copied := func(change func()) (names []string) {
		t.Helper()
		for _, n := range s.Nodes() {
			n.Requested.MilliCPU = mark
		}
		change()
		if err := c.Update(&s); err != nil {
			t.Fatal(err)
		}
		for _, n := range s.Nodes() {
			if n.Requested.MilliCPU != mark {
				names = append(names, n.Name())
			}
		}
		return names
	}
	for _, step := range []struct {
		what   string
		change func()
		want   []string
	}{
		{"nothing", func() {}, nil},
		{"a pod comes", func() { c.AddPod(pod("p", "n07", "")) }, []string{"n07"}},
		{"it goes, another is assumed", func() {
			c.RemovePod("p")
			if err := c.Assume(pod("q", "", ""), "n11"); err != nil {
				t.Error(err)
			}
		}, []string{"n07", "n11"}},
		{"it is forgotten", func() { c.Forget(pod("q", "", "")) }, []string{"n11"}},
		{"a node is told anew", func() { c.SetNode(node("n03", "a")) }, []string{"n03"}},
	} {
		if got := copied(step.change); !slices.Equal(got, step.want) {
			t.Errorf("%s: copied %v, want %v", step.what, got, step.want)
		}
	}
}
