package framework

import (
	"slices"
	"time"
)

// StateData is what a plugin keeps from one point to a later one of the same cycle.
type StateData interface {
	// Clone returns a copy that can be changed without changing the original.
	Clone() StateData
}

// CycleState belongs to one attempt at one pod, or at a gang as a whole. PreFilter and PreScore write it; Filter and Score
// only read, so that they may run side by side. The runtime writes the sets of skipped plugins.
type CycleState struct {
	// Few plugins keep something, so that a list is found through faster than a map.
	data       []keyed
	skipFilter []string
	skipScore  []string
	// Room for what most pods take.
	dataRoom       [4]keyed
	skipFilterRoom [12]string
	skipScoreRoom  [4]string
	// times is nil where nobody asked for them.
	times *[]PluginTime
}

// PluginTime is how long a plugin took at an extension point. Where it looks at many nodes, Took is of all of them together
// and Calls how many they were.
type PluginTime struct {
	Point, Plugin string
	Took          time.Duration
	Calls         int
	// Code of the last call.
	Code Code
}

// Measure has the runtime note from now on how long plugins take. Plugins are not to read it.
func (c *CycleState) Measure() { c.times = new([]PluginTime) }

// MeasureFor has what c measures count as o's, or nothing be measured where o is not. It is for the runtime.
func (c *CycleState) MeasureFor(o *CycleState) { c.times = o.times }

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

type keyed struct {
	key  string
	data StateData
}

// Read returns what was last written under key, nil where nothing was.
func (c *CycleState) Read(key string) StateData {
	for i := range c.data {
		if c.data[i].key == key {
			return c.data[i].data
		}
	}
	return nil
}

// Write keeps data under key; a plugin uses its name, followed by whatever sets its keys apart.
func (c *CycleState) Write(key string, data StateData) {
	for i := range c.data {
		if c.data[i].key == key {
			c.data[i].data = data
			return
		}
	}
	if c.data == nil {
		c.data = c.dataRoom[:0]
	}
	c.data = append(c.data, keyed{key, data})
}

// SkipFilter leaves out plugin's Filter from now on.
func (c *CycleState) SkipFilter(plugin string) {
	if c.skipFilter == nil {
		c.skipFilter = c.skipFilterRoom[:0]
	}
	if !c.FilterSkipped(plugin) {
		c.skipFilter = append(c.skipFilter, plugin)
	}
}

// FilterSkipped reports whether plugin's Filter is left out.
func (c *CycleState) FilterSkipped(plugin string) bool { return slices.Contains(c.skipFilter, plugin) }

// SkipScore leaves out plugin's Score from now on.
func (c *CycleState) SkipScore(plugin string) {
	if c.skipScore == nil {
		c.skipScore = c.skipScoreRoom[:0]
	}
	if !c.ScoreSkipped(plugin) {
		c.skipScore = append(c.skipScore, plugin)
	}
}

// ScoreSkipped reports whether plugin's Score is left out.
func (c *CycleState) ScoreSkipped(plugin string) bool { return slices.Contains(c.skipScore, plugin) }

// Clone returns a state that can be changed without changing c: what is needed to try things out. Nothing is measured in
// it.
func (c *CycleState) Clone() *CycleState {
	o := &CycleState{skipFilter: slices.Clone(c.skipFilter), skipScore: slices.Clone(c.skipScore), data: make([]keyed, len(c.data))}
	for i, d := range c.data {
		o.data[i] = keyed{d.key, d.data.Clone()}
	}
	return o
}
