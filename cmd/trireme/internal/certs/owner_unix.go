//go:build unix

package certs

import (
	"os"
	"syscall"
)

func owner(path string) (uid, gid int, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid), int(st.Gid), nil
	}
	return os.Geteuid(), os.Getegid(), nil
}
