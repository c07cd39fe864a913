package runtime

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/plugins"
)

// judge scores nodes as it is told.
type judge struct {
	name   string
	scores map[string]int64
}

func (j *judge) Name() string { return j.name }

func (j *judge) Score(_ *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	return j.scores[n.Name()], nil
}

// proportional is a judge whose scores are shares of the highest.
type proportional struct {
	judge
	reverse bool
}

func (p *proportional) NormalizesByMax() bool { return p.reverse }

func (p *proportional) NormalizeScore(_ *framework.CycleState, _ *framework.PodInfo, _ *framework.Columns, _ []int32, scores []int64) *framework.Status {
	framework.NormalizeDefault(scores, p.reverse)
	return nil
}

// relative is a judge whose scores are distances from the lowest.
type relative struct{ judge }

func (*relative) NormalizeScore(_ *framework.CycleState, _ *framework.PodInfo, _ *framework.Columns, _ []int32, scores []int64) *framework.Status {
	lowest := slices.Min(scores)
	for i := range scores {
		scores[i] -= lowest
	}
	return nil
}

// TestRankingEqualsScoringAnew changes scores and feasibility of a few nodes at a time. After each step the totals are those of
// scoring all feasible nodes anew, and it was told of each total that is another.
func TestRankingEqualsScoringAnew(t *testing.T) {
	var changes, whole int
	rapid.Check(t, func(t *rapid.T) {
		var nodes []*corev1.Node
		for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
			nodes = append(nodes, &corev1.Node{Metadata: &metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}})
		}
		snapshot, err := framework.NewSnapshot(nodes, nil)
		if err != nil {
			t.Fatal(err)
		}
		scores := make(map[string]int64)
		all := []framework.Plugin{
			&judge{"plain", scores}, &proportional{judge{"up", scores}, false}, &proportional{judge{"down", scores}, true},
			&relative{judge{"low", scores}},
		}
		profile := plugins.Default("s")
		// What orders the queue, and what binds and scores all the same.
		profile.Plugins = append(profile.Plugins[1:2], framework.Registration{New: framework.Use(&spy{name: "binder", log: new([]string)}), Weight: 1})
		for i, p := range all {
			if rapid.Bool().Draw(t, "takes part") {
				profile.Plugins = append(profile.Plugins, framework.Registration{New: framework.Use(p), Weight: int64(i + 1)})
			}
		}
		f, err := New(profile, Deps{})
		if err != nil {
			t.Fatal(err)
		}
		pod, columns := &framework.PodInfo{Pod: &corev1.Pod{}}, snapshot.Columns()
		r := f.NewRanking(framework.NewCycleState(), snapshot.Positions())
		feasible := make([]bool, len(nodes))
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			var ks, now []int32
			for k := range feasible {
				if !rapid.Bool().Draw(t, "changes") {
					continue
				}
				scores[columns.Nodes[k].Name()] = rapid.SampledFrom([]int64{0, 0, 1, 50, 100}).Draw(t, "score")
				feasible[k] = rapid.Bool().Draw(t, "feasible")
				ks = append(ks, int32(k))
				if feasible[k] {
					now = append(now, int32(k))
				}
			}
			before, told := slices.Clone(r.Total), map[int32]bool{}
			any, st := r.Update(pod, columns, ks, now, func(k int32) { told[k] = true })
			if !st.IsSuccess() {
				t.Fatal(st)
			}
			var list []int32
			want := make([]int64, len(nodes))
			for k, is := range feasible {
				if want[k] = -1; is {
					list = append(list, int32(k))
				}
			}
			if len(list) > 0 {
				totals, st := f.RunScore(framework.NewCycleState(), pod, columns, list, nil)
				if !st.IsSuccess() {
					t.Fatal(st)
				}
				for at, k := range list {
					want[k] = totals[at]
				}
			}
			if !slices.Equal(r.Total, want) || r.Feasible() != len(list) {
				t.Fatalf("totals %v of %d feasible nodes, want %v of %d", r.Total, r.Feasible(), want, len(list))
			}
			for k := range want {
				if before[k] != want[k] && !any && !told[int32(k)] {
					t.Fatalf("the total of %d became %d from %d, and it was not told", k, want[k], before[k])
				}
			}
			changes++
			if any {
				whole++
			}
		}
	})
	if whole == 0 || whole == changes {
		t.Errorf("%d of %d updates changed all totals: the test tells nothing", whole, changes)
	}
}
