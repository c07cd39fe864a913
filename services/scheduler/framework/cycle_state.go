package framework

// StateData is what a plugin keeps from one point to a later one of the same cycle.
type StateData interface {
	// Clone returns a copy that can be changed without changing the original.
	Clone() StateData
}

// CycleState belongs to one attempt at one pod. PreFilter and PreScore write it; Filter and Score only read, so that
// they may run side by side. The runtime writes the sets of skipped plugins.
type CycleState struct {
	data       map[string]StateData
	skipFilter map[string]struct{}
	skipScore  map[string]struct{}
}

// NewCycleState returns an empty state.
func NewCycleState() *CycleState { return &CycleState{} }

// Read returns what was last written under key, nil where nothing was.
func (c *CycleState) Read(key string) StateData { return c.data[key] }

// Write keeps data under key; a plugin uses its name, followed by whatever sets its keys apart.
func (c *CycleState) Write(key string, data StateData) {
	if c.data == nil {
		c.data = make(map[string]StateData)
	}
	c.data[key] = data
}

// SkipFilter leaves out plugin's Filter from now on.
func (c *CycleState) SkipFilter(plugin string) {
	if c.skipFilter == nil {
		c.skipFilter = make(map[string]struct{})
	}
	c.skipFilter[plugin] = struct{}{}
}

// FilterSkipped reports whether plugin's Filter is left out.
func (c *CycleState) FilterSkipped(plugin string) bool {
	_, ok := c.skipFilter[plugin]
	return ok
}

// SkipScore leaves out plugin's Score from now on.
func (c *CycleState) SkipScore(plugin string) {
	if c.skipScore == nil {
		c.skipScore = make(map[string]struct{})
	}
	c.skipScore[plugin] = struct{}{}
}

// ScoreSkipped reports whether plugin's Score is left out.
func (c *CycleState) ScoreSkipped(plugin string) bool {
	_, ok := c.skipScore[plugin]
	return ok
}

// Clone returns a state that can be changed without changing c: what is needed to try things out.
func (c *CycleState) Clone() *CycleState {
	o := NewCycleState()
	for k, v := range c.data {
		o.Write(k, v.Clone())
	}
	for k := range c.skipFilter {
		o.SkipFilter(k)
	}
	for k := range c.skipScore {
		o.SkipScore(k)
	}
	return o
}
