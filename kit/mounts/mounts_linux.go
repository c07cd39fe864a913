package mounts

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxMountLine leaves room for an overlay of many layers, which its line lists.
const maxMountLine = 1 << 20

// Unmount detaches every mount below dir, not one on dir itself, the innermost first, and makes sure that none is left.
// A dir that does not exist is success.
func Unmount(dir string) error {
	for range 2 { // a mount may hide another one
		found, err := Below(dir)
		if err != nil {
			return err
		}
		for _, m := range slices.Backward(found) {
			if err := unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
				// EINVAL: it went meanwhile. What is left is looked at below.
				return fmt.Errorf("unmount %s: %w", m, err)
			}
		}
	}
	left, err := Below(dir)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("still mounted: %s", strings.Join(left, ", "))
	}
	return err
}

// Below lists mount points below dir in the order in which they were mounted. A dir that does not exist has none.
func Below(dir string) ([]string, error) {
	resolved, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mountsIn(f, resolved)
}

// mountsIn reads the mount points below dir out of mountinfo. Half a list would be worse than none: what it misses is
// deleted through.
func mountsIn(mountinfo io.Reader, dir string) ([]string, error) {
	var out []string
	lines := bufio.NewScanner(mountinfo)
	lines.Buffer(nil, maxMountLine)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		const mountPoint = 4
		if len(fields) <= mountPoint {
			continue
		}
		if m := unescape(fields[mountPoint]); strings.HasPrefix(m, dir+"/") {
			out = append(out, m)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return out, nil
}

// unescape undoes the octal escapes of proc(5).
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
