//go:build linux

package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// required are the capabilities without which no pod starts. The others are pods' own: one that asks for what the agent
// lacks goes without it.
var required = []string{
	"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "MKNOD", "NET_ADMIN", "SETGID", "SETPCAP", "SETUID", "SYS_ADMIN", "SYS_CHROOT",
}

// lacks names the capabilities that this process would need and does not have, in one line with the way out.
func lacks(own map[string]bool) error {
	missing := slices.DeleteFunc(slices.Clone(required), func(name string) bool { return own[name] })
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("containerd runtime: missing capability %s: add it to the agent's container (compose: cap_add, docker run: --cap-add)"+
		" or unit (systemd: CapabilityBoundingSet)", strings.Join(missing, ", "))
}

// claim makes the cgroups writable where the agent runs in a container, which sees its own cgroup as the root of all, and
// read-only. Pods then lie inside of that cgroup, and whoever removes the container removes what is left of them.
func (c cgroups) claim() error {
	dirs := []string{cgroupMount}
	if !c.unified {
		dirs = nil
		for _, controller := range c.controllers {
			dirs = append(dirs, filepath.Join(cgroupMount, controller))
		}
	}
	for _, dir := range dirs {
		if err := makeWritable(dir); err != nil {
			return err
		}
	}
	if c.unified {
		return vacate(cgroupMount, "agent")
	}
	return nil
}

func makeWritable(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("cgroups: %s: %w", dir, err)
	}
	if st.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	// What the mount forbids beside writing stays forbidden.
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND)
	for have, keep := range map[int64]uintptr{
		unix.ST_NOSUID: unix.MS_NOSUID, unix.ST_NODEV: unix.MS_NODEV, unix.ST_NOEXEC: unix.MS_NOEXEC, unix.ST_RELATIME: unix.MS_RELATIME,
	} {
		if st.Flags&have != 0 {
			flags |= keep
		}
	}
	if err := unix.Mount("", dir, "", flags, ""); err != nil {
		return fmt.Errorf("cgroups: %s is read-only and cannot be made writable: %w (an AppArmor profile or a user namespace forbids it:"+
			" compose: security_opt apparmor=unconfined)", dir, err)
	}
	return nil
}

// vacate moves the processes of a v2 cgroup that is not the machine's root into one below it: a cgroup that has processes
// cannot pass controllers on.
func vacate(root, name string) error {
	// The machine's root, alone, has no type, and may have both.
	if _, err := os.Stat(filepath.Join(root, "cgroup.type")); err != nil {
		return nil
	}
	procs := filepath.Join(root, "cgroup.procs")
	var failed error
	// More than once, since a process may have started another one meanwhile.
	for range 10 {
		data, err := os.ReadFile(procs)
		if err != nil {
			return fmt.Errorf("cgroups: %w", err)
		}
		pids := strings.Fields(string(data))
		if len(pids) == 0 {
			return nil
		}
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			return fmt.Errorf("cgroups: %w", err)
		}
		failed = nil
		for _, pid := range pids {
			err := os.WriteFile(filepath.Join(root, name, "cgroup.procs"), []byte(pid), 0o644)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				failed = errors.Join(failed, fmt.Errorf("cgroups: move process %s to %s: %w", pid, name, err))
			}
		}
	}
	return failed
}
