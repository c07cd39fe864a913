package quota

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestAdmit(t *testing.T) {
	tree := New([]Share{
		{Name: "research", Guaranteed: Amounts{"cpu": 6000}, Limit: Amounts{"cpu": 8000}},
		{Name: "vision", Parent: "research", Guaranteed: Amounts{"cpu": 2000}, Limit: Amounts{"cpu": 5000}},
		{Name: "language", Parent: "research", Guaranteed: Amounts{"cpu": 4000}},
		{Name: "serving", Guaranteed: Amounts{"cpu": 4000}, Lending: Amounts{"cpu": 1000}},
		{Name: "stopped", Paused: true},
		{Name: "below", Parent: "stopped"},
		{Name: "orphan", Parent: "nobody"},
		{Name: "a", Parent: "b"}, {Name: "b", Parent: "a"},
	})
	used := func(vision, language, serving, others int64) map[string]Amounts {
		return map[string]Amounts{"vision": {"cpu": vision}, "language": {"cpu": language}, "serving": {"cpu": serving}, "": {"cpu": others}}
	}
	for _, tc := range []struct {
		name, queue string
		ask         Amounts
		used        map[string]Amounts
		want        string
	}{
		{"within its guarantee", "vision", Amounts{"cpu": 2000}, used(0, 0, 0, 0), ""},
		{"within it, however full the cluster", "vision", Amounts{"cpu": 2000}, used(0, 0, 10000, 0), ""},
		{"borrows of its sibling", "vision", Amounts{"cpu": 3000}, used(2000, 0, 0, 0), ""},
		{"beyond its limit", "vision", Amounts{"cpu": 1500}, used(4000, 0, 0, 0), "queue vision may use 5 of cpu, 4 of it are used and 1500m more asked for"},
		{"beyond the limit above", "language", Amounts{"cpu": 5000}, used(4000, 0, 0, 0), "queue research may use 8 of cpu, 4 of it are used and 5 more asked for"},
		{"what is lent", "language", Amounts{"cpu": 1000}, used(2000, 4000, 0, 0), ""},
		{"what is kept", "language", Amounts{"cpu": 2000}, used(2000, 4000, 0, 0),
			"queue language is guaranteed 4 of cpu and uses 4, 2 more are asked for; 4 are free, 3 are kept for serving"},
		{"what is kept is used", "language", Amounts{"cpu": 2000}, used(2000, 4000, 3000, 0), ""},
		{"others count", "language", Amounts{"cpu": 1000}, used(2000, 4000, 0, 1000),
			"queue language is guaranteed 4 of cpu and uses 4, 1 more are asked for; 3 are free, 3 are kept for serving"},
		{"its guarantee is lent out", "language", Amounts{"cpu": 3000}, used(4000, 1000, 0, 1000),
			"queue language is guaranteed 4 of cpu and uses 1, 3 more are asked for; 4 are free, 3 are kept for serving, borrowed by vision"},
		{"less is there than is guaranteed", "vision", Amounts{"cpu": 1000}, used(0, 0, 0, 8500), ""},
		{"nobody says anything of it", "vision", Amounts{"memory": 1 << 50}, nil, ""},
		{"paused above", "below", Amounts{"cpu": 1}, nil, "queue stopped is paused"},
		{"no such queue", "x", Amounts{"cpu": 1}, nil, "waiting for queue x to appear"},
		{"no parent", "orphan", Amounts{"cpu": 1}, nil, "parent nobody of queue orphan does not exist"},
		{"a circle", "a", Amounts{"cpu": 1}, nil, "queue a is its own ancestor"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if r := tree.Admit(tc.queue, tc.ask, Cluster{Capacity: Amounts{"cpu": 10000}, Used: tc.used}); r != nil {
				got = r.Message
			}
			if got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
	c := Cluster{Capacity: Amounts{"cpu": 10000}, Used: used(3000, 1000, 0, 0)}
	if u, b := tree.Used("research", c)["cpu"], tree.Borrowed("vision", c)["cpu"]; u != 4000 || b != 1000 {
		t.Errorf("research uses %d, vision borrows %d", u, b)
	}
	if b := tree.Borrowed("language", c); len(b) != 0 {
		t.Errorf("language borrows %v", b)
	}
}

// TestAQueueAboveUsesWhatItGuarantees: its own pods have taken what a queue below it is guaranteed, which does not make what
// others keep the lower queue's.
func TestAQueueAboveUsesWhatItGuarantees(t *testing.T) {
	tree := New([]Share{
		{Name: "research", Guaranteed: Amounts{"gpu": 38}},
		{Name: "vision", Parent: "research", Guaranteed: Amounts{"gpu": 2}},
		{Name: "serving", Guaranteed: Amounts{"gpu": 1}, Lending: Amounts{"gpu": 0}},
	})
	r := tree.Admit("vision", Amounts{"gpu": 2}, Cluster{Capacity: Amounts{"gpu": 40}, Used: map[string]Amounts{"research": {"gpu": 38}}})
	want := "queue research is guaranteed 38 of gpu and uses 38, 2 more are asked for; 2 are free, 1 are kept for serving"
	if r == nil || r.Message != want || r.Queue != "research" {
		t.Errorf("got %+v, want %q", r, want)
	}
}

func TestFirst(t *testing.T) {
	tree := New([]Share{
		{Name: "a", Weight: 1}, {Name: "b", Weight: 3}, {Name: "c", Guaranteed: Amounts{"gpu": 4}},
		{Name: "b1", Parent: "b"}, {Name: "b2", Parent: "b"},
	})
	cluster := func(a, b1, b2, c int64) Cluster {
		return Cluster{Capacity: Amounts{"gpu": 100}, Used: map[string]Amounts{"a": {"gpu": a}, "b1": {"gpu": b1}, "b2": {"gpu": b2}, "c": {"gpu": c}}}
	}
	for _, tc := range []struct {
		queues []string
		c      Cluster
		want   string
	}{
		{[]string{"a", "b1"}, cluster(0, 0, 0, 0), "a"},    // by name
		{[]string{"a", "b1"}, cluster(10, 20, 0, 0), "b1"}, // 10 for 1, 20 for 3
		{[]string{"a", "b1"}, cluster(10, 20, 20, 0), "a"}, // its sibling counts
		{[]string{"a", "b1", "b2"}, cluster(10, 15, 5, 0), "b2"},
		{[]string{"a", "b2", "c"}, cluster(0, 0, 0, 3), "c"}, // what it is guaranteed
		{[]string{"a", "b2", "c"}, cluster(0, 1, 0, 4), "a"},
		{[]string{"a", "x"}, cluster(0, 0, 0, 0), "x"}, // refused at once
	} {
		if got := tree.First(tc.queues, tc.c); got != tc.want {
			t.Errorf("of %v: %s, want %s", tc.queues, got, tc.want)
		}
	}
}

// TestShares places and removes pods of random queues as long as there is room: no limit is ever exceeded, what is kept for a
// queue is free when it asks for it, and within its guarantee and that of the queue above it it is never refused.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const capacity = 40
		left := int64(capacity)
		var shares []Share
		var names []string
		amount := func(label string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, label) }
		for i := range rapid.IntRange(1, 4).Draw(t, "top") {
			s := Share{Name: fmt.Sprint("q", i), Guaranteed: Amounts{"x": amount("guaranteed", left)}, Lending: Amounts{}, Limit: Amounts{}}
			left -= s.Guaranteed["x"]
			if rapid.Bool().Draw(t, "lends") {
				s.Lending["x"] = amount("lending", s.Guaranteed["x"])
			}
			if rapid.Bool().Draw(t, "limited") {
				s.Limit["x"] = s.Guaranteed["x"] + amount("limit", 10)
			}
			shares, names = append(shares, s), append(names, s.Name)
			rest := s.Guaranteed["x"]
			for j := range rapid.IntRange(0, 2).Draw(t, "children") {
				child := Share{Name: fmt.Sprint(s.Name, ".", j), Parent: s.Name, Guaranteed: Amounts{"x": amount("guaranteed", rest)}, Lending: Amounts{}}
				rest -= child.Guaranteed["x"]
				if rapid.Bool().Draw(t, "lends") {
					child.Lending["x"] = amount("lending", child.Guaranteed["x"])
				}
				shares, names = append(shares, child), append(names, child.Name)
			}
		}
		tree := New(shares)
		c := Cluster{Capacity: Amounts{"x": capacity}, Used: map[string]Amounts{}}
		for _, n := range names {
			c.Used[n] = Amounts{}
		}
		type pod struct {
			queue string
			size  int64
		}
		var pods []pod
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(pods) > 0 && rapid.IntRange(0, 3).Draw(t, "goes?") == 0 {
				i := rapid.IntRange(0, len(pods)-1).Draw(t, "goes")
				c.Used[pods[i].queue]["x"] -= pods[i].size
				pods = slices.Delete(pods, i, i+1)
				continue
			}
			p := pod{rapid.SampledFrom(names).Draw(t, "queue"), rapid.Int64Range(1, 6).Draw(t, "size")}
			refused := tree.Admit(p.queue, Amounts{"x": p.size}, c)
			n := tree.nodes[p.queue]
			limited := slices.ContainsFunc([]*node{n, n.parent}, func(n *node) bool { return n != nil && len(n.Limit) > 0 })
			within := !slices.ContainsFunc([]*node{n, n.parent}, func(n *node) bool {
				return n != nil && n.used("x", c)+p.size > n.Guaranteed["x"]
			})
			if within && refused != nil && !limited && len(tree.borrowers("x", c)) == 0 {
				t.Fatalf("%v is within its guarantee, and refused: %s", p, refused.Message)
			}
			if refused != nil || total("x", c)+p.size > capacity {
				continue
			}
			c.Used[p.queue]["x"] += p.size
			pods = append(pods, p)
			for name, n := range tree.nodes {
				if limit, ok := n.Limit["x"]; ok && n.used("x", c) > limit {
					t.Fatalf("queue %s uses %d, its limit is %d", name, n.used("x", c), limit)
				}
			}
			var kept int64
			for _, n := range tree.top {
				kept += max(n.kept("x")-n.used("x", c), 0)
			}
			if free := capacity - total("x", c); free < kept {
				t.Fatalf("%d are free, %d are kept", free, kept)
			}
		}
	})
}
