//go:build linux

package containerd

import (
	"reflect"
	"testing"

	"trireme.dev/services/nodeagent/internal/runtime"
)

func TestSettingsOfBothCgroupVersions(t *testing.T) {
	for _, c := range []struct {
		name      string
		resources runtime.Resources
		legacy    map[string][]setting
		unified   []setting
	}{
		{
			"nothing", runtime.Resources{},
			map[string][]setting{"cpu": nil, "memory": nil, "pids": nil}, nil,
		},
		{
			"all", runtime.Resources{CPUShares: 1024, CPUQuotaMicros: 50_000, MemoryLimitBytes: 64 << 20, PidsLimit: 100},
			map[string][]setting{
				"cpu":    {{"cpu.shares", "1024"}, {"cpu.cfs_period_us", "100000"}, {"cpu.cfs_quota_us", "50000"}},
				"memory": {{"memory.limit_in_bytes", "67108864"}},
				"pids":   {{"pids.max", "100"}},
			},
			[]setting{{"cpu.weight", "39"}, {"cpu.max", "50000 100000"}, {"memory.max", "67108864"}, {"pids.max", "100"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := legacySettings(c.resources); !reflect.DeepEqual(got, c.legacy) {
				t.Errorf("v1: %v, want %v", got, c.legacy)
			}
			if got := unifiedSettings(c.resources); !reflect.DeepEqual(got, c.unified) {
				t.Errorf("v2: %v, want %v", got, c.unified)
			}
		})
	}
}

func TestWeightsSpanTheWholeRangeOfShares(t *testing.T) {
	for shares, want := range map[uint64]uint64{0: 1, 2: 1, 1024: 39, 262144: 10000, 1 << 20: 10000} {
		if got := weight(shares); got != want {
			t.Errorf("weight of %d shares = %d, want %d", shares, got, want)
		}
	}
}

func TestEveryQOSClassHasItsParent(t *testing.T) {
	for _, root := range []string{"", "/trireme"} {
		c := cgroups{root: root}
		for qos, want := range map[runtime.QOSClass]string{
			runtime.Guaranteed: "kubepods/podU", runtime.Burstable: "kubepods/burstable/podU", runtime.BestEffort: "kubepods/besteffort/podU",
		} {
			if root != "" {
				want = root + "/" + want
			}
			if got := c.pod("U", qos); got != want {
				t.Errorf("%s under %q: %s, want %s", qos, root, got, want)
			}
		}
	}
}
