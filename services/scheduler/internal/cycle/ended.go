package cycle

import (
	"time"

	"trireme.dev/services/scheduler/framework"
)

// Attempt is an attempt that has ended, for whoever remembers what came of it.
type Attempt struct {
	*framework.Queued

	Begun time.Time
	// Took is how long the decision took, without the wait for permission and the binding.
	Took time.Duration
	// Decision that was made. Where it did not come about after all, nothing is placed in it.
	Decision Decision
	// Err is set where the attempt ended with an unexpected error.
	Err error
}

// Rejection of a number of nodes for one reason.
type Rejection struct {
	Status *framework.Status
	Nodes  int
}

// ended tells who remembers attempts, if anybody does. It must be quick: nothing else is tried meanwhile.
func (c *Cycle) ended(a *attempt, d Decision, err error) {
	if c.Ended != nil {
		c.Ended(Attempt{Queued: a.Queued, Begun: a.begun, Took: a.ended.Sub(a.begun), Decision: d, Err: err})
	}
}
