package framework

import "time"

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
	// times is nil where nobody asked for them.
	times *[]PluginTime
}

// PluginTime is how long a plugin took at an extension point. Where it is called once per node, Took is of all Calls
// together, and not every node's was timed.
type PluginTime struct {
	Point, Plugin string
	Took          time.Duration
	Calls         int
	// Code of the last call.
	Code Code
}

// Measure has the runtime note from now on how long plugins take. Plugins are not to read it.
func (c *CycleState) Measure() { c.times = new([]PluginTime) }

// Measured gives what was noted, in order; nil where Measure was not called.
func (c *CycleState) Measured() []PluginTime {
	if c == nil || c.times == nil {
		return nil
	}
	return *c.times
}

// Begin is the time, or zero where nobody measures. It is for the runtime, like End.
func (c *CycleState) Begin() time.Time {
	if c == nil || c.times == nil {
		return time.Time{}
	}
	return time.Now()
}

// End notes what a plugin took since begun, which Begin gave, in a number of calls.
func (c *CycleState) End(point, plugin string, begun time.Time, calls int, st *Status) {
	if c == nil || c.times == nil || begun.IsZero() {
		return
	}
	took := time.Since(begun)
	for i := range *c.times {
		if t := &(*c.times)[i]; t.Point == point && t.Plugin == plugin {
			t.Took, t.Calls, t.Code = t.Took+took, t.Calls+calls, st.Code()
			return
		}
	}
	*c.times = append(*c.times, PluginTime{Point: point, Plugin: plugin, Took: took, Calls: calls, Code: st.Code()})
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

// Clone returns a state that can be changed without changing c: what is needed to try things out. Nothing is measured in
// it.
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
