package scheduler

import (
	"log/slog"

	"trireme.dev/kit/daemon"
	"trireme.dev/services/scheduler/framework"
)

// Program is the scheduler as a process: its own binary and `trireme scheduler`. Plugins of third parties come after the
// scheduler's own.
func Program(extra ...framework.Factory) daemon.Program {
	cfg := NewConfig()
	return daemon.Program{
		Name:     "scheduler",
		Short:    "Put pods on nodes",
		AddFlags: cfg.AddFlags,
		Build:    func(logger *slog.Logger) (daemon.Service, error) { return New(cfg, logger, extra...) },
	}
}
