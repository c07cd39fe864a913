// Package hint fans hints that a pod changed out to whoever listens. It serves the runtimes' Events methods: nothing
// ever waits for a slow listener, and hints about one pod that a listener has not taken yet are one hint.
package hint

import (
	"context"
	"sync"

	"trireme.dev/services/nodeagent/internal/runtime"
)

// Hub is a set of listeners. The zero value is ready.
type Hub struct {
	mu        sync.Mutex
	listeners map[*listener]struct{}
}

type listener struct {
	mu      sync.Mutex
	pending []string
	known   map[string]struct{}
	wake    chan struct{}
}

// Notify tells every listener that a pod changed. It never blocks.
func (h *Hub) Notify(podUID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		l.add(podUID)
	}
}

// Listen returns a channel of hints that is closed once ctx has ended.
func (h *Hub) Listen(ctx context.Context) <-chan runtime.Event {
	l := &listener{known: map[string]struct{}{}, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	if h.listeners == nil {
		h.listeners = map[*listener]struct{}{}
	}
	h.listeners[l] = struct{}{}
	h.mu.Unlock()

	out := make(chan runtime.Event)
	go func() {
		defer close(out)
		defer func() {
			h.mu.Lock()
			delete(h.listeners, l)
			h.mu.Unlock()
		}()
		for {
			for _, uid := range l.take() {
				select {
				case out <- runtime.Event{PodUID: uid}:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-l.wake:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func (l *listener) add(podUID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.known[podUID]; ok {
		return
	}
	l.known[podUID] = struct{}{}
	l.pending = append(l.pending, podUID)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *listener) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	uids := l.pending
	l.pending = nil
	clear(l.known)
	return uids
}
