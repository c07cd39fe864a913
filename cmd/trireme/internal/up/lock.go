package up

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// errLocked says that another process holds the lock.
var errLocked = errors.New("locked")

// takeLock makes this process the only `up` of a state directory. The lock ends with the process, however
// it ends.
func takeLock(path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}

// machineSocket has a name of Linux' abstract kind: no file, gone with its process, and one per network namespace, which is
// what can have one bridge of ours.
const machineSocket = "@trireme-containers"

// lockMachine makes this process the only `up` with real containers, whatever its state directory.
func lockMachine() (release func(), err error) {
	l, err := net.Listen("unix", machineSocket)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, errors.New("another cluster runs real containers on this machine: `trireme down` stops it, --simulate N starts a second cluster beside it")
	}
	if err != nil {
		return nil, err
	}
	return func() { _ = l.Close() }, nil
}
