// Package event records what happened to an object as Event objects, which is how people learn why something is or is
// not as they asked.
//
// Recording never blocks its caller and never fails it: events wait in a bounded queue, and what does not fit is
// dropped, counted and logged. The same event again raises the count of the one there is. It decides nothing, and
// nothing may decide by what it wrote.
package event

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/client/kind"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// Types of events.
const (
	Normal  = "Normal"
	Warning = "Warning"
)

const (
	// queueLength holds what a large job brings about at once.
	queueLength = 1 << 14
	// batchSize events are written side by side, and batches begin no closer to each other than batchPeriod: the gateway commits
	// together what arrives together, which costs far less than one after the other, and what events tell of goes first.
	batchSize   = 128
	batchPeriod = 100 * time.Millisecond
	// remembered is how many different events can be counted up; older ones begin anew.
	remembered = 4096
	// forgetAfter is how long the same event is counted up.
	forgetAfter = 10 * time.Minute
	// maxMessage in bytes, Kubernetes' bound.
	maxMessage = 1024
	tries      = 4
	callLimit  = 10 * time.Second
	lastWords  = 2 * time.Second
)

// Recorder writes events of one component. Event may be called at once; nothing is written until Run.
type Recorder struct {
	// Host is the node that events are about, where the component runs on one. Set it before use.
	Host string
	// Logger; nil means slog.Default. Set it before use.
	Logger *slog.Logger

	component string
	events    *client.Resource[*corev1.Event]
	queue     chan *occurrence
	dropped   atomic.Int64

	mu    sync.Mutex
	known map[sameness]*entry
}

// occurrence is what happened, as it waits to be written.
type occurrence struct {
	// object is the type of what it happened to, where about does not say kind and version yet.
	object                     protoreflect.MessageType
	about                      reference
	eventType, reason, message string
	at                         time.Time
}

// reference is a corev1.ObjectReference.
type reference struct {
	apiVersion, kind, namespace, name, uid, resourceVersion, fieldPath string
}

// sameness is what must be equal for two events to be one that happened twice.
type sameness struct {
	apiVersion, kind, namespace, name, uid, fieldPath string
	eventType, reason, message                        string
}

type entry struct {
	stored *corev1.Event
	seen   time.Time
}

// NewRecorder returns a recorder for a component: trireme-scheduler.
func NewRecorder(conn grpc.ClientConnInterface, component string) *Recorder {
	return &Recorder{
		component: component,
		events:    client.For[*corev1.Event](conn),
		queue:     make(chan *occurrence, queueLength),
		known:     map[sameness]*entry{},
	}
}

// Event records that something happened to an object; eventType is Normal or Warning, reason one CamelCase word. It
// does not block, and the object may be changed afterwards.
func (r *Recorder) Event(object client.Object, eventType, reason, message string) {
	meta := object.GetMetadata()
	r.add(&occurrence{
		object: object.ProtoReflect().Type(),
		about: reference{
			namespace: meta.GetNamespace(), name: meta.GetName(), uid: meta.GetUid(), resourceVersion: meta.GetResourceVersion(),
		},
		eventType: eventType, reason: reason, message: message, at: time.Now(),
	})
}

// EventFor records that something happened to what the reference names: a container of a pod by its field path.
func (r *Recorder) EventFor(about *corev1.ObjectReference, eventType, reason, message string) {
	r.add(&occurrence{
		about: reference{
			apiVersion: about.GetApiVersion(), kind: about.GetKind(), namespace: about.GetNamespace(), name: about.GetName(),
			uid: about.GetUid(), resourceVersion: about.GetResourceVersion(), fieldPath: about.GetFieldPath(),
		},
		eventType: eventType, reason: reason, message: message, at: time.Now(),
	})
}

func (r *Recorder) add(o *occurrence) {
	select {
	case r.queue <- o:
	default:
		if r.dropped.Add(1) == 1 {
			r.logger().Warn("events are being dropped: the queue is full", slog.Int("queue", queueLength))
		}
	}
}

// event makes the Event object of an occurrence.
func (r *Recorder) event(o *occurrence) (*corev1.Event, error) {
	about := o.about
	if o.object != nil {
		k, err := kind.New(o.object, nil)
		if err != nil {
			return nil, err
		}
		about.apiVersion, about.kind = k.APIVersion(), k.Name
	}
	at := timestamppb.New(o.at)
	e := &corev1.Event{
		Metadata: &metav1.ObjectMeta{
			Namespace: cmp.Or(about.namespace, "default"), // Events have a namespace even where their object has none.
			// The random part tells apart recorders that see the same object at the same instant.
			Name: fmt.Sprintf("%s.%x%04x", trim(about.name, 230), o.at.UnixNano(), rand.N(1<<16)),
		},
		InvolvedObject: &corev1.ObjectReference{
			ApiVersion: said(about.apiVersion), Kind: said(about.kind), Namespace: said(about.namespace), Name: said(about.name),
			Uid: said(about.uid), ResourceVersion: said(about.resourceVersion), FieldPath: said(about.fieldPath),
		},
		Type:           proto.String(o.eventType),
		Reason:         proto.String(o.reason),
		Message:        proto.String(trim(o.message, maxMessage)),
		Source:         &corev1.EventSource{Component: proto.String(r.component)},
		FirstTimestamp: at, LastTimestamp: at, Count: proto.Int32(1),
		ReportingComponent: proto.String(r.component),
	}
	if r.Host != "" {
		e.Source.Host = proto.String(r.Host)
		e.ReportingInstance = proto.String(trim(r.Host, 128))
	}
	return e, nil
}

// said is nil where nothing is said.
func said(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Dropped is how many events did not fit into the queue or could not be written.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

// Run writes events until ctx ends, then those that wait already, for two seconds at most, and returns nil: the last
// words of a component that is stopping are often the ones that matter.
func (r *Recorder) Run(ctx context.Context) error {
	writing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWords, cancel) })()
	for {
		batch := r.gather(ctx)
		switch {
		case len(batch) == 0:
			return nil
		case writing.Err() != nil:
			lost := len(batch) + len(r.queue)
			r.dropped.Add(int64(lost))
			r.logger().Warn("events lost at the end", slog.Int("events", lost))
			return nil
		}
		period := time.NewTimer(batchPeriod)
		r.writeAll(writing, batch)
		select {
		case <-period.C:
		case <-ctx.Done():
		}
		period.Stop()
	}
}

// gather waits for an occurrence until ctx ends, and returns it with those that wait already; none where ctx has ended and
// none waits.
func (r *Recorder) gather(ctx context.Context) []*occurrence {
	var batch []*occurrence
	if ctx.Err() == nil {
		select {
		case o := <-r.queue:
			batch = append(batch, o)
		case <-ctx.Done():
		}
	}
	for len(batch) < batchSize {
		select {
		case o := <-r.queue:
			batch = append(batch, o)
		default:
			return batch
		}
	}
	return batch
}

// writeAll writes a batch: what happened to an object in order, the rest side by side.
func (r *Recorder) writeAll(ctx context.Context, batch []*occurrence) {
	type object struct{ namespace, name string }
	happened := map[object][]*occurrence{}
	for _, o := range batch {
		to := object{o.about.namespace, o.about.name}
		happened[to] = append(happened[to], o)
	}
	var wg sync.WaitGroup
	for _, list := range happened {
		wg.Go(func() {
			for _, o := range list {
				e, err := r.event(o)
				if err != nil {
					r.logger().Error("event on what is no object", slog.Any("error", err))
					continue
				}
				r.write(ctx, e)
			}
		})
	}
	wg.Wait()
}

// write stores the event, or counts up the one there is. It retries only while the gateway cannot be reached.
func (r *Recorder) write(ctx context.Context, e *corev1.Event) {
	id := samenessOf(e)
	for try := range tries {
		stored, err := r.store(ctx, id, e)
		if err == nil {
			r.remember(id, stored)
			return
		}
		if !apierr.IsUnavailable(err) || try == tries-1 || !pause(ctx, time.Second<<try) {
			r.dropped.Add(1)
			r.logger().Warn("event lost", slog.String("reason", e.GetReason()),
				slog.String("object", e.GetInvolvedObject().GetName()), slog.Any("error", err))
			return
		}
	}
}

func (r *Recorder) store(ctx context.Context, id sameness, e *corev1.Event) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	r.mu.Lock()
	before, ok := r.known[id]
	r.mu.Unlock()
	if ok && time.Since(before.seen) < forgetAfter {
		again := proto.CloneOf(before.stored)
		again.Count = proto.Int32(again.GetCount() + 1)
		again.LastTimestamp = e.GetLastTimestamp()
		again.InvolvedObject = e.GetInvolvedObject()
		stored, err := r.events.Update(ctx, again)
		if !apierr.IsNotFound(err) && !apierr.IsConflict(err) {
			return stored, err
		}
		// Gone, or changed by another: begin aner.
	}
	stored, err := r.events.Create(ctx, e)
	if apierr.IsAlreadyExists(err) {
		// An earlier try was stored though its answer was lost.
		return r.events.Get(ctx, e.GetMetadata().GetNamespace(), e.GetMetadata().GetName())
	}
	return stored, err
}

func (r *Recorder) remember(id sameness, stored *corev1.Event) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[id] == nil && len(r.known) >= remembered {
		// What is too old, and any others until a quarter has gone: losing one costs a second Event object, no more.
		spare := remembered / 4
		for k, e := range r.known {
			if spare--; spare >= 0 || now.Sub(e.seen) >= forgetAfter {
				delete(r.known, k)
			}
		}
	}
	r.known[id] = &entry{stored: stored, seen: now}
}

func samenessOf(e *corev1.Event) sameness {
	o := e.GetInvolvedObject()
	return sameness{
		apiVersion: o.GetApiVersion(), kind: o.GetKind(), namespace: o.GetNamespace(), name: o.GetName(),
		uid: o.GetUid(), fieldPath: o.GetFieldPath(),
		eventType: e.GetType(), reason: e.GetReason(), message: e.GetMessage(),
	}
}

func (r *Recorder) logger() *slog.Logger {
	if r.Logger != nil {
		return r.Logger
	}
	return slog.Default()
}

// trim cuts s to at most limit bytes without splitting a character.
func trim(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// pause reports whether ctx is still alive after the time.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
