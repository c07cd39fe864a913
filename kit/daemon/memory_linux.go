package daemon

import (
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// unmapBinary takes the pages of the process's own binary, which nobody writes to, out of its memory.
func unmapBinary() error {
	binary, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		// start-end perms offset device inode path
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[5] != binary || fields[1] != "r-xp" && fields[1] != "r--p" {
			continue
		}
		var start, end uintptr
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &start, &end); err != nil {
			return fmt.Errorf("%s: %w", fields[0], err)
		}
		// The address is not of anything that Go has allocated.
		pages := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&start))), end-start)
		if err := unix.Madvise(pages, unix.MADV_DONTNEED); err != nil {
			return fmt.Errorf("release %s: %w", fields[0], err)
		}
	}
	return nil
}
