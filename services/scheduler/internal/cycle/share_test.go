package cycle

import (
	"fmt"
	"slices"
	"testing"

	"trireme.dev/services/scheduler/plugins"
)

// TestShareOfNodes: how many of the nodes that fit are scored, by the profile's percentageOfNodesToScore. On purpose 0 is all of
// them, where Kubernetes takes fewer the larger the cluster is; from 1 on the figure, and the least of 100, are its own. Which
// nodes they are follows from the rotation alone.
func TestShareOfNodes(t *testing.T) {
	for _, tc := range []struct {
		nodes   int
		percent int32
		want    int
	}{
		{99, 0, 99}, {5000, 0, 5000}, {5000, 100, 5000},
		{50, 10, 50}, {99, 1, 99}, {100, 1, 100}, {101, 1, 100}, // at least 100
		{250, 39, 100}, {250, 50, 125}, {1000, 42, 420}, {5000, 10, 500}, {5000, 1, 100}, {6000, 5, 300}, {199, 99, 197},
	} {
		t.Run(fmt.Sprintf("%d%% of %d", tc.percent, tc.nodes), func(t *testing.T) {
			profile := plugins.Default("default-scheduler")
			profile.PercentageOfNodesToScore = tc.percent
			w := newWorldOf(t, profile)
			for i := range tc.nodes {
				w.cache.SetNode(scriptNode(t, fmt.Sprintf("n%04d", i), nil))
			}
			if err := w.cache.Update(&w.snapshot); err != nil {
				t.Fatal(err)
			}
			d := w.decider
			for _, rotation := range []int{0, tc.nodes - 1, 3 * tc.nodes} {
				d.rotation = rotation
				var want []int32
				for k := range tc.want {
					want = append(want, int32((rotation+k)%tc.nodes))
				}
				slices.Sort(want)
				if got := d.some(slices.Clone(d.snapshot.Positions())); !slices.Equal(got, want) {
					t.Errorf("from %d on %d nodes are scored, want %d: %v", rotation, len(got), len(want), got)
				}
			}
		})
	}
}
