package rpc

import (
	"sync"

	"google.golang.org/grpc"
)

// crewSize bounds the goroutines that wait for calls. Most work is done by a few: the others sleep.
const crewSize = 256

// crew runs calls with an end on goroutines that have run calls before. A call goes deep, and a new goroutine's stack is
// copied three or four times until it is large enough: a tenth of what a small write costs. gRPC's own stream workers
// would do, but that each watch keeps one for good.
type crew struct {
	calls chan func()
	over  chan struct{} // closed when no calls will come

	mu      sync.Mutex
	members int
}

func newCrew() *crew { return &crew{calls: make(chan func()), over: make(chan struct{})} }

// run calls f and waits for it. Where all members are busy it runs where it is.
func (c *crew) run(f func() error) (err error) {
	done := make(chan struct{})
	call := func() {
		defer close(done)
		err = f()
	}
	select {
	case c.calls <- call:
	default:
		if !c.hire(call) {
			return f()
		}
	}
	<-done
	return err
}

// hire adds a member, whose first call is this one; false where there are enough. Members end with the server: who is in a
// call, after it.
func (c *crew) hire(call func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members == crewSize {
		return false
	}
	c.members++
	go func() {
		for {
			call()
			select {
			case call = <-c.calls:
			case <-c.over:
				return
			}
		}
	}()
	return true
}

// crewStream has calls with an end run by the crew, panics and all that runs inside included.
func (s *Server) crewStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if s.cfg.Unary == nil || !s.cfg.Unary(info.FullMethod) {
		return next(srv, ss)
	}
	return s.crew.run(func() error { return next(srv, ss) })
}
