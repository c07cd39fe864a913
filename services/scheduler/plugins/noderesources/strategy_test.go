package noderesources

import (
	"strings"
	"testing"
)

// TestStrategies: the score of one node by strategy, worked out by hand.
func TestStrategies(t *testing.T) {
	has := list{"cpu": "4", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "8"}
	ratio := func(resources ...ResourceSpec) *ScoringStrategy {
		return &ScoringStrategy{Type: RequestedToCapacityFit, Resources: resources, RequestedToCapacityRatio: &RequestedToCapacityRatio{
			Shape: []ShapePoint{{0, 0}, {50, 10}, {100, 4}},
		}}
	}
	for _, tc := range []struct {
		name     string
		strategy *ScoringStrategy
		requests list
		want     int64
	}{
		// cpu 1000*100/4000 = 25, memory 2*100/8 = 25.
		{"most", &ScoringStrategy{Type: MostAllocated}, list{"cpu": "1", "memory": "2Gi"}, 25},
		// More than there is counts as full: (100 + 50)/2.
		{"most, over in cpu", &ScoringStrategy{Type: MostAllocated}, list{"cpu": "5", "memory": "4Gi"}, 75},
		// cpu 50 with weight 3, gpu 25 with weight 1: 175/4.
		{"most, weighted", &ScoringStrategy{Type: MostAllocated, Resources: []ResourceSpec{{"cpu", 3}, {"nvidia.com/gpu", 1}}}, list{"cpu": "2", "nvidia.com/gpu": "2"}, 43},
		// An extended resource that the pod does not ask for does not count.
		{"most, no gpu asked", &ScoringStrategy{Type: MostAllocated, Resources: []ResourceSpec{{"cpu", 1}, {"nvidia.com/gpu", 1}}}, list{"cpu": "2"}, 50},
		{"least, gpu", &ScoringStrategy{Type: LeastAllocated, Resources: []ResourceSpec{{"nvidia.com/gpu", 1}}}, list{"nvidia.com/gpu": "2"}, 75},
		// 25 % lies half way up to 100.
		{"ratio, on the way up", ratio(ResourceSpec{"cpu", 1}), list{"cpu": "1"}, 50},
		// 75 %: half way from 100 down to 40.
		{"ratio, on the way down", ratio(ResourceSpec{"cpu", 1}), list{"cpu": "3"}, 70},
		{"ratio, over counts as full", ratio(ResourceSpec{"cpu", 1}), list{"cpu": "5"}, 40},
		// A score of 0 does not count: only the cpu's 50 does. Memory of 0 asks for the default of 200 MiB: 2 % of 8 GiB, a score of 4.
		{"ratio, two", ratio(ResourceSpec{"cpu", 1}, ResourceSpec{"memory", 1}), list{"cpu": "1"}, 27},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, st := NewFit(&FitArgs{ScoringStrategy: tc.strategy}).Score(nil, pod(t, "p", tc.requests), node(t, has))
			if !st.IsSuccess() || got != tc.want {
				t.Errorf("score = %d (%v), want %d", got, st, tc.want)
			}
		})
	}
}

// TestBalancedOfThree: with more than two resources, by the standard deviation of all shares.
func TestBalancedOfThree(t *testing.T) {
	has := list{"cpu": "4", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "8"}
	b := NewBalanced(&BalancedArgs{Resources: []ResourceSpec{{Name: "cpu"}, {Name: "memory"}, {Name: "nvidia.com/gpu"}}})
	// Shares 1, 0, 0.5: deviation sqrt(((0.5)²+(0.5)²+0)/3) = 0.408, 59; without 100; 50 + (50+59-100)/2.
	if got, _ := b.Score(nil, pod(t, "p", list{"cpu": "4", "nvidia.com/gpu": "4"}), node(t, has)); got != 54 {
		t.Errorf("score = %d, want 54", got)
	}
}

func TestArgsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		args *FitArgs
		want string
	}{
		{&FitArgs{}, ""},
		{DefaultFitArgs(), ""},
		{&FitArgs{ScoringStrategy: &ScoringStrategy{Type: "Best"}}, `"Best" is not`},
		{&FitArgs{ScoringStrategy: &ScoringStrategy{Resources: []ResourceSpec{{"cpu", 101}}}}, "resources[0].weight"},
		{&FitArgs{ScoringStrategy: &ScoringStrategy{Resources: []ResourceSpec{{"cpu", 1}, {"cpu", 1}}}}, "resources[1].name"},
		{&FitArgs{ScoringStrategy: &ScoringStrategy{Type: RequestedToCapacityFit}}, "want at least one point"},
		{&FitArgs{ScoringStrategy: &ScoringStrategy{Type: RequestedToCapacityFit, RequestedToCapacityRatio: &RequestedToCapacityRatio{Shape: []ShapePoint{{50, 1}, {50, 11}}}}}, "shape[1].utilization"},
	} {
		err := tc.args.Validate()
		if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: %v, want %q", tc.args.ScoringStrategy, err, tc.want)
		}
	}
}
