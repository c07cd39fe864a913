package daemon

import (
	"context"
	"runtime/debug"
	"time"
)

// trimAfter is how long after its start a process gives back the memory that only the start has needed.
const trimAfter = 5 * time.Second

// trim gives back to the system what a service's start has left: heap that nothing uses, and the pages of the binary.
// Nearly all of those have been touched by then, by what runs once; they would stay mapped for as long as the process lives.
// What runs on is mapped again when it does, from memory and not from disk.
func trim(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(trimAfter):
	}
	debug.FreeOSMemory()
	return unmapBinary()
}
