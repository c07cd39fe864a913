package simulated_test

import (
	"testing"

	"go.uber.org/goleak"

	"trireme.dev/services/nodeagent/internal/runtime"
	"trireme.dev/services/nodeagent/internal/runtime/runtimetest"
	"trireme.dev/services/nodeagent/internal/runtime/simulated"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The state folder is all that a killed agent leaves behind; the host is what one process may share.
func TestSuite(t *testing.T) {
	var last *simulated.Runtime
	open := func(t *testing.T, cfg simulated.Config) runtime.Runtime {
		if last != nil {
			last.Close()
		}
		rt, err := simulated.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		last = rt
		return rt
	}
	suite := func(cfg simulated.Config) func(t *testing.T) {
		return func(t *testing.T) {
			runtimetest.Run(t, func(t *testing.T) *runtimetest.Node {
				return &runtimetest.Node{
					Runtime: open(t, cfg),
					Restart: func(t *testing.T) runtime.Runtime { return open(t, cfg) },
					Image:   "trireme.dev/busybox:latest",
					Absent:  "absent/image:1",
				}
			})
		}
	}
	t.Run("state folder", func(t *testing.T) { suite(simulated.Config{StateDir: t.TempDir()})(t) })
	t.Run("host", func(t *testing.T) {
		host, err := simulated.NewHost("", nil)
		if err != nil {
			t.Fatal(err)
		}
		suite(simulated.Config{Host: host})(t)
	})
}
