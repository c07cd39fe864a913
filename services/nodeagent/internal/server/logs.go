package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	nodev1 "trireme.dev/proto/gen/trireme/node/v1"
	"trireme.dev/services/nodeagent/internal/logs"
	"trireme.dev/services/nodeagent/internal/plan"
	"trireme.dev/services/nodeagent/internal/podworker"
	"trireme.dev/services/nodeagent/internal/runtime"
)

const (
	// logChunk is the largest message of a log.
	logChunk = 32 << 10
	// endCheck is how often a follower looks whether its container still runs, beside the runtime's hints.
	endCheck = 10 * time.Second
)

// Logs streams what a container wrote.
func (s *Server) Logs(in *nodev1.NodeLogsRequest, stream nodev1.NodeService_LogsServer) error {
	ctx, request := stream.Context(), in.GetRequest()
	n, pod, err := s.pod(ctx, in.GetPodUid(), request.GetNamespace(), request.GetName())
	if err != nil {
		return err
	}
	container, err := containerOf(pod, request.GetContainer())
	if err != nil {
		return err
	}
	attempt, running, err := n.attempt(ctx, pod, container, request.GetPrevious())
	if err != nil {
		return err
	}
	opts := logs.Options{
		Follow: request.GetFollow() && running, TailLines: request.TailLines, LimitBytes: request.LimitBytes, Timestamps: request.GetTimestamps(),
	}
	switch {
	case request.GetSinceTime() != nil:
		opts.SinceTime = request.GetSinceTime().AsTime()
	case request.SinceSeconds != nil:
		opts.SinceTime = time.Now().Add(-time.Duration(request.GetSinceSeconds()) * time.Second)
	}
	var out io.Writer = sender{stream}
	flush := func() error { return nil }
	if opts.Follow {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		opts.Ended = n.ended(ctx, pod.GetMetadata().GetUid(), container, attempt)
	} else {
		b := bufio.NewWriterSize(out, logChunk)
		out, flush = b, b.Flush
	}
	err = logs.Read(ctx, podworker.LogPath(n.LogDir, pod, container, attempt), opts, out)
	// A container that has not written yet may have no file.
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return flush()
}

type sender struct{ stream nodev1.NodeService_LogsServer }

func (s sender) Write(p []byte) (int, error) {
	sent := 0
	for len(p) > 0 {
		piece := p[:min(len(p), logChunk)]
		if err := s.stream.Send(&corev1.LogsResponse{Data: piece}); err != nil {
			return sent, err
		}
		sent += len(piece)
		p = p[len(piece):]
	}
	return sent, nil
}

// attempt picks the run whose log is asked for, and says whether it runs.
func (n *Node) attempt(ctx context.Context, pod *corev1.Pod, container string, previous bool) (int, bool, error) {
	name := pod.GetMetadata().GetName()
	seen, err := n.Runtime.Pod(ctx, pod.GetMetadata().GetUid())
	if err != nil && !errors.Is(err, runtime.ErrNotFound) {
		return 0, false, apierr.Unavailable(fmt.Sprintf("ask the runtime about pod %s: %v", name, err))
	}
	attempts, err := podworker.Attempts(n.LogDir, pod, container)
	if err != nil {
		return 0, false, err
	}
	latest := plan.Latest(seen, container)
	if latest != nil && latest.State == runtime.StateCreated {
		latest = nil
	}
	current := -1
	switch {
	case latest != nil:
		current = latest.Attempt
	case len(attempts) > 0:
		current = attempts[len(attempts)-1]
	}
	if !previous {
		if current < 0 {
			return 0, false, apierr.BadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s", container, name, waitingReason(pod, container)))
		}
		return current, latest != nil && latest.State == runtime.StateRunning, nil
	}
	// A container that waits for its next run has its last one behind it.
	if current >= 0 && waitingReason(pod, container) == "CrashLoopBackOff" && (latest == nil || latest.State != runtime.StateRunning) {
		return current, false, nil
	}
	for i := len(attempts) - 1; i >= 0; i-- {
		if attempts[i] < current {
			return attempts[i], false, nil
		}
	}
	return 0, false, &apierr.Error{
		Reason: apierr.ReasonNotFound, Message: fmt.Sprintf("previous terminated container %q in pod %q not found", container, name),
	}
}

func waitingReason(pod *corev1.Pod, container string) string {
	for _, list := range [][]*corev1.ContainerStatus{pod.GetStatus().GetContainerStatuses(), pod.GetStatus().GetInitContainerStatuses()} {
		for _, s := range list {
			if s.GetName() == container && s.GetState().GetWaiting() != nil {
				return s.GetState().GetWaiting().GetReason()
			}
		}
	}
	return "ContainerCreating"
}

// ended returns a channel that is closed when a run of a container is over. What it starts ends with ctx.
func (n *Node) ended(ctx context.Context, uid, container string, attempt int) <-chan struct{} {
	done := make(chan struct{})
	over := func() bool {
		seen, err := n.Runtime.Pod(ctx, uid)
		if err != nil {
			return errors.Is(err, runtime.ErrNotFound)
		}
		latest := plan.Latest(seen, container)
		return latest == nil || latest.Attempt != attempt || latest.State == runtime.StateExited
	}
	events, err := n.Runtime.Events(ctx)
	if err != nil {
		// Without hints the check below has to do.
		events = nil
	}
	go func() {
		defer close(done)
		ticker := time.NewTicker(endCheck)
		defer ticker.Stop()
		for !over() {
		wait:
			for {
				select {
				case <-ctx.Done():
					return
				case e, ok := <-events:
					if !ok {
						events = nil
					} else if e.PodUID == uid {
						break wait
					}
				case <-ticker.C:
					break wait
				}
			}
		}
	}()
	return done
}
