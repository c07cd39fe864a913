package devices_test

import (
	"testing"

	"trireme.dev/services/nodeagent/internal/devices"
)

// A plugin of somebody else knows nothing of our question about its process: it is listed without an answer.
func TestAForeignPluginIsListedWithoutStatus(t *testing.T) {
	cfg := config(t)
	a := start(t, cfg)
	p := newPlugin("nvidia.com/gpu", "foreign.sock", "a", "b")
	p.serve(t, cfg.PluginDir)
	a.until(t, "nvidia.com/gpu", devices.Resource{Capacity: 2, Allocatable: 2})
	p.setHealth("b", "Unhealthy")
	a.until(t, "nvidia.com/gpu", devices.Resource{Capacity: 2, Allocatable: 1})
	list := a.Plugins(t.Context())
	if len(list) != 1 {
		t.Fatalf("plugins %v, want one", list)
	}
	got := list[0]
	if got.GetResourceName() != "nvidia.com/gpu" || got.GetEndpoint() != "foreign.sock" || !got.GetRegistered() ||
		got.GetDevices() != 2 || got.GetHealthy() != 1 || got.GetStatus() != nil {
		t.Errorf("plugin %v", got)
	}
}
