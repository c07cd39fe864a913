//go:build e2e

package e2e

import "testing"

// TestSimulated is the house on a simulated runtime: no root, four nodes of eight GPUs, every service killed once.
func TestSimulated(t *testing.T) {
	runScenario(t, "simulated", start(t, "--simulate", "4", "--gpus", "8"))
}
