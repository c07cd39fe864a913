// Package recording keeps what the scheduler saw and decided in a file, from which package replay makes the same decisions
// again. It decides nothing, and stands across the scheduler's chain: what the chain does is made of steps, each one piece
// of news taken in, one attempt, one binding that ended, and while they are recorded, they follow one another:
//
//	intake ─┐
//	cycle  ─┼─► Steps ──► entries ──► File          a scheduler that records
//	queue  ─┤     ▲
//	work   ─┘     └── entries ◄── Reader            a scheduler that is replayed
//
// Decisions depend on nothing but the seed, the steps before them and the time of the step: within a step, there is one
// time, and all that goes on beside the steps (bindings, evictions) acts on the scheduler only by the step that ends it.
package recording

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	recordv1 "trireme.dev/proto/gen/trireme/record/v1"
	"trireme.dev/services/scheduler/framework"
)

// Steps puts what a scheduler does in order. A nil one does not: then steps go on beside each other, and none is recorded.
type Steps struct {
	clock func() time.Time
	take  func(Step)
	// replayed: work is not done, and its end comes by Finish.
	replayed bool

	mu sync.Mutex
	// now is the time of the step under way or, between steps, of the last one; in nanoseconds since 1970.
	now   atomic.Int64
	begun uint64 // work, so far
	work  map[uint64]Work
}

// Step is one that was made.
type Step struct {
	Entry *recordv1.Entry
	// Object that changed, which is not in Entry yet; nil where the step is no change. It must not be changed.
	Object proto.Message
}

// Work is what was begun in a replay and has not ended.
type Work struct {
	ID uint64
	// Of is the pod that it was begun for, by uid.
	Of   string
	then func(*framework.Status)
}

// NewSteps has take hear of all steps, in order, with nothing else going on: it must be quick. The time of a step is that
// of the clock of this machine, which as far as Steps goes never jumps.
func NewSteps(take func(Step)) *Steps {
	begun := time.Now()
	wall := begun.Round(0)
	return &Steps{clock: func() time.Time { return wall.Add(time.Since(begun)) }, take: take}
}

// NewReplay is for a scheduler that makes the steps of a record again: time is what clock says, and of work, only the end is
// seen.
func NewReplay(clock func() time.Time, take func(Step)) *Steps {
	return &Steps{clock: clock, take: take, replayed: true, work: map[uint64]Work{}}
}

// Begin waits until no step is under way, and begins one. It must not be called within a step.
func (s *Steps) Begin() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.now.Store(s.clock().UnixNano())
}

// End ends the step. step is what Begin and End enclose, nil where it came to nothing and is not worth an entry.
func (s *Steps) End(step *recordv1.Entry) {
	if s == nil {
		return
	}
	if step != nil {
		step.Time = s.now.Load()
		s.take(Step{Entry: step})
	}
	s.mu.Unlock()
}

// EndChange ends a step that took in news of an object. Calling it so for each of them keeps what costs out of the step.
func (s *Steps) EndChange(kind string, object proto.Message, gone, initial bool) {
	if s == nil {
		return
	}
	s.take(Step{Object: object, Entry: &recordv1.Entry{Time: s.now.Load(), Step: &recordv1.Entry_Change{
		Change: &recordv1.Change{Kind: kind, Gone: gone, Initial: initial},
	}}})
	s.mu.Unlock()
}

// Recorded reports whether steps are of use to anybody.
func (s *Steps) Recorded() bool { return s != nil }

// Now is the time as far as the step under way is concerned.
func (s *Steps) Now() time.Time {
	if s == nil {
		return time.Now()
	}
	return time.Unix(0, s.now.Load())
}

// Beside has work done beside the steps, in the goroutine that run makes, and ends it by a step in which then hears what
// came of it. It is called within a step. of is the pod that it is for, by uid.
func (s *Steps) Beside(run func(func()), of string, work func() *framework.Status, then func(*framework.Status)) {
	if s == nil {
		run(func() { then(work()) })
		return
	}
	s.begun++
	id := s.begun
	if s.replayed {
		s.work[id] = Work{id, of, then}
		return
	}
	run(func() { s.finish(Work{id, of, then}, work()) })
}

func (s *Steps) finish(w Work, st *framework.Status) {
	s.Begin()
	w.then(st)
	s.End(&recordv1.Entry{Step: &recordv1.Entry_Ended{Ended: &recordv1.Ended{Id: w.ID, Of: w.Of, Status: StatusToProto(st)}}})
}

// Pending lists the work that has not ended, in the order in which it was begun. Of a replay only.
func (s *Steps) Pending() []Work {
	out := make([]Work, 0, len(s.work))
	for _, w := range s.work {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b Work) int { return int(a.ID) - int(b.ID) })
	return out
}

// Finish ends work, and reports whether there was such. Of a replay only.
func (s *Steps) Finish(id uint64, st *framework.Status) bool {
	w, ok := s.work[id]
	if ok {
		delete(s.work, id)
		s.finish(w, st)
	}
	return ok
}

// FirstLine of a text: what follows in an error is the stack of a panic, which is never the same twice.
func FirstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
