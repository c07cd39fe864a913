//go:build linux

package containerd

import (
	"context"
	"fmt"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"

	"trireme.dev/services/nodeagent/internal/runtime"
)

// watchEvents follows containerd's events until ctx ends. Whatever was missed while there was no stream is found by
// comparing lists, after the new stream has begun.
func (r *Runtime) watchEvents(ctx context.Context) {
	away, stopListening := false, func() {}
	defer func() { stopListening() }()
	for ctx.Err() == nil {
		err := r.followEvents(ctx, func() {
			if away {
				r.logger.Info("containerd's events are followed again")
				r.hintAll()
			}
			stopListening()
			away = false
		})
		if ctx.Err() != nil {
			return
		}
		if !away {
			r.logger.Warn("containerd's events ended", "error", err)
			stopListening = r.listenAtShims(ctx)
		}
		away = true
		timer := time.NewTimer(eagerness)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// hintAll has all pods looked at again: a look at one while containerd was away has failed.
func (r *Runtime) hintAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.pods {
		r.hints.Notify(uid)
	}
}

// followEvents follows one stream to its end. It calls begun once it has compared the lists.
func (r *Runtime) followEvents(ctx context.Context, begun func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var filters []string
	for _, topic := range []string{"/tasks/start", "/tasks/exit", "/tasks/oom", "/containers/delete"} {
		filters = append(filters, fmt.Sprintf("namespace==%s,topic==%q", r.cfg.Namespace, topic))
	}
	stream, errs := r.client.Subscribe(ctx, filters...)
	if err := r.resync(ctx); err != nil {
		return err
	}
	begun()
	for {
		select {
		case envelope := <-stream:
			r.handle(envelope)
		case err := <-errs:
			return err
		}
	}
}

func (r *Runtime) handle(envelope *events.Envelope) {
	if envelope == nil || envelope.Event == nil {
		return
	}
	event, err := typeurl.UnmarshalAny(envelope.Event)
	if err != nil {
		r.logger.Warn("event of containerd is not understood", "topic", envelope.Topic, "error", err)
		return
	}
	var id string
	switch e := event.(type) {
	case *apievents.TaskExit:
		// An exec's end has another ID.
		if e.ID != e.ContainerID {
			return
		}
		if c, err := r.find(e.ContainerID); err == nil {
			// Settling waits for output; other containers' events must not.
			r.copies.Go(func() { r.settle(c, int(e.ExitStatus), e.ExitedAt.AsTime()) })
		}
		return
	case *apievents.TaskStart:
		id = e.ContainerID
	case *apievents.TaskOOM:
		id = e.ContainerID
	case *apievents.ContainerDelete:
		id = e.ID
	}
	if c, err := r.find(id); err == nil {
		r.hints.Notify(c.podUID)
	}
}

func (r *Runtime) taskStatuses(ctx context.Context) (map[string]*tasktypes.Process, error) {
	list, err := r.tasks.List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", errgrpc.ToNative(err))
	}
	statuses := make(map[string]*tasktypes.Process, len(list.Tasks))
	for _, task := range list.Tasks {
		statuses[task.ID] = task
	}
	return statuses, nil
}

// resync compares the containers that are believed to run with containerd's tasks.
func (r *Runtime) resync(ctx context.Context) error {
	// Which ones run is asked first: one that starts after that is not in question.
	r.mu.Lock()
	var running []*container
	for _, c := range r.containers {
		if c.state == runtime.StateRunning {
			running = append(running, c)
		}
	}
	r.mu.Unlock()
	statuses, err := r.taskStatuses(ctx)
	if err != nil {
		return err
	}
	for _, c := range running {
		task, ok := statuses[c.id]
		switch {
		case !ok:
			// The list leaves out a task whose shim does not answer in time; the task itself is asked again.
			if err := r.check(ctx, c); err != nil {
				return err
			}
		case task.Status == tasktypes.Status_STOPPED:
			r.settle(c, int(task.ExitStatus), task.ExitedAt.AsTime())
		}
	}
	return nil
}
