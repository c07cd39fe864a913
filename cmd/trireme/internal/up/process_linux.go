package up

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// childAttr puts a child in a process group of its own, so that a terminal's Ctrl-C reaches `up` alone, and
// has it told to stop when `up` dies however hard.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// startTime tells apart processes that have the same number: boot and clock ticks since then.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The name in parentheses may hold spaces and parentheses itself.
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return "", fmt.Errorf("/proc/%d/stat: %q", pid, stat)
	}
	fields := strings.Fields(string(stat[end+1:]))
	const state, starttime = 0, 19 // fields 3 and 22 of proc(5)
	if len(fields) <= starttime {
		return "", fmt.Errorf("/proc/%d/stat: %q", pid, stat)
	}
	if fields[state] == "Z" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(boot)) + "/" + fields[starttime], nil
}
