package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/inmemory"
	"trireme.dev/services/scheduler/plugins"
)

// quality fills 1,000 nodes of different sizes with pods of five shapes, half as many again as there is room for, and says how
// much of the processors they ask for in the end.
func quality(ctx context.Context, b *bench) error {
	ns := nodes(1000, func(i int, n *corev1.Node) { n.Status.Allocatable["cpu"] = fmt.Sprint(2 + i%7) }) // 5 on average
	all := pods("quality", 25000/b.scale, func(i int, p *corev1.Pod) { request(p, "cpu", fmt.Sprintf("%dm", 100*(1+i%5))) })
	j := newJudge(50)
	c, err := b.start(ctx, inmemory.Config{Profile: j.profile()}, ns, nil)
	if err != nil {
		return err
	}
	for _, p := range all {
		c.Create(p)
	}
	if err := c.settled(ctx); err != nil {
		return err
	}
	used, err := c.utilisation()
	if err != nil {
		return err
	}
	if err := c.stop(); err != nil {
		return err
	}
	b.judged(j)
	b.results.Add("sched.utilisation", used, "of the processors, in a full cluster", 0)
	return nil
}

// judged adds to what sched.quality says in the end.
func (b *bench) judged(j *judge) {
	b.chosen += j.chosen
	b.best += j.best
}

// settled waits until no pod is ready any more.
func (c *cluster) settled(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for quiet := 0; quiet < 2; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if active, _, _ := c.Waiting(); active > 0 {
			quiet = 0
		} else {
			quiet++
		}
	}
	return nil
}

// utilisation is the share of all processors that pods on nodes ask for.
func (c *cluster) utilisation() (float64, error) {
	s, err := c.Snapshot()
	if err != nil {
		return 0, err
	}
	var asked, have int64
	for _, n := range s.Nodes() {
		asked += n.Requested.MilliCPU
		have += n.Allocatable.MilliCPU
	}
	return float64(asked) / float64(have), nil
}

// judge is a Reserve plugin that, for one pod in so many, compares the score of the node that the scheduler chose with the best
// that there was. It finds that out with plugins of its own in the plainest way: Filter and Score of one node after the other,
// without passes over columns and without anything remembered from other pods.
type judge struct {
	every, seen  int
	handle       framework.Handle
	preFilters   []framework.PreFilterPlugin
	filters      []framework.FilterPlugin
	preScores    []framework.PreScorePlugin
	scores       []framework.ScorePlugin
	weights      []int64
	pods         int
	chosen, best int64 // sums of scores
}

// newJudge returns one that looks at one pod in so many.
func newJudge(every int) *judge { return &judge{every: every} }

// profile is the default one with the judge in it.
func (j *judge) profile() framework.Profile {
	profile := plugins.Default("default-scheduler")
	all := slices.Clone(profile.Plugins)
	profile.Plugins = append(profile.Plugins, framework.Registration{New: func(h framework.Handle) (framework.Plugin, error) {
		j.handle = h
		for _, r := range all {
			p, err := r.New(h)
			if err != nil {
				return nil, err
			}
			if x, ok := p.(framework.PreFilterPlugin); ok {
				j.preFilters = append(j.preFilters, x)
			}
			if x, ok := p.(framework.FilterPlugin); ok {
				j.filters = append(j.filters, x)
			}
			if x, ok := p.(framework.PreScorePlugin); ok {
				j.preScores = append(j.preScores, x)
			}
			if x, ok := p.(framework.ScorePlugin); ok {
				j.scores, j.weights = append(j.scores, x), append(j.weights, r.Weight)
			}
		}
		return j, nil
	}})
	return profile
}

// Name implements framework.Plugin.
func (*judge) Name() string { return "Judge" }

// Reserve implements framework.ReservePlugin. The snapshot is the one on which the node was chosen.
func (j *judge) Reserve(_ context.Context, _ *framework.CycleState, pod *framework.PodInfo, node string) *framework.Status {
	j.seen++
	if j.seen%j.every != 0 {
		return nil
	}
	scores, st := j.scan(pod)
	if !st.IsSuccess() {
		return st
	}
	best := int64(0)
	for _, s := range scores {
		best = max(best, s)
	}
	j.pods++
	j.best += best
	j.chosen += scores[node]
	return nil
}

// Unreserve implements framework.ReservePlugin.
func (*judge) Unreserve(context.Context, *framework.CycleState, *framework.PodInfo, string) {}

// scan scores the nodes that the pod can run on, by name.
func (j *judge) scan(pod *framework.PodInfo) (map[string]int64, *framework.Status) {
	snapshot, state := j.handle.Snapshot(), framework.NewCycleState()
	named := map[string]int{} // how many plugins narrow the nodes to it
	narrowing := 0
	for _, p := range j.preFilters {
		result, st := p.PreFilter(state, pod, snapshot)
		switch {
		case st.IsSkip():
			state.SkipFilter(p.Name())
		case !st.IsSuccess():
			return nil, st
		case result != nil && result.NodeNames != nil:
			narrowing++
			for name := range result.NodeNames {
				named[name]++
			}
		}
	}
	var feasible []int32
	for i, node := range snapshot.Nodes() {
		if named[node.Name()] == narrowing && j.fits(state, pod, node) {
			feasible = append(feasible, int32(i))
		}
	}
	for _, p := range j.preScores {
		if st := p.PreScore(state, pod, snapshot.Columns(), feasible); st.IsSkip() {
			state.SkipScore(p.Name())
		} else if !st.IsSuccess() {
			return nil, st
		}
	}
	totals := make(map[string]int64, len(feasible))
	for k, p := range j.scores {
		if state.ScoreSkipped(p.Name()) {
			continue
		}
		scores := make([]int64, len(feasible))
		for at, i := range feasible {
			s, st := p.Score(state, pod, snapshot.Nodes()[i])
			if !st.IsSuccess() {
				return nil, st
			}
			scores[at] = s
		}
		if x, ok := p.(framework.NormalizeScorePlugin); ok {
			if st := x.NormalizeScore(state, pod, snapshot.Columns(), feasible, scores); !st.IsSuccess() {
				return nil, st
			}
		}
		for at, i := range feasible {
			totals[snapshot.Nodes()[i].Name()] += scores[at] * j.weights[k]
		}
	}
	return totals, nil
}

func (j *judge) fits(state *framework.CycleState, pod *framework.PodInfo, node *framework.NodeInfo) bool {
	for _, p := range j.filters {
		if !state.FilterSkipped(p.Name()) && !p.Filter(state, pod, node).IsSuccess() {
			return false
		}
	}
	return true
}
