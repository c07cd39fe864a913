package cycle

import (
	"time"

	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/runtime"
)

// point is an extension point of an attempt, in the order in which they are run for a pod.
type point int

const (
	preFilter point = iota
	filter
	postFilter
	preScore
	score
	reserve
	permit
	points
)

func (p point) String() string {
	return [points]string{
		runtime.PreFilter, runtime.Filter, runtime.PostFilter, runtime.PreScore, runtime.Score, runtime.Reserve, runtime.Permit,
	}[p]
}

// Watch notes how long each step of an attempt took, for each pod: plain data, of which metrics and spans are made
// afterwards. Nothing is decided by it. A nil Watch notes nothing.
type Watch struct {
	// Measure says for which pods plugins are timed and rejections counted; nil for none.
	Measure func(*framework.PodInfo) bool

	pods []podWatch
	// room is the attempt to make room for a group.
	room step
}

// podWatch is what is noted about one pod. All methods bear nil.
type podWatch struct {
	pod    *framework.PodInfo
	state  *framework.CycleState // measured; nil where it is not
	begun  time.Time
	points [points]step
	// nodes were looked at, feasible of them would do.
	nodes, feasible int
	rejections      map[string]int // nodes by plugin; measured only
	node            string
	// fail is why it fits nowhere.
	fail *fitError
}

// step is one extension point; it was not run where begun is zero.
type step struct {
	begun time.Time
	took  time.Duration
	code  framework.Code
}

// reset prepares for the next attempt. What was noted before is gone.
func (w *Watch) reset() {
	clear(w.pods)
	w.pods = w.pods[:0]
	w.room = step{}
}

func (w *Watch) pod(pod *framework.PodInfo, state *framework.CycleState) *podWatch {
	if w == nil {
		return nil
	}
	p := podWatch{pod: pod, begun: time.Now()}
	if w.Measure != nil && w.Measure(pod) {
		state.Measure()
		p.state = state
	}
	w.pods = append(w.pods, p)
	return &w.pods[len(w.pods)-1]
}

// madeRoom notes that room was sought for a group.
func (w *Watch) madeRoom(begun time.Time, code framework.Code) {
	if w != nil {
		w.room = step{begun, time.Since(begun), code}
	}
}

func (p *podWatch) measures() bool { return p != nil && p.state != nil }

func (p *podWatch) begin() time.Time {
	if p == nil {
		return time.Time{}
	}
	return time.Now()
}

func (p *podWatch) end(at point, begun time.Time, code framework.Code) {
	if p != nil {
		p.points[at] = step{begun, time.Since(begun), code}
	}
}

func (p *podWatch) filtered(begun time.Time, nodes, feasible int, rejected *framework.Verdicts, err error) {
	if p == nil {
		return
	}
	code := framework.Success
	switch {
	case err != nil:
		code = framework.Error
	case feasible == 0:
		code = framework.Unschedulable
	}
	p.end(filter, begun, code)
	p.nodes, p.feasible = nodes, feasible
	if !p.measures() {
		return
	}
	rejected.Histogram(func(st *framework.Status, nodes int) {
		if p.rejections == nil {
			p.rejections = make(map[string]int)
		}
		p.rejections[st.Plugin()] += nodes
	})
}

// looked is filtered where what was found out for earlier pods was used.
func (p *podWatch) looked(nodes, feasible int, rejected *framework.Verdicts) {
	if p == nil {
		return
	}
	s := p.points[filter]
	if s.begun.IsZero() {
		s.begun = time.Now()
	}
	p.filtered(s.begun, nodes, feasible, rejected, nil)
	p.points[filter].took = s.took
}

func (p *podWatch) decided(node string, fail *fitError) {
	if p != nil {
		p.node, p.fail = node, fail
	}
}
