package node

import (
	"bufio"
	"fmt"
	"os"
	goruntime "runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

// measure reads what the machine has.
func measure(dir string) (Machine, error) {
	memory, err := memInfo("MemTotal")
	if err != nil {
		return Machine{}, err
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return Machine{}, err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return Machine{}, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return Machine{
		CPUMillis: int64(goruntime.NumCPU()) * 1000, MemoryBytes: memory, StorageBytes: int64(fs.Blocks) * int64(fs.Bsize),
	}, nil
}

// memInfo reads a line of /proc/meminfo in bytes.
func memInfo(name string) (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for in.Scan() {
		fields := strings.Fields(in.Text())
		if len(fields) >= 2 && fields[0] == name+":" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/meminfo: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no %s: %w", name, in.Err())
}

// measurePressure compares what is left with the thresholds. What cannot be measured is not reported as pressure.
func measurePressure(dir string) pressure {
	var p pressure
	if available, err := memInfo("MemAvailable"); err == nil {
		p.memory = available < minMemoryBytes
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil && fs.Blocks > 0 {
		p.disk = fs.Bavail*100 < fs.Blocks*minDiskPercent || (fs.Files > 0 && fs.Ffree*100 < fs.Files*minInodePercent)
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		if limit, err := os.ReadFile("/proc/sys/kernel/pid_max"); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(limit)), 10, 64); err == nil {
				p.pids = int64(info.Procs)*100 > n*90
			}
		}
	}
	return p
}

// identify fills in what tells the machine from others.
func identify(out *corev1.NodeSystemInfo) {
	out.MachineId = line("/etc/machine-id")
	out.SystemUuid = line("/sys/class/dmi/id/product_uuid")
	out.BootId = line("/proc/sys/kernel/random/boot_id")
	out.KernelVersion = line("/proc/sys/kernel/osrelease")
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return
	}
	for _, l := range strings.Split(string(data), "\n") {
		if v, ok := strings.CutPrefix(l, "PRETTY_NAME="); ok {
			out.OsImage = strings.Trim(v, `"`)
		}
	}
}

// line reads a file of one line; empty where it cannot be read.
func line(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
