package volumezone

import (
	"testing"

	"trireme.dev/services/scheduler/plugins/internal/claimstest"
)

func TestFilter(t *testing.T) {
	const zone, region, old = "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone"
	const rejected = "UnschedulableAndUnresolvable: node(s) had no available volume zone"
	for _, c := range []struct {
		name         string
		volume, node map[string]string
		want         string
	}{
		{"no labels", nil, map[string]string{zone: "a"}, ""},
		{"same zone", map[string]string{zone: "a"}, map[string]string{zone: "a"}, ""},
		{"other zone", map[string]string{zone: "a"}, map[string]string{zone: "b"}, rejected},
		{"one of two zones", map[string]string{zone: "a__b"}, map[string]string{zone: "b"}, ""},
		{"none of two zones", map[string]string{zone: "a__b"}, map[string]string{zone: "c"}, rejected},
		{"other region", map[string]string{zone: "a", region: "x"}, map[string]string{zone: "a", region: "y"}, rejected},
		{"node says no region", map[string]string{region: "x"}, map[string]string{zone: "a"}, rejected},
		{"node says nothing", map[string]string{zone: "a"}, map[string]string{"other": "a"}, ""},
		{"older name on the volume", map[string]string{old: "a"}, map[string]string{zone: "a"}, ""},
		{"older name, other zone", map[string]string{old: "a"}, map[string]string{zone: "b"}, rejected},
		{"older name on both", map[string]string{old: "a"}, map[string]string{old: "a"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &claimstest.World{}
			w.Nodes = append(w.Nodes, claimstest.Node("n", c.node))
			w.Claims = append(w.Claims, claimstest.Claim("a", "x", "1Gi", "v"))
			w.Volumes = append(w.Volumes, claimstest.Volume("v", "x", "1Gi", "a"))
			w.Volumes[0].Metadata.Labels = c.volume
			h := w.Handle(t)
			if got, _ := claimstest.Verdicts(t, h, New(h), claimstest.Pod(t, "p", "", "a")); got["n"] != c.want {
				t.Errorf("got %q, want %q", got["n"], c.want)
			}
			if got, _ := claimstest.Verdicts(t, h, New(h), claimstest.Pod(t, "p", "")); got["n"] != "" {
				t.Errorf("a pod without claims: %q", got["n"])
			}
		})
	}
}
