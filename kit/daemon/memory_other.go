//go:build !linux

package daemon

func unmapBinary() error { return nil }
