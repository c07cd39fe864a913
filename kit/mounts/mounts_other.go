//go:build !linux

package mounts

// Unmount has nothing to do: only containers mount, and they need Linux.
func Unmount(string) error { return nil }
