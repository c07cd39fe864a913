package recording

import (
	"bufio"
	"os"
	"testing"
)

// Break has a file be on a disk that is full.
func Break(t *testing.T, f *File) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { full.Close() })
	f.out = bufio.NewWriter(full)
}
