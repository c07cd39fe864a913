// Package podsource delivers the pods of one node, as the gateway has them: the first stage of the execution chain.
//
// It decides nothing and keeps nothing beyond the informer's copy.
package podsource

import (
	"context"
	"time"

	"trireme.dev/client/informer"
	"trireme.dev/client/tracing"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// Sink takes pods. Its methods must not block; they are called in order, from one goroutine.
type Sink struct {
	// Update tells of a pod that is new or changed.
	Update func(*corev1.Pod)
	// Delete tells of the last known state of a pod that the gateway has no more.
	Delete func(*corev1.Pod)
	// Synced is called once, when all pods that there were at the beginning have been delivered.
	Synced func()
}

// Source watches the pods bound to one node.
type Source struct {
	factory *informer.Factory
	sink    Sink
}

// New adds the watch to a factory, which must not run yet.
func New(factory *informer.Factory, node string, sink Sink) *Source {
	s := &Source{factory: factory, sink: sink}
	informer.Of[*corev1.Pod](factory, informer.Config{FieldSelector: "spec.nodeName=" + node}).AddHandler(informer.Handler[*corev1.Pod]{
		Add:    func(p *corev1.Pod, _ bool) { sink.Update(p); heard(p) },
		Update: s.update,
		Delete: sink.Delete,
	})
	return s
}

// heard records how long the pod's way here was, once it has been handed on: its worker's wait has begun by then, so that no
// time is lost between the two. Of a pod that an earlier agent has taken up already, that is history.
func heard(p *corev1.Pod) {
	if p.GetStatus().GetStartTime() == nil {
		tracing.Received(context.Background(), p.GetMetadata(), time.Now(), "nodeagent")
	}
}

// update also tells of the end of a pod whose name another has taken while nobody watched.
func (s *Source) update(before, after *corev1.Pod) {
	if before.GetMetadata().GetUid() != after.GetMetadata().GetUid() {
		s.sink.Delete(before)
		defer heard(after)
	}
	s.sink.Update(after)
}

// Run waits for the first complete view and then says so.
func (s *Source) Run(ctx context.Context) error {
	if err := s.factory.WaitForSync(ctx); err != nil {
		return err
	}
	s.sink.Synced()
	<-ctx.Done()
	return nil
}
