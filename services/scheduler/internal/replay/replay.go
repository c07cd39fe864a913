// Package replay makes the decisions of a record again, with the parts that a scheduler is made of and the time of the
// record. Same does it step by step, and every decision must come out as it was; Other does it under another configuration,
// and tells what becomes of the pods. It stands at the end of the recorded scheduler's chain, and talks to nobody.
package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	recordv1 "trireme.dev/proto/gen/trireme/record/v1"
	schedulingv1 "trireme.dev/proto/gen/trireme/scheduling/v1"
	"trireme.dev/services/scheduler/framework"
	"trireme.dev/services/scheduler/internal/chain"
	"trireme.dev/services/scheduler/internal/intake"
	"trireme.dev/services/scheduler/internal/recording"
)

// player drives a chain through the steps of a record.
type player struct {
	chain *chain.Chain
	steps *recording.Steps
	now   time.Time
	// made is the entry of the step that was just made; nil where it came to nothing.
	made *recordv1.Entry
	// last are the objects as the chain knows them, by kind and name; names those of pods by uid, whether they are there or not.
	last  map[string]client.Object
	names map[string]string
}

func newPlayer(cfg chain.Config) (*player, error) {
	p := &player{last: map[string]client.Object{}, names: map[string]string{}}
	p.steps = recording.NewReplay(func() time.Time { return p.now }, func(s recording.Step) { p.made = s.Entry })
	var err error
	p.chain, err = chain.New(cfg, chain.Deps{Binder: nobody{}, Evictor: nobody{}, Steps: p.steps, Logger: slog.New(slog.DiscardHandler)})
	return p, err
}

// nobody implements framework.Binder and framework.Evictor. It is never asked: work is not done in a replay.
type nobody struct{}

var errReplay = errors.New("this is a replay")

// Bind implements framework.Binder.
func (nobody) Bind(context.Context, []*corev1.Binding) error { return errReplay }

// Evict implements framework.Evictor.
func (nobody) Evict(context.Context, *framework.PodInfo, string) error { return errReplay }

// MarkGroup implements framework.Evictor.
func (nobody) MarkGroup(context.Context, *schedulingv1.PodGroup, string) error { return errReplay }

// decode is the object of a change.
func decode(c *recordv1.Change) (client.Object, error) {
	o, ok := intake.New(c.GetKind())
	if !ok {
		return nil, fmt.Errorf("the record has an object of kind %s, of which this trireme knows nothing", c.GetKind())
	}
	if err := proto.Unmarshal(c.GetObject(), o); err != nil {
		return nil, fmt.Errorf("%s of the record: %w", c.GetKind(), err)
	}
	return o, nil
}

func keyOf(o client.Object) string {
	m := o.GetMetadata()
	return string(o.ProtoReflect().Descriptor().Name()) + " " + m.GetNamespace() + "/" + m.GetName()
}

// change tells the chain of an object.
func (p *player) change(o client.Object, gone, initial bool) {
	key := keyOf(o)
	before := p.last[key]
	if pod, ok := o.(*corev1.Pod); ok {
		p.names[pod.GetMetadata().GetUid()] = framework.Key(pod)
	}
	if gone {
		delete(p.last, key)
		p.chain.Intake.Change(o, nil, initial)
		return
	}
	p.last[key] = o
	p.chain.Intake.Change(before, o, initial)
}

// attempt tries what is next, and returns what was decided; nil where nothing is ready.
func (p *player) attempt() *recordv1.Attempt {
	p.made = nil
	p.chain.Cycles.Attempt(context.Background(), context.Background())
	return p.made.GetAttempt()
}

// nameOf a pod, by uid.
func (p *player) nameOf(uid string) string {
	if name := p.names[uid]; name != "" {
		return name
	}
	return "pod with uid " + uid
}

// Same is what came of a replay that is to make the decisions of the record.
type Same struct {
	// Decisions that came out as they were.
	Decisions int
	// Truncated is set where the record ends within an entry.
	Truncated bool
	// Difference is the first step that came out otherwise; empty where none did.
	Difference string
}

// before is how many decisions are shown before one that differs.
const before = 3

// RunSame replays a record with its own configuration, and stops at the first step that comes out otherwise.
func RunSame(cfg chain.Config, in *recording.Reader) (*Same, error) {
	p, err := newPlayer(cfg)
	if err != nil {
		return nil, err
	}
	out := &Same{}
	var recent []string
	for n := 1; ; n++ {
		offset := in.Offset()
		e, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case errors.Is(err, recording.ErrTruncated):
			out.Truncated = true
			return out, nil
		case err != nil:
			return nil, err
		}
		if err := p.play(e); err != nil {
			return nil, err
		}
		if same(e, p.made) {
			if e.GetAttempt() != nil {
				out.Decisions++
				if recent = append(recent, p.describe(e)...); len(recent) > before {
					recent = recent[len(recent)-before:]
				}
			}
			continue
		}
		out.Difference = p.difference(n, offset, e, recent)
		return out, nil
	}
}

// play makes the step of an entry.
func (p *player) play(e *recordv1.Entry) error {
	p.now, p.made = time.Unix(0, e.GetTime()), nil
	switch step := e.GetStep().(type) {
	case *recordv1.Entry_Change:
		o, err := decode(step.Change)
		if err != nil {
			return err
		}
		p.change(o, step.Change.GetGone(), step.Change.GetInitial())
	case *recordv1.Entry_Attempt, *recordv1.Entry_Idle:
		p.attempt()
	case *recordv1.Entry_Ended:
		p.steps.Finish(step.Ended.GetId(), recording.StatusFromProto(step.Ended.GetStatus()))
	case *recordv1.Entry_Tick:
		p.chain.Queue.Tick()
	case *recordv1.Entry_Released:
		p.chain.Frameworks[0].LetGo(step.Released.GetPod())
	default:
		return fmt.Errorf("the record has a step of which this trireme knows nothing")
	}
	return nil
}

// same compares byte for byte. Of changes, the object is the record's in both.
func same(recorded, made *recordv1.Entry) bool {
	if recorded.GetChange() != nil {
		return made.GetChange() != nil
	}
	a, errA := proto.MarshalOptions{Deterministic: true}.Marshal(recorded)
	b, errB := proto.MarshalOptions{Deterministic: true}.Marshal(made)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
