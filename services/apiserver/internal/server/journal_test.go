package server_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver/internal/envelope"
	"trireme.dev/services/apiserver/internal/storage"
)

// object is what the model's kinds have in common.
type object interface {
	proto.Message
	GetMetadata() *metav1.ObjectMeta
}

// subject is a kind of the model.
type subject struct {
	prefix, service string
	empty           func() object
}

var (
	configMaps = &subject{"/trireme/core/configmaps/", "trireme.core.v1.ConfigMapService", func() object { return &corev1.ConfigMap{} }}
	pods       = &subject{"/trireme/core/pods/", "trireme.core.v1.PodService", func() object { return &corev1.Pod{} }}
)

// journal is what the store itself says has happened, past all gateways: every change that there was, from a state on.
type journal struct {
	cluster *cluster
	start   int64
	base    []storage.Entry

	mu       sync.Mutex
	position int64
	moved    chan struct{}
	events   []storage.Event
}

func newJournal(ctx context.Context, c *cluster) (*journal, error) {
	page, err := c.store().List(ctx, "/trireme/core/", storage.ListOptions{})
	if err != nil {
		return nil, err
	}
	return &journal{cluster: c, start: page.Revision, base: page.Entries, position: page.Revision, moved: make(chan struct{})}, nil
}

// run follows the store until ctx ends, whatever happens to it meanwhile.
func (j *journal) run(ctx context.Context) error {
	for {
		err := j.cluster.store().Watch(ctx, "/trireme/core/", storage.WatchOptions{After: j.at(), Previous: true}, func(b storage.Batch) error {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.events = append(j.events, b.Events...)
			j.position = b.Revision
			close(j.moved)
			j.moved = make(chan struct{})
			return nil
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, storage.ErrCompacted):
			return fmt.Errorf("journal at %d: %w", j.at(), err)
		}
		pause(ctx, 10*time.Millisecond) // the store is being started
	}
}

func (j *journal) at() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.position
}

// wait blocks until the journal has come to a revision.
func (j *journal) wait(ctx context.Context, revision int64) error {
	for {
		j.mu.Lock()
		position, moved := j.position, j.moved
		j.mu.Unlock()
		if position >= revision {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("journal at %d, want %d: %w", position, revision, ctx.Err())
		}
	}
}

// change is an event of the journal, decoded.
type change struct {
	key         string // namespace/name
	revision    int64
	now, before object
}

// changes returns what happened to a kind, and its state at the journal's start.
func (j *journal) changes(s *subject) (state map[string]object, changes []change, err error) {
	state = map[string]object{}
	decode := func(value []byte, revision int64) object {
		obj := s.empty()
		if bad := envelope.Decode(value, revision, obj); bad != nil {
			err = bad
		}
		return obj
	}
	for _, e := range j.base {
		if name, ok := strings.CutPrefix(e.Key, s.prefix); ok {
			state[name] = decode(e.Value, e.Revision)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.events {
		name, ok := strings.CutPrefix(e.Key, s.prefix)
		if !ok {
			continue
		}
		c := change{key: name, revision: e.Revision}
		if e.Value != nil {
			c.now = decode(e.Value, e.Revision)
		}
		if e.Previous != nil {
			c.before = decode(e.Previous, e.PreviousRevision)
		}
		changes = append(changes, c)
	}
	return state, changes, err
}

// interest is what a watcher of the model watches, and the same said in Go.
type interest struct {
	subject                   *subject
	namespace, labels, fields string
	matches                   func(object) bool
}

func (i interest) String() string {
	return fmt.Sprintf("%s namespace %q labels %q fields %q", i.subject.service, i.namespace, i.labels, i.fields)
}

func label(key string, want ...string) func(object) bool {
	return func(o object) bool {
		value, ok := o.GetMetadata().GetLabels()[key]
		return ok && slices.Contains(want, value)
	}
}

func pod(o object) *corev1.Pod {
	p, _ := o.(*corev1.Pod)
	return p
}

// interests go through every place of the cache's index of watchers.
var interests = []interest{
	{subject: configMaps, matches: func(object) bool { return true }},
	{subject: configMaps, labels: "color=red", matches: label("color", "red")},
	{subject: configMaps, labels: "color!=red", matches: func(o object) bool { return !label("color", "red")(o) }},
	{subject: configMaps, namespace: "kube-public", matches: func(o object) bool { return o.GetMetadata().GetNamespace() == "kube-public" }},
	{subject: configMaps, namespace: "default", fields: "metadata.name=m3", matches: func(o object) bool {
		return o.GetMetadata().GetNamespace() == "default" && o.GetMetadata().GetName() == "m3"
	}},
	{subject: pods, matches: func(object) bool { return true }},
	{subject: pods, fields: "spec.nodeName=n1", matches: func(o object) bool { return pod(o).GetSpec().GetNodeName() == "n1" }},
	{subject: pods, fields: "spec.nodeName=,status.phase!=Failed", matches: func(o object) bool {
		return pod(o).GetSpec().GetNodeName() == "" && pod(o).GetStatus().GetPhase() != "Failed"
	}},
	{subject: pods, labels: "pod-template-hash=h1", matches: label("pod-template-hash", "h1")},
	{subject: pods, namespace: "default", labels: "color in (red,green)", matches: func(o object) bool {
		return o.GetMetadata().GetNamespace() == "default" && label("color", "red", "green")(o)
	}},
	{subject: pods, fields: "metadata.ownerReferences.uid=u1", matches: func(o object) bool {
		for _, r := range o.GetMetadata().GetOwnerReferences() {
			if r.GetUid() == "u1" {
				return true
			}
		}
		return false
	}},
}

// due is an event that a watcher has to be told of.
type due struct {
	key      string
	revision int64
	typ      metav1.WatchEventType
	object   object // DELETED carries the last state, and the revision of the change
}

func (d due) String() string { return fmt.Sprintf("%v %s@%d", d.typ, d.key, d.revision) }

// dues returns what a watcher has to be told of a change; false where it is none of its business.
func (i interest) due(c change) (due, bool) {
	now, before := c.now != nil && i.matches(c.now), c.before != nil && i.matches(c.before)
	d := due{key: c.key, revision: c.revision, object: c.now}
	switch {
	case now && before:
		d.typ = modified
	case now:
		d.typ = added
	case before:
		d.typ = deleted
		last, _ := proto.Clone(c.before).(object)
		last.GetMetadata().ResourceVersion = fmt.Sprint(c.revision)
		d.object = last
	default:
		return due{}, false
	}
	return d, true
}

// segment is what a watcher heard from a state on, over however many streams.
type segment struct {
	initial []item
	from    int64 // revision of the initial state
	events  []heard
	to      int64 // complete up to here
}

// judge says what is wrong with a segment: every event that happened must be there, once, in the order of revisions, and
// no other.
func (j *journal) judge(i interest, s *segment) []string {
	var wrong []string
	complain := func(format string, args ...any) {
		if len(wrong) < 20 {
			wrong = append(wrong, fmt.Sprintf("%v from %d to %d: ", i, s.from, s.to)+fmt.Sprintf(format, args...))
		}
	}
	state, changes, err := j.changes(i.subject)
	if err != nil {
		return []string{err.Error()}
	}
	var want []due
	for _, c := range changes {
		switch {
		case c.revision <= s.from && c.now != nil:
			state[c.key] = c.now
		case c.revision <= s.from:
			delete(state, c.key)
		case c.revision <= s.to:
			if d, ok := i.due(c); ok {
				want = append(want, d)
			}
		}
	}
	maps.DeleteFunc(state, func(_ string, o object) bool { return !i.matches(o) })
	for _, got := range s.initial {
		if o := state[got.key]; o == nil || !got.is(o, i.subject) {
			complain("initial state has %s@%d, there was %v", got.key, got.revision, o.GetMetadata())
		}
	}
	if len(s.initial) != len(state) {
		complain("initial state has %d objects, there were %d", len(s.initial), len(state))
	}
	order := func(a, b due) int {
		if a.revision != b.revision {
			return int(a.revision - b.revision)
		}
		return strings.Compare(a.key, b.key)
	}
	slices.SortStableFunc(want, order)
	got := make([]due, len(s.events))
	last := s.from
	for n, e := range s.events {
		if e.revision < last {
			complain("%v %s@%d after an event of %d", e.typ, e.key, e.revision, last)
		}
		last = e.revision
		got[n] = due{key: e.key, revision: e.revision, typ: e.typ}
	}
	// Within a revision any order will do.
	byRevision := slices.Clone(s.events)
	slices.SortStableFunc(byRevision, func(a, b heard) int {
		return order(due{key: a.key, revision: a.revision}, due{key: b.key, revision: b.revision})
	})
	slices.SortStableFunc(got, order)
	for n := range max(len(got), len(want)) {
		switch {
		case n >= len(got):
			complain("lost: %v", want[n])
		case n >= len(want):
			complain("came from nowhere, or twice: %v", got[n])
		case got[n].String() != want[n].String():
			complain("event %d is %v, want %v", n, got[n], want[n])
			return wrong // what follows is shifted
		case !byRevision[n].is(want[n].object, i.subject):
			complain("%v carries another object than was stored", got[n])
		}
	}
	return wrong
}

// is reports whether the bytes are the object.
func (i item) is(want object, s *subject) bool {
	got := s.empty()
	return proto.Unmarshal(i.bytes, got) == nil && proto.Equal(got, want)
}
