package scheduler

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// disturbed is a connection whose calls may be lost, answered to nobody, late, or held, and whose watch of pods may lag.
type disturbed struct {
	grpc.ClientConnInterface

	mu sync.Mutex
	// bind says what becomes of a binding; nil for nothing out of the ordinary.
	bind func() disturbance
	// lag is how long the next response of the pods' watch takes; nil for no time.
	lag func() time.Duration
	// open is closed while calls go through; nil for always.
	open chan struct{}
	late sync.WaitGroup
}

type disturbance int

const (
	passes     disturbance = iota
	lost                   // it never arrives
	unanswered             // it is done, and nobody hears of it
	straggles              // it is done some time after it was given up
)

func (d *disturbed) disturb(bind func() disturbance, lag func() time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bind, d.lag = bind, lag
}

// pause stops everything that goes out, and what comes in, until resume: to others the process looks as if it had stopped.
func (d *disturbed) pause() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = make(chan struct{})
}

func (d *disturbed) resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open != nil {
		close(d.open)
		d.open = nil
	}
}

// pass waits while the connection is paused.
func (d *disturbed) pass(ctx context.Context) error {
	d.mu.Lock()
	open := d.open
	d.mu.Unlock()
	if open == nil {
		return nil
	}
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

var errNoAnswer = status.Error(codes.Unavailable, "no answer")

func (d *disturbed) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if method != corev1.PodService_Bind_FullMethodName {
		if err := d.pass(ctx); err != nil {
			return err
		}
		return d.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	}
	// What is on its way is not called back when its sender gives up.
	ctx = context.WithoutCancel(ctx)
	if err := d.pass(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	what := passes
	if d.bind != nil {
		what = d.bind()
	}
	d.mu.Unlock()
	switch what {
	case lost:
		return errNoAnswer
	case unanswered:
		if err := d.ClientConnInterface.Invoke(ctx, method, args, reply, opts...); err != nil {
			return err
		}
		return errNoAnswer
	case straggles:
		d.late.Go(func() {
			<-time.After(20 * time.Millisecond)
			_ = d.ClientConnInterface.Invoke(ctx, method, args, &corev1.BindResponse{}, opts...) // nobody asks
		})
		return errNoAnswer
	}
	return d.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

func (d *disturbed) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := d.pass(ctx); err != nil {
		return nil, err
	}
	s, err := d.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &laggingStream{s, d, strings.HasSuffix(method, "PodService/Watch")}, nil
}

type laggingStream struct {
	grpc.ClientStream

	d    *disturbed
	pods bool
}

func (s *laggingStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.d.mu.Lock()
	lag := s.d.lag
	s.d.mu.Unlock()
	if err == nil && s.pods && lag != nil {
		select {
		case <-time.After(lag()):
		case <-s.Context().Done():
			return status.FromContextError(s.Context().Err()).Err()
		}
	}
	if err == nil {
		err = s.d.pass(s.Context())
	}
	return err
}
