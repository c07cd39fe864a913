package measure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ResidentMB reads the resident memory of a process, and shows how much of it is files: the binary itself.
func ResidentMB(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	mb := 0.0
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "RssAnon:") || strings.HasPrefix(line, "RssFile:") {
			fmt.Fprint(os.Stderr, "  ", line)
		}
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				return 0, err
			}
			mb = kb / 1024
		}
	}
	return mb, nil
}

// ProcessorTime reads how long a process has computed.
func ProcessorTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// After the name, which may hold anything, in parentheses.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// OwnProcessorTime is how long this process has computed.
func OwnProcessorTime() (time.Duration, error) {
	var of syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &of); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(of.Utime.Nano() + of.Stime.Nano()), nil
}
