//go:build linux

package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// hostFacts are what this machine lets us do.
type hostFacts struct {
	// capabilities that this process has, and so can give.
	capabilities map[string]bool
	// oomScoreAdj of this process. A lower one needs CAP_SYS_RESOURCE.
	oomScoreAdj int
	seccomp     bool
}

// learnHost finds the facts and warns of what is missing, once.
func learnHost(ctx context.Context, runc string, logger *slog.Logger) hostFacts {
	h := hostFacts{capabilities: ownCapabilities()}
	if data, err := os.ReadFile("/proc/self/oom_score_adj"); err == nil {
		h.oomScoreAdj, _ = strconv.Atoi(strings.TrimSpace(string(data)))
	}
	if runc == "" {
		runc = "runc"
	}
	var err error
	if h.seccomp, err = hasSeccomp(ctx, runc); err != nil {
		logger.Warn("it is unknown whether runc supports seccomp; containers run without a seccomp profile", "error", err)
	} else if !h.seccomp {
		logger.Warn("runc was built without seccomp; containers run without a seccomp profile")
	}
	return h
}

func hasSeccomp(ctx context.Context, runc string) (bool, error) {
	if _, err := os.Stat("/proc/sys/kernel/seccomp/actions_avail"); err != nil {
		return false, nil
	}
	out, err := exec.CommandContext(ctx, runc, "features").Output()
	if err != nil {
		return false, fmt.Errorf("%s features: %w", runc, err)
	}
	var features struct {
		Linux struct{ Seccomp struct{ Enabled bool } }
	}
	if err := json.Unmarshal(out, &features); err != nil {
		return false, fmt.Errorf("%s features: %w", runc, err)
	}
	return features.Linux.Seccomp.Enabled, nil
}

// capabilityNames in the order of their numbers.
var capabilityNames = []string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
	"LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
	"SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
	"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
	"MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
	"CHECKPOINT_RESTORE",
}

func ownCapabilities() map[string]bool {
	own := map[string]bool{}
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return own
	}
	for line := range strings.Lines(string(data)) {
		hex, ok := strings.CutPrefix(line, "CapEff:")
		if !ok {
			continue
		}
		bits, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		if err != nil {
			return own
		}
		for i, name := range capabilityNames {
			if bits&(1<<i) != 0 {
				own[name] = true
			}
		}
	}
	return own
}

// oomScore is the nearest to the wanted score that may be set.
func (h hostFacts) oomScore(want int) int {
	want = min(max(want, -1000), 1000)
	if h.capabilities["SYS_RESOURCE"] {
		return want
	}
	return max(want, h.oomScoreAdj)
}
