package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"trireme.dev/client/quantity"
	"trireme.dev/kit/mounts"
)

// mountTmpfs makes dir a file system in memory, unless it is one already. limit is a quantity, or empty.
func mountTmpfs(dir, limit string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("tmpfs: %w", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err == nil && st.Type == unix.TMPFS_MAGIC {
		// The folder that dir lies in may be in memory itself: only a mount of its own counts.
		resolved, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return fmt.Errorf("tmpfs: %w", err)
		}
		points, err := mounts.Below(filepath.Dir(resolved))
		if err != nil {
			return err
		}
		if slices.Contains(points, resolved) {
			return nil
		}
	}
	options := "mode=0777"
	if limit != "" {
		q, err := quantity.Parse(limit)
		if err != nil {
			return fmt.Errorf("sizeLimit: %w", err)
		}
		options += fmt.Sprintf(",size=%d", q.Value())
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
	}
	return nil
}

// bindFile makes an open file or directory appear at target and returns target: what was checked is what is bound,
// whatever happens to its path meanwhile.
func bindFile(f *os.File, _, target string) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil &&
		!errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return "", fmt.Errorf("unmount %s: %w", target, err)
	}
	// Not RemoveAll: should something still be mounted here, that must not be deleted.
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o750)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o750); err == nil {
		err = os.WriteFile(target, nil, 0o600)
	}
	if err != nil {
		return "", err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), target, "", unix.MS_BIND, ""); err != nil {
		return "", fmt.Errorf("bind mount on %s: %w", target, err)
	}
	return target, nil
}
