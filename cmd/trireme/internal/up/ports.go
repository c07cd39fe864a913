package up

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// claim turns the address of a flag into one that a service can listen on: port 0 becomes a free port, a port
// that is taken is an error that names the flag.
func claim(flag, address string) (string, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return "", fmt.Errorf("%s is in use by another program: stop it, or choose another address with %s (port 0 takes a free one)", address, flag)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", flag, address, err)
	}
	address = l.Addr().String()
	return address, l.Close()
}
