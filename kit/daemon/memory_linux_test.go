package daemon

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// What is taken out of memory is the binary, and the process goes on.
func TestTheBinaryLeavesMemory(t *testing.T) {
	before := residentFileKB(t)
	if err := unmapBinary(); err != nil {
		t.Fatal(err)
	}
	if after := residentFileKB(t); after > before/2 {
		t.Errorf("%d kB of files are resident, %d kB before", after, before)
	}
}

func residentFileKB(t *testing.T) (kb int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb
}
