package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	recordv1 "trireme.dev/proto/gen/trireme/record/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/chain"
	"trireme.dev/services/scheduler/internal/recording"
)

// A replay under another configuration hears of the cluster what the recorded scheduler heard, but for what follows from its
// own decisions: a pod is on the node that the replay bound it to, and only pods that the replay preempts are preempted.
// Bindings end when those of the same pod did in the record, or at once where there was none, and attempts are made when
// the recorded scheduler made one, or had nothing to do.

// idleAfter is how long nothing is recorded while a scheduler that is idle has nothing to do: far longer than one takes to
// wake up, far shorter than people and controllers take.
const idleAfter = time.Millisecond

// fate is what became of a pod.
type fate struct {
	// node that it went to; empty for none, and then why.
	node, why string
	// preemptedBy is the pod that it gave way to; empty for none.
	preemptedBy string
}

// fates of the pods that were decided about, by uid.
type fates map[string]fate

// decided takes note of an attempt.
func (f fates) decided(a *recordv1.Attempt) {
	set := func(uid, node, why string) {
		x := f[uid]
		x.node, x.why = node, why
		f[uid] = x
	}
	if why := cmp.Or(a.GetError(), reasons(a.GetRefusal())); why != "" {
		for _, uid := range a.GetPods() {
			set(uid, "", why)
		}
		return
	}
	for _, x := range a.GetPlaced() {
		set(x.GetPod(), x.GetNode(), "")
	}
	for _, x := range a.GetFailed() {
		set(x.GetPod(), "", x.GetMessage())
		for _, v := range x.GetVictims() {
			victim := f[v]
			victim.preemptedBy = x.GetPod()
			f[v] = victim
		}
	}
}

func reasons(st *recordv1.Status) string {
	if st == nil {
		return ""
	}
	return framework.NewStatus(framework.Code(st.GetCode()), st.GetReasons()...).Message()
}

// other is a replay under another configuration.
type other struct {
	*player
	// recorded is what became of pods in all of the record, replayed what does so in the replay.
	recorded, replayed fates
	truncated          bool

	// bindings under way, by work.
	bindings map[uint64]*recordv1.Attempt
	// on are the nodes of pods that the replay bound, ended the pods of which the record had a binding, and departed those
	// that were preempted in the record and are no more, by uid.
	on              map[string]string
	ended, departed map[string]bool
	idle            bool
}

// RunOther replays a record with another configuration. The record is read twice.
func RunOther(cfg chain.Config, in *recording.Reader, again func() (*recording.Reader, error)) (*Differences, error) {
	p, err := newPlayer(cfg)
	if err != nil {
		return nil, err
	}
	o := &other{
		player: p, recorded: fates{}, replayed: fates{}, bindings: map[uint64]*recordv1.Attempt{},
		on: map[string]string{}, ended: map[string]bool{}, departed: map[string]bool{},
	}
	err = o.each(in, func(e *recordv1.Entry) error {
		if a := e.GetAttempt(); a != nil {
			o.recorded.decided(a)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if in, err = again(); err != nil {
		return nil, err
	}
	if err := o.each(in, o.entry); err != nil {
		return nil, err
	}
	o.settle()
	return o.differences(), nil
}

func (o *other) each(in *recording.Reader, fn func(*recordv1.Entry) error) error {
	for {
		e, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, recording.ErrTruncated):
			o.truncated = true
			return nil
		case err != nil:
			return err
		}
		if err := fn(e); err != nil {
			return err
		}
	}
}

// entry takes in an entry of the record.
func (o *other) entry(e *recordv1.Entry) error {
	if at := time.Unix(0, e.GetTime()); o.idle && at.Sub(o.now) > idleAfter {
		o.settle()
	}
	o.now = time.Unix(0, e.GetTime())
	o.chain.Queue.Tick()
	switch step := e.GetStep().(type) {
	case *recordv1.Entry_Change:
		object, err := decode(step.Change)
		if err != nil {
			return err
		}
		if pod, ok := object.(*corev1.Pod); ok {
			o.pod(pod, step.Change.GetGone(), step.Change.GetInitial())
			return nil
		}
		o.change(object, step.Change.GetGone(), step.Change.GetInitial())
	case *recordv1.Entry_Attempt:
		o.idle = false
		o.try()
	case *recordv1.Entry_Idle:
		o.idle = true
		o.settle()
	case *recordv1.Entry_Ended:
		o.ended[step.Ended.GetOf()] = true
		o.finish()
	}
	return nil
}

// settle tries all that is ready, and ends what the record does not say the end of.
func (o *other) settle() {
	for o.try() {
	}
}

// try makes one attempt, and reports whether there was anything to try.
func (o *other) try() bool {
	known := map[uint64]bool{}
	for _, w := range o.steps.Pending() {
		known[w.ID] = true
	}
	a := o.attempt()
	if a == nil {
		return false
	}
	o.replayed.decided(a)
	for _, w := range o.steps.Pending() {
		if !known[w.ID] && len(a.GetPlaced()) > 0 && w.Of == a.GetPods()[0] {
			o.bindings[w.ID] = a
		}
	}
	o.finish()
	for _, f := range a.GetFailed() {
		for _, v := range f.GetVictims() {
			o.preempt(v)
		}
	}
	return true
}

// finish ends evictions, and the bindings that have no end in the record, or have had it.
func (o *other) finish() {
	for again := true; again; {
		again = false
		for _, w := range o.steps.Pending() {
			a := o.bindings[w.ID]
			if a != nil && o.recorded[w.Of].node != "" && !o.ended[w.Of] {
				continue
			}
			again = true
			o.steps.Finish(w.ID, nil)
			if a == nil {
				continue
			}
			delete(o.bindings, w.ID)
			for _, x := range a.GetPlaced() {
				o.bound(x.GetPod(), x.GetNode())
			}
		}
	}
}

// bound tells the chain that a pod is on a node.
func (o *other) bound(uid, node string) {
	o.on[uid] = node
	if pod := o.lastPod(uid); pod != nil && pod.GetSpec().GetNodeName() == "" {
		pod = proto.CloneOf(pod)
		pod.GetSpec().NodeName = proto.String(node)
		o.change(pod, false, false)
	}
}

func (o *other) lastPod(uid string) *corev1.Pod {
	pod, _ := o.last["Pod "+o.names[uid]].(*corev1.Pod)
	if pod.GetMetadata().GetUid() != uid {
		return nil
	}
	return pod
}

// preempt takes a victim away, unless the record does later.
func (o *other) preempt(uid string) {
	if o.recorded[uid].preemptedBy != "" && !o.departed[uid] {
		return
	}
	if pod := o.lastPod(uid); pod != nil {
		o.change(pod, true, false)
	}
}

// pod takes in news of a pod, as they would have been.
func (o *other) pod(pod *corev1.Pod, gone, initial bool) {
	uid := pod.GetMetadata().GetUid()
	if o.replayed[uid].preemptedBy != "" && o.lastPod(uid) == nil {
		return // it is gone already
	}
	if o.recorded[uid].preemptedBy != "" && o.replayed[uid].preemptedBy == "" {
		if gone {
			o.departed[uid] = true
			return
		}
		if pod.GetMetadata().GetDeletionTimestamp() != nil {
			return
		}
	}
	if gone {
		o.change(pod, true, initial)
		return
	}
	if pod.Status != nil {
		pod.Status.NominatedNodeName = "" // where the record made room
	}
	_, decided := o.recorded[uid]
	switch node := o.on[uid]; {
	case node != "":
		pod.GetSpec().NodeName = proto.String(node)
	case decided && o.recorded[uid].node != "" && pod.GetSpec().GetNodeName() != "":
		// Where it has not been bound yet, it cannot have begun either.
		pod.GetSpec().NodeName, pod.Status = nil, nil
	}
	o.change(pod, false, initial)
}

// Differences are in what a replay under another configuration differs from the record.
type Differences struct {
	// Truncated is set where the record ends within an entry.
	Truncated bool
	// Lines say it of each pod, by name.
	Lines []string
	// Pods that were decided about, in the record or the replay, and how many of them came out the same.
	Pods, Same int
	// Moved went to another node, Lost went nowhere and did before, Gained the opposite.
	Moved, Lost, Gained int
	// PreemptedThen and PreemptedNow in the record and in the replay.
	PreemptedThen, PreemptedNow int
}

func (o *other) differences() *Differences {
	d := &Differences{Truncated: o.truncated}
	uids := map[string]struct{}{}
	for _, f := range []fates{o.recorded, o.replayed} {
		for uid := range f {
			uids[uid] = struct{}{}
		}
	}
	names := slices.SortedFunc(maps.Keys(uids), func(a, b string) int {
		return cmp.Or(cmp.Compare(o.nameOf(a), o.nameOf(b)), cmp.Compare(a, b))
	})
	for _, uid := range names {
		d.compare(o, uid)
	}
	return d
}

func (d *Differences) compare(o *other, uid string) {
	then, now := o.recorded[uid], o.replayed[uid]
	name, lines := o.nameOf(uid), len(d.Lines)
	d.Pods++
	switch {
	case then.node == now.node:
	case then.node == "":
		d.Gained++
		d.Lines = append(d.Lines, fmt.Sprintf("%s: nowhere → %s", name, now.node))
	case now.node == "":
		d.Lost++
		why := cmp.Or(now.why, "it was not tried")
		d.Lines = append(d.Lines, fmt.Sprintf("%s: %s → nowhere: %s", name, then.node, why))
	default:
		d.Moved++
		d.Lines = append(d.Lines, fmt.Sprintf("%s: %s → %s", name, then.node, now.node))
	}
	if then.preemptedBy != "" {
		d.PreemptedThen++
	}
	if now.preemptedBy != "" {
		d.PreemptedNow++
	}
	switch {
	case then.preemptedBy == now.preemptedBy:
	case now.preemptedBy == "":
		d.Lines = append(d.Lines, fmt.Sprintf("%s: is not preempted, and was by %s", name, o.nameOf(then.preemptedBy)))
	case then.preemptedBy == "":
		d.Lines = append(d.Lines, fmt.Sprintf("%s: is preempted by %s, and was not", name, o.nameOf(now.preemptedBy)))
	default:
		d.Lines = append(d.Lines, fmt.Sprintf("%s: is preempted by %s, and was by %s", name, o.nameOf(now.preemptedBy), o.nameOf(then.preemptedBy)))
	}
	if len(d.Lines) == lines {
		d.Same++
	}
}

// Print tells of the differences, and reports whether there are none.
func (d *Differences) Print(out io.Writer) (bool, error) {
	for _, line := range d.Lines {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return false, err
		}
	}
	_, err := fmt.Fprintf(out, "%d pods: %d as recorded, %d on another node, %d nowhere that had one, %d on one that had none; %d preempted, %d in the record\n",
		d.Pods, d.Same, d.Moved, d.Lost, d.Gained, d.PreemptedNow, d.PreemptedThen)
	return len(d.Lines) == 0, err
}
