package noderesources

import (
	"errors"
	"fmt"
)

// FitArgs configure Fit, in Kubernetes' shape.
type FitArgs struct {
	// IgnoredResources and IgnoredResourceGroups are extended resources, by name and by what stands before the slash, that
	// are not filtered by.
	IgnoredResources      []string `json:"ignoredResources,omitempty"`
	IgnoredResourceGroups []string `json:"ignoredResourceGroups,omitempty"`
	// ScoringStrategy is LeastAllocated over cpu and memory where absent.
	ScoringStrategy *ScoringStrategy `json:"scoringStrategy,omitempty"`
}

// ScoringStrategy says how the use of resources makes a score.
type ScoringStrategy struct {
	// Type is LeastAllocated, MostAllocated or RequestedToCapacityRatio.
	Type string `json:"type,omitempty"`
	// Resources that count, with their weights.
	Resources []ResourceSpec `json:"resources,omitempty"`
	// RequestedToCapacityRatio is the shape of that strategy.
	RequestedToCapacityRatio *RequestedToCapacityRatio `json:"requestedToCapacityRatio,omitempty"`
}

// ResourceSpec is a resource with a weight of 1 to 100; 1 where absent.
type ResourceSpec struct {
	Name   string `json:"name"`
	Weight int64  `json:"weight,omitempty"`
}

// RequestedToCapacityRatio is a function from use to score, linear between its points.
type RequestedToCapacityRatio struct {
	Shape []ShapePoint `json:"shape"`
}

// ShapePoint is a score of 0 to 10 at a use of 0 to 100 per cent.
type ShapePoint struct {
	Utilization int32 `json:"utilization"`
	Score       int32 `json:"score"`
}

// BalancedArgs configure BalancedAllocation.
type BalancedArgs struct {
	// Resources whose shares are to be even; cpu and memory where absent. Weights do not matter.
	Resources []ResourceSpec `json:"resources,omitempty"`
}

// The strategies.
const (
	LeastAllocated         = "LeastAllocated"
	MostAllocated          = "MostAllocated"
	RequestedToCapacityFit = "RequestedToCapacityRatio"
)

const (
	maxShapeScore  = 10
	maxUtilization = 100
)

func defaultResources() []ResourceSpec {
	return []ResourceSpec{{"cpu", 1}, {"memory", 1}}
}

// DefaultFitArgs are what absent arguments mean.
func DefaultFitArgs() *FitArgs {
	return &FitArgs{ScoringStrategy: &ScoringStrategy{Type: LeastAllocated, Resources: defaultResources()}}
}

// DefaultBalancedArgs are what absent arguments mean.
func DefaultBalancedArgs() *BalancedArgs { return &BalancedArgs{Resources: defaultResources()} }

// Validate says all that is wrong.
func (a *FitArgs) Validate() error {
	s := a.ScoringStrategy
	if s == nil {
		return nil
	}
	errs := []error{validateResources("scoringStrategy.resources", s.Resources)}
	switch s.Type {
	case "", LeastAllocated, MostAllocated:
	case RequestedToCapacityFit:
		errs = append(errs, s.RequestedToCapacityRatio.validate())
	default:
		errs = append(errs, fmt.Errorf("scoringStrategy.type: %q is not %s, %s or %s", s.Type, LeastAllocated, MostAllocated, RequestedToCapacityFit))
	}
	return errors.Join(errs...)
}

// Validate says all that is wrong.
func (a *BalancedArgs) Validate() error { return validateResources("resources", a.Resources) }

func validateResources(field string, resources []ResourceSpec) error {
	var errs []error
	seen := map[string]bool{}
	for i, r := range resources {
		if r.Name == "" || seen[r.Name] {
			errs = append(errs, fmt.Errorf("%s[%d].name: %q is empty or listed twice", field, i, r.Name))
		}
		seen[r.Name] = true
		if r.Weight < 0 || r.Weight > 100 {
			errs = append(errs, fmt.Errorf("%s[%d].weight: %d is not 1 to 100", field, i, r.Weight))
		}
	}
	return errors.Join(errs...)
}

func (r *RequestedToCapacityRatio) validate() error {
	const field = "scoringStrategy.requestedToCapacityRatio.shape"
	if r == nil || len(r.Shape) == 0 {
		return errors.New(field + ": want at least one point")
	}
	var errs []error
	for i, p := range r.Shape {
		if p.Utilization < 0 || p.Utilization > maxUtilization || (i > 0 && p.Utilization <= r.Shape[i-1].Utilization) {
			errs = append(errs, fmt.Errorf("%s[%d].utilization: %d is not 0 to %d and more than the one before", field, i, p.Utilization, maxUtilization))
		}
		if p.Score < 0 || p.Score > maxShapeScore {
			errs = append(errs, fmt.Errorf("%s[%d].score: %d is not 0 to %d", field, i, p.Score, maxShapeScore))
		}
	}
	return errors.Join(errs...)
}
