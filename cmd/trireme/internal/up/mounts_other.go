//go:build !linux

package up

// unmountBelow has nothing to do: only containers mount, and they need Linux.
func unmountBelow(string) error { return nil }
