package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// checkCommand is the hidden command that tries, in namespaces of its own, what a sandbox needs.
const checkCommand = "check-sandbox"

// lacksForContainers lists what this machine lacks to run containers as such, runtime programs aside.
func lacksForContainers(ctx context.Context, exe, scratch string) []string {
	if os.Geteuid() != 0 {
		return []string{fmt.Sprintf("not root: this is user %d, and namespaces, mounts and cgroups are root's (sudo %s)", os.Geteuid(), strings.Join(os.Args, " "))}
	}
	var missing []string
	if err := cgroupsMounted(); err != nil {
		missing = append(missing, err.Error())
	}
	cmd := exec.CommandContext(ctx, exe, checkCommand, scratch)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		text := strings.TrimPrefix(strings.TrimSpace(string(out)), "error: ")
		missing = append(missing, strings.Split(text, "\n")...)
	default:
		missing = append(missing, fmt.Sprintf("no permission for new mount, network and process namespaces: %v (a container needs to be privileged for this)", err))
	}
	return missing
}

func cgroupsMounted() error {
	for _, f := range []string{"/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if _, err := os.Stat(f); err == nil {
			return nil
		}
	}
	return errors.New("no cgroups under /sys/fs/cgroup, neither version 2 nor version 1 with memory (mount -t cgroup2 none /sys/fs/cgroup)")
}

// checkSandbox runs in new namespaces and tries the mounts of a container in an empty folder.
func checkSandbox(scratch string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("no permission to mount: %w", err)
	}
	dir, err := os.MkdirTemp(scratch, "check-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	var errs []error
	// Layers lie where the state directory is, so that is where an overlay has to work.
	layers, err := os.MkdirTemp(scratch, "layers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(layers)
	for _, d := range []string{"lower", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(layers, d), 0o700); err != nil {
			return err
		}
	}
	opts := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", layers)
	if err := unix.Mount("overlay", dir, "overlay", 0, opts); err != nil {
		errs = append(errs, fmt.Errorf("overlayfs does not work in %s: %w (modprobe overlay, or a --state-dir on a plain file system)", scratch, err))
	} else if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		errs = append(errs, err)
	}
	if err := unix.Mount("proc", dir, "proc", 0, ""); err != nil {
		errs = append(errs, fmt.Errorf("no permission to mount a new /proc: %w", err))
	} else if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
