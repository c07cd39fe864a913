//go:build linux

package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"trireme.dev/services/nodeagent/internal/runtime"
)

const cgroupMount = "/sys/fs/cgroup"

// cgroups makes the cgroups of pods; runc makes those of containers below them:
//
//	ROOT/kubepods/pod<uid>/<container>              Guaranteed
//	ROOT/kubepods/burstable/pod<uid>/<container>    Burstable
//	ROOT/kubepods/besteffort/pod<uid>/<container>   BestEffort
type cgroups struct {
	root string
	// unified is cgroup v2. Otherwise controllers lists v1's folders below the mount, a hybrid's too.
	unified     bool
	controllers []string
}

func newCgroups(root string) cgroups {
	c := cgroups{root: filepath.Join("/", root)}
	var stat unix.Statfs_t
	if err := unix.Statfs(cgroupMount, &stat); err == nil && stat.Type == unix.CGROUP2_SUPER_MAGIC {
		c.unified = true
		return c
	}
	entries, err := os.ReadDir(cgroupMount)
	if err != nil {
		return c
	}
	for _, e := range entries {
		// Links (cpu -> cpu,cpuacct) are second names of the same folder.
		if e.IsDir() {
			c.controllers = append(c.controllers, e.Name())
		}
	}
	return c
}

// pod is the path of a pod's cgroup.
func (c cgroups) pod(uid string, qos runtime.QOSClass) string {
	switch qos {
	case runtime.Burstable:
		return filepath.Join(c.root, "kubepods/burstable/pod"+uid)
	case runtime.BestEffort:
		return filepath.Join(c.root, "kubepods/besteffort/pod"+uid)
	default:
		return filepath.Join(c.root, "kubepods/pod"+uid)
	}
}

// createPod makes a pod's cgroup and sets its limits.
func (c cgroups) createPod(uid string, spec runtime.PodCgroup) error {
	path := c.pod(uid, spec.QOS)
	if c.unified {
		if err := c.delegate(path); err != nil {
			return err
		}
		return c.set(filepath.Join(cgroupMount, path), unifiedSettings(spec.Resources))
	}
	for controller, settings := range legacySettings(spec.Resources) {
		dir := c.controllerDir(controller)
		if dir == "" {
			if len(settings) > 0 {
				return fmt.Errorf("the kernel has no %s cgroup controller, which the pod's limits need", controller)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			return err
		}
		if err := c.set(filepath.Join(dir, path), settings); err != nil {
			return err
		}
	}
	return nil
}

// controllerDir is where a v1 controller is mounted: cpu, or cpu,cpuacct.
func (c cgroups) controllerDir(controller string) string {
	for _, name := range c.controllers {
		for part := range strings.SplitSeq(name, ",") {
			if part == controller {
				return filepath.Join(cgroupMount, name)
			}
		}
	}
	return ""
}

// delegate makes a v2 cgroup, with all controllers enabled on the way to it.
func (c cgroups) delegate(path string) error {
	dir := cgroupMount
	for name := range strings.SplitSeq(strings.Trim(path, "/")+"/", "/") {
		available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if err != nil {
			return err
		}
		for controller := range strings.FieldsSeq(string(available)) {
			switch controller {
			case "cpu", "cpuset", "io", "memory", "pids", "hugetlb":
				// One at a time: one that can't be enabled here must not keep the others out. What is needed and
				// missing shows when a limit is set.
				_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
			}
		}
		if name == "" {
			return nil
		}
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func (c cgroups) set(dir string, settings []setting) error {
	for _, s := range settings {
		if err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.value), 0o644); err != nil {
			return fmt.Errorf("set %s to %s: %w", s.file, s.value, err)
		}
	}
	return nil
}

type setting struct{ file, value string }

const cpuPeriod = 100_000

func legacySettings(r runtime.Resources) map[string][]setting {
	all := map[string][]setting{"cpu": nil, "memory": nil, "pids": nil}
	add := func(controller, file string, value int64) {
		if value > 0 {
			all[controller] = append(all[controller], setting{file, strconv.FormatInt(value, 10)})
		}
	}
	add("cpu", "cpu.shares", int64(r.CPUShares))
	if r.CPUQuotaMicros > 0 {
		add("cpu", "cpu.cfs_period_us", cpuPeriod)
		add("cpu", "cpu.cfs_quota_us", r.CPUQuotaMicros)
	}
	add("memory", "memory.limit_in_bytes", r.MemoryLimitBytes)
	add("pids", "pids.max", r.PidsLimit)
	return all
}

func unifiedSettings(r runtime.Resources) []setting {
	var all []setting
	add := func(file string, value int64) {
		if value > 0 {
			all = append(all, setting{file, strconv.FormatInt(value, 10)})
		}
	}
	if r.CPUShares > 0 {
		add("cpu.weight", int64(weight(r.CPUShares)))
	}
	if r.CPUQuotaMicros > 0 {
		all = append(all, setting{"cpu.max", fmt.Sprintf("%d %d", r.CPUQuotaMicros, cpuPeriod)})
	}
	add("memory.max", r.MemoryLimitBytes)
	add("pids.max", r.PidsLimit)
	return all
}

// weight maps v1's shares (2 to 262144) to v2's weight (1 to 10000), as Kubernetes does.
func weight(shares uint64) uint64 {
	shares = min(max(shares, 2), 262144)
	return 1 + (shares-2)*9999/262142
}

// removePod removes a pod's cgroups, with what runc may have left below them. Its containers are gone; where the
// kernel can, whatever they left running in the node's PID namespace is killed.
func (c cgroups) removePod(uid string) error {
	var errs []error
	for _, qos := range []runtime.QOSClass{runtime.Guaranteed, runtime.Burstable, runtime.BestEffort} {
		path := c.pod(uid, qos)
		if c.unified {
			dir := filepath.Join(cgroupMount, path)
			_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0o644)
			errs = append(errs, removeTree(dir))
			continue
		}
		for _, controller := range c.controllers {
			errs = append(errs, removeTree(filepath.Join(cgroupMount, controller, path)))
		}
	}
	return errors.Join(errs...)
}

// removeTree removes a cgroup and those below it.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return nil
}

// oomKills counts what the kernel's memory killer ended in a container's cgroup.
func (c cgroups) oomKills(path string) int {
	file, dir := "memory.events", filepath.Join(cgroupMount, path)
	if !c.unified {
		file, dir = "memory.oom_control", filepath.Join(c.controllerDir("memory"), path)
	}
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(rest))
			return n
		}
	}
	return 0
}
