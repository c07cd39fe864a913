//go:build linux

package containerd

import (
	"strings"
	"testing"
)

func TestLacks(t *testing.T) {
	own := map[string]bool{}
	for _, name := range required {
		own[name] = true
	}
	if err := lacks(own); err != nil {
		t.Errorf("nothing is missing: %v", err)
	}
	delete(own, "NET_ADMIN")
	err := lacks(own)
	if err == nil || !strings.Contains(err.Error(), "missing capability NET_ADMIN:") || strings.Contains(err.Error(), "\n") {
		t.Errorf("without NET_ADMIN: %v", err)
	}
}

// TestVacate needs no cgroup: a folder that has no type is left alone.
func TestVacate(t *testing.T) {
	if err := vacate(t.TempDir(), "agent"); err != nil {
		t.Error(err)
	}
}
