package local

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel end the process with this one, however this one ends.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
