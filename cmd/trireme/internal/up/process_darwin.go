package up

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttr puts a child in a process group of its own, so that a terminal's Ctrl-C reaches `up` alone. When
// `up` is killed its children stay, until the next one finds them.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// startTime tells apart processes that have the same number.
func startTime(pid int) (string, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return "", err
	}
	const zombie = 5 // SZOMB
	if info.Proc.P_stat == zombie {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return fmt.Sprintf("%d.%06d", info.Proc.P_starttime.Sec, info.Proc.P_starttime.Usec), nil
}
