package volumebinding

import (
	"fmt"
	"time"
)

// Args are Kubernetes' VolumeBindingArgs.
type Args struct {
	// BindTimeoutSeconds for which a pod waits for its volumes once it has a node.
	BindTimeoutSeconds int64 `json:"bindTimeoutSeconds"`
	// Shape of the score by how full volumes are; accepted, and nothing is scored, as in Kubernetes by default.
	Shape []ShapePoint `json:"shape"`
}

// ShapePoint is a score at a utilization.
type ShapePoint struct {
	Utilization int32 `json:"utilization"`
	Score       int32 `json:"score"`
}

// DefaultArgs returns Kubernetes' defaults.
func DefaultArgs() *Args { return &Args{BindTimeoutSeconds: 600} }

// Validate refuses what cannot be meant.
func (a *Args) Validate() error {
	if a.BindTimeoutSeconds < 0 {
		return fmt.Errorf("bindTimeoutSeconds is %d, want 0 or more", a.BindTimeoutSeconds)
	}
	return nil
}

func (a *Args) timeout() time.Duration { return time.Duration(a.BindTimeoutSeconds) * time.Second }
